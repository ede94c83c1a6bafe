from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from logs import FILE, full_disk
from stories import story

from prime import events as ev
from prime.errors import CorruptLog, LogError, SessionBusy, SessionNotFound, UnsupportedLog
from prime.log import Log
from prime.messages import TextPart, Usage
from prime.sessions import Sessions
from prime.store.sqlite import SqliteStore
from prime.verify import verify

HOLDER = """
import sys
from pathlib import Path
from prime import events as ev
from prime.sessions import Sessions
with Sessions(Path(sys.argv[1])).open(sys.argv[2]) as log:
    log.append(ev.TurnStarted(), durable=True)
    print("held", flush=True)
    sys.stdin.read()
    log.append(ev.TurnEnded(reason="completed"))
"""


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    return Sessions(tmp_path)


@contextlib.contextmanager
def held(home: Path, session: str) -> Iterator[subprocess.Popen[str]]:
    """Have another process hold a session, inside a turn."""
    arguments = [sys.executable, "-c", HOLDER, str(home), session]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == "held\n"
            yield holder
        finally:
            holder.kill()


def new(sessions: Sessions, cwd: Path) -> str:
    """Create a session and return its id."""
    with sessions.create(cwd) as log:
        return log.session


def tell(sessions: Sessions, session: str) -> list[ev.Entry]:
    """Write the story into a new folder, and return its entries."""
    folder = sessions.folder(session)
    folder.mkdir(parents=True)
    with Log(SqliteStore.create(folder / FILE, ev.FORMAT)) as log:
        return [entry for commit in story(session) for entry in log.append(*commit)]


def types(sessions: Sessions, session: str) -> list[str]:
    with sessions.read(session) as store:
        return [row.type for row in store.rows()]


def stored(folder: Path) -> bytes:
    """Return the bytes of a session's log that nobody writes to."""
    ahead = folder / f"{FILE}-wal"
    assert not ahead.exists() or ahead.stat().st_size == 0
    return (folder / FILE).read_bytes()


# Life of a session


def test_a_session_is_created_opened_and_closed(sessions: Sessions, tmp_path: Path) -> None:
    with sessions.create(tmp_path / "..") as log:
        session = log.session
        assert log.state.cwd == str(tmp_path.parent)
        assert sessions.ids() == [session]
        owner = json.loads((sessions.folder(session) / "owner.json").read_text())
        assert owner["pid"] == os.getpid()
    with sessions.open(session) as log:
        assert log.session == session
    assert types(sessions, session) == ["session_created", "session_closed", "session_resumed", "session_closed"]
    assert not (sessions.folder(session) / "owner.json").exists()
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{7}", session)


def test_only_its_owner_may_look_into_a_session(sessions: Sessions, tmp_path: Path) -> None:
    session = new(sessions, tmp_path)
    assert sessions.folder(session).stat().st_mode & 0o777 == 0o700


def test_a_session_that_ends_in_an_error_is_not_closed_in_good_order(sessions: Sessions, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), sessions.create(tmp_path) as log:  # noqa: PT012
        session = log.session
        log.append(ev.TurnStarted())
        raise RuntimeError
    assert types(sessions, session) == ["session_created", "turn_started"]
    with sessions.open(session) as log:
        assert log.state.trace.quiet


def test_a_session_left_inside_a_turn_is_repaired_by_the_next_open(sessions: Sessions, tmp_path: Path) -> None:
    with sessions.create(tmp_path) as log:
        session = log.session
        log.append(ev.TurnStarted())
    assert types(sessions, session) == ["session_created", "turn_started"]
    with sessions.open(session):
        pass
    assert types(sessions, session)[2:] == ["turn_ended", "session_resumed", "session_closed"]


def test_ids_come_newest_first(sessions: Sessions, tmp_path: Path) -> None:
    assert sessions.ids() == []
    made = []
    for _ in range(3):
        made.append(new(sessions, tmp_path))
        sessions.folder(made[-1]).rename(sessions.folder(f"2020010{len(made)}-000000-000abcd"))
    assert sessions.ids() == [f"2020010{number}-000000-000abcd" for number in (3, 2, 1)]
    made = [new(sessions, tmp_path) for _ in range(5)]
    assert set(sessions.ids()[:5]) == set(made)
    moments = [session[:19] for session in made]
    assert moments == sorted(moments)


def test_what_is_not_a_session_is_not_listed(sessions: Sessions, tmp_path: Path) -> None:
    session = new(sessions, tmp_path)
    root = sessions.folder(session).parent
    (root / "20200101-000000-000abcd").mkdir()
    (root / "notes.txt").write_text("x")
    half = root / ".20990101-000000-000abcd"  # what a process leaves that dies while it creates or deletes one
    half.mkdir()
    (half / FILE).write_bytes(b"")
    assert sessions.ids() == [session]
    assert sessions.resolve("last") == session
    for name in ("20200101-000000-000abcd", "20990101-000000-000abcd", half.name):
        with pytest.raises(SessionNotFound):
            sessions.resolve(name)


# Names


@pytest.fixture
def three(sessions: Sessions) -> Sessions:
    """Three sessions on two days."""
    for session in ("20260101-080000-000aaaa", "20260101-090000-000bbbb", "20260202-080000-000cccc"):
        tell(sessions, session)
    return sessions


@pytest.mark.parametrize(
    ("name", "session"),
    [
        ("20260101-080000-000aaaa", "20260101-080000-000aaaa"),
        ("20260101-09", "20260101-090000-000bbbb"),
        ("202602", "20260202-080000-000cccc"),
        ("last", "20260202-080000-000cccc"),
    ],
)
def test_a_name_means_one_session(three: Sessions, name: str, session: str) -> None:
    assert three.resolve(name) == session


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "20260101",
            "'20260101' begins several sessions: 20260101-090000-000bbbb, 20260101-080000-000aaaa; write more of",
        ),
        ("20260101-081000-000aaaa", "no session '20260101-081000-000aaaa'; the nearest: 20260101-080000-000aaaa"),
        ("?", "no session '?'; the nearest: 20260202-080000-000cccc"),
        ("", "no session ''; the nearest: 20260202-080000-000cccc"),
    ],
)
def test_a_name_that_means_none_names_the_nearest(three: Sessions, name: str, message: str) -> None:
    with pytest.raises(SessionNotFound) as missing:
        three.resolve(name)
    assert str(missing.value).startswith(message)


@pytest.mark.parametrize("name", ["last", "x"])
def test_without_sessions_there_is_nothing_to_name(sessions: Sessions, name: str) -> None:
    with pytest.raises(SessionNotFound, match=f"no session '{name}'; there are none yet"):
        sessions.resolve(name)


def test_a_session_that_is_not_there_is_not_created(sessions: Sessions, tmp_path: Path) -> None:
    for use in (sessions.open, sessions.read):
        with pytest.raises(SessionNotFound), use("20200101-000000-000abcd"):
            pass
    for use in (sessions.fork, sessions.delete):
        with pytest.raises(SessionNotFound):
            use("20200101-000000-000abcd")
    assert list(tmp_path.iterdir()) == []


# One process for each session


def test_a_session_held_by_another_process_is_refused_by_its_pid(sessions: Sessions, tmp_path: Path) -> None:
    session = new(sessions, tmp_path)
    with held(tmp_path, session) as holder:
        refusal = f"{session} is open in process {holder.pid}; end it or fork the session"
        with pytest.raises(SessionBusy, match=refusal) as busy, sessions.open(session):
            pass
        assert json.loads(busy.value.owner)["pid"] == holder.pid
        with pytest.raises(SessionBusy, match=refusal):
            sessions.delete(session)
        assert types(sessions, session)[-1] == "turn_started"  # reading is free
        assert sessions.fork(session, 1) in sessions.ids()
        holder.communicate("")
    assert types(sessions, session)[-2:] == ["turn_ended", "session_closed"]
    with sessions.open(session):
        pass


def test_a_process_that_is_killed_lets_go(sessions: Sessions, tmp_path: Path) -> None:
    session = new(sessions, tmp_path)
    with held(tmp_path, session) as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with sessions.open(session) as log:
            assert json.loads((sessions.folder(session) / "owner.json").read_text())["pid"] == os.getpid()
            assert [entry.event.type for entry in log.entries(2)] == [
                "session_resumed",
                "turn_started",
                "turn_ended",
                "session_resumed",
            ]
    with sessions.read(session) as store:
        verify(store)


def test_the_same_process_may_not_open_it_twice(sessions: Sessions, tmp_path: Path) -> None:
    with sessions.create(tmp_path) as log:
        with pytest.raises(SessionBusy, match=f"process {os.getpid()}"), sessions.open(log.session):
            pass
        log.append(ev.TurnStarted())
        # the refusal took nothing away from the owner
        with pytest.raises(SessionBusy, match=f"process {os.getpid()}"), sessions.open(log.session):
            pass


# What cannot be opened


def test_a_newer_log_is_refused_unchanged(sessions: Sessions, tmp_path: Path) -> None:
    folder = sessions.folder("20260101-080000-000aaaa")
    folder.mkdir(parents=True)
    SqliteStore.create(folder / FILE, ev.FORMAT + 1).close()
    before = stored(folder)
    for use in (sessions.open, sessions.read):
        with pytest.raises(UnsupportedLog, match="upgrade"), use(folder.name):
            pass
    assert stored(folder) == before
    assert not (folder / "owner.json").exists()


def test_a_damaged_log_is_refused_unchanged(sessions: Sessions) -> None:
    tell(sessions, "s1")
    folder = sessions.folder("s1")
    with contextlib.closing(sqlite3.connect(folder / FILE)) as raw, raw:
        raw.execute("DROP TRIGGER entries_stay")
        raw.execute("DELETE FROM entries WHERE type = 'turn_started'")
    before = stored(folder)
    with pytest.raises(CorruptLog), sessions.open("s1"):
        pass
    with pytest.raises(CorruptLog):
        sessions.fork("s1")
    assert stored(folder) == before
    assert sessions.ids() == ["s1"]
    assert [path.name for path in folder.parent.iterdir()] == ["s1"]


# Forks


def test_a_fork_has_the_entries_of_its_parent_and_a_name_of_its_own(sessions: Sessions) -> None:
    entries = tell(sessions, "s1")
    before = stored(sessions.folder("s1"))
    child = sessions.fork("s1")
    assert child in sessions.ids()
    assert stored(sessions.folder("s1")) == before
    with sessions.open(child) as log:
        inherited = list(log.entries(0, len(entries)))
        assert [(entry.seq, entry.at, entry.turn, entry.step, entry.event) for entry in inherited] == [
            (entry.seq, entry.at, entry.turn, entry.step, entry.event) for entry in entries
        ]
        assert {entry.session for entry in inherited} == {log.session} == {child}
        (forked,) = (entry.event for entry in log.entries(types=["session_forked"]))
        assert (forked.session, forked.parent) == (child, "s1")
        assert log.state.usage == {}
        assert not log.state.kernel.alive
        assert log.state.header is not None
        assert log.state.notes is not None
    with sessions.read(child) as store:
        assert verify(store).requests == 5


def test_a_fork_counts_on_from_its_parent(sessions: Sessions) -> None:
    entries = tell(sessions, "s1")
    turns = max(entry.turn or 0 for entry in entries)
    with sessions.open(sessions.fork("s1")) as log:
        (entry,) = log.append(ev.TurnStarted())
        assert entry.turn == turns + 1
        log.append(ev.StepStarted(request="x", messages=0))
        assert log.state.header is not None
        log.append(ev.ModelReplied(parts=(), stop="end", model="m", usage=Usage(input=3)))
        assert log.state.usage == {log.state.header.model: Usage(input=3)}


def test_inputs_that_wait_are_dead_in_the_child_and_alive_in_the_parent(sessions: Sessions, tmp_path: Path) -> None:
    with sessions.create(tmp_path) as log:
        parent = log.session
        log.append(ev.InputQueued(input_id="a", kind="ask", parts=(TextPart(text="hello"),)))
    child = sessions.fork(parent)
    with sessions.open(child) as log:
        assert log.state.inbox.pending == ()
        assert not log.state.inbox.wakes
        with pytest.raises(LogError, match="not pending"):
            log.append(ev.TurnStarted(), ev.InputClaimed(input_id="a"))
    with sessions.open(parent) as log:
        assert [item.input_id for item in log.state.inbox.pending] == ["a"]
    with sessions.open(sessions.fork(child)) as log:
        assert log.state.inbox.pending == ()


def test_a_fork_ends_where_nothing_is_open(sessions: Sessions) -> None:
    entries = tell(sessions, "s1")
    brackets, allowed = 0, []
    for entry in entries:
        opened = {"turn_started": 1, "turn_ended": -1, "cell_started": 1, "cell_ended": -1}
        brackets += opened.get(entry.event.type, 0)
        if not brackets:
            allowed.append(entry.seq)
    assert 3 < len(allowed) < len(entries) / 2
    for boundary in (*allowed[:3], allowed[-1]):
        child = sessions.fork("s1", boundary)
        with sessions.read(child) as store:
            assert verify(store).entries == boundary + 2
    before = sessions.ids()
    for boundary in set(range(len(entries))) - set(allowed):
        with pytest.raises(LogError, match=f"entry {boundary} of s1 lies inside an open turn"):
            sessions.fork("s1", boundary)
    for boundary in (-1, len(entries)):
        with pytest.raises(LogError, match=f"s1 has entries 0 to {len(entries) - 1}; a fork cannot end at {boundary}"):
            sessions.fork("s1", boundary)
    assert sessions.ids() == before
    assert len(list(sessions.folder("s1").parent.iterdir())) == len(before)


def test_a_fork_that_fails_half_way_leaves_nothing(sessions: Sessions, tmp_path: Path) -> None:
    tell(sessions, "s1")
    small = tmp_path / "small"
    small.touch()
    with full_disk(small, 60_000), pytest.raises(LogError, match="could not be written"):
        sessions.fork("s1")
    assert [path.name for path in sessions.folder("s1").parent.iterdir()] == ["s1"]
    assert sessions.fork("s1") in sessions.ids()


# Deleting


def test_a_deleted_session_is_gone_and_its_fork_is_not(sessions: Sessions) -> None:
    tell(sessions, "s1")
    child = sessions.fork("s1")
    sessions.delete("s1")
    assert sessions.ids() == [child]
    assert [path.name for path in sessions.folder(child).parent.iterdir()] == [child]
    with pytest.raises(SessionNotFound):
        sessions.delete("s1")
    with sessions.read(child) as store:
        verify(store)


def test_a_copied_folder_is_a_session(sessions: Sessions, tmp_path: Path) -> None:
    tell(sessions, "s1")
    other = Sessions(tmp_path / "elsewhere")
    other.folder("s1").parent.mkdir(parents=True)
    sessions.folder("s1").rename(other.folder("s1"))
    with other.open("s1") as log:
        assert log.session == "s1"
