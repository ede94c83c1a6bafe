"""Variables over the end of a process: whole sessions with real kernels, closed, killed, resumed and forked."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import prime
from prime import events as ev
from prime.log import read
from prime.messages import text_of
from prime.providers.scripted import ScriptedProvider
from prime.sessions import Sessions

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def agent(home: Path, session: str | None = None, **options: Any) -> AsyncIterator[prime.Agent]:
    """Run an agent whose cells are run by hand."""
    async with prime.Agent(ScriptedProvider([]), home=home, cwd=home.parent, session=session, **options) as opened:
        yield opened


async def run(opened: prime.Agent, code: str) -> str:
    """Run a cell and return what is shown of it."""
    return text_of((await opened.cell(code)).shown)


async def session(home: Path, *cells: str, **options: Any) -> str:
    """Run cells in a new session, close it in good order, and return its id."""
    async with agent(home, **options) as opened:
        for code in cells:
            assert (await opened.cell(code)).status == "ok"
        return opened.session


def entries(home: Path, session: str, *kinds: str) -> list[ev.Entry]:
    with Sessions(home).read(session) as store:
        return list(read(store, types=kinds))


def events(home: Path, session: str, *kinds: str) -> list[Any]:
    return [entry.event for entry in entries(home, session, *kinds)]


def files(home: Path, session: str) -> list[Path]:
    """The snapshots of a session, and whatever was left of writing one."""
    folder = Sessions(home).folder(session)
    return sorted(each for each in folder.iterdir() if each.suffix == ".snapshot")


async def test_a_resumed_session_has_its_variables_and_says_so_once(home: Path) -> None:
    id = await session(home, "g = 1\ndef f(): return g\nitems = same = [1]")
    async with agent(home, id) as opened:
        shown = await run(opened, "items.append(2)\ng = 7\nf(), same")
        assert shown == (
            "[the kernel was restarted before this cell; all names are as they were, restored from a snapshot: "
            "f, g, items, same]\n(7, [1, 2])"
        )
        assert await run(opened, "1") == "1"
    (saved, _) = events(home, id, "snapshot_saved")
    (restored,) = events(home, id, "namespace_restored")
    assert (dict(restored.restored), dict(restored.missing)) == (dict(saved.names), {})
    assert saved.names["f"] == "function"


async def test_a_cell_that_does_not_run_leaves_the_notice_to_the_next(home: Path) -> None:
    id = await session(home, "a = 1")
    async with agent(home, id) as opened:
        assert "restarted" not in await run(opened, "def")
        assert "restarted" in await run(opened, "a")


async def test_what_cannot_be_saved_is_named_with_its_reason(home: Path) -> None:
    id = await session(home, "a = 1\ngen = (i for i in range(3))\nimport threading\nlock = threading.Lock()")
    async with agent(home, id) as opened:
        shown = await run(opened, "a")
    assert "Gone: gen (" in shown
    assert "generators and coroutines cannot be saved" in shown
    assert "lock (" in shown
    assert "Restored: a, threading." in shown
    (saved, _) = events(home, id, "snapshot_saved")
    assert set(saved.left_out) == {"gen", "lock"}


async def test_a_killed_kernel_is_followed_by_one_with_the_newest_snapshot(home: Path) -> None:
    async with agent(home, snapshot="turn") as opened:
        await run(opened, "a = 1\nb = [1]\nc = 3")
        pid = int(await run(opened, "import os\nos.getpid()"))
        os.kill(pid, signal.SIGKILL)
        shown = await run(opened, "a, b, c")
        assert "all names are as they were" in shown
        assert shown.endswith("(1, [1], 3)")


async def test_a_cell_that_dies_takes_along_what_was_bound_since_the_snapshot(home: Path) -> None:
    async with agent(home) as opened:
        id = opened.session
        await run(opened, "a = 1\nb = 2\nc = 3")
    async with agent(home, id) as opened:
        await run(opened, "a = 10\nnew = 5\ndel c")
        await run(opened, "import os\nos._exit(1)")
        shown = await run(opened, "a, b, c")
    assert re.search(r"a snapshot taken at entry \d+, 2 cells ago", shown)
    assert "Gone: new (bound after the snapshot)." in shown
    assert "Bound by later cells, and therefore older than you remember: a." in shown
    assert "Removed by later cells, and back: c." in shown
    assert shown.endswith("(1, 2, 3)")


async def test_a_turn_is_saved_at_its_end_and_a_fork_there_has_it(home: Path) -> None:
    provider = ScriptedProvider([{"code": "a = [1]"}, {"text": "one"}, {"code": "a.append(2)"}, {"text": "two"}])
    async with prime.Agent(provider, home=home, cwd=home.parent, snapshot="turn") as opened:
        await opened.ask("first")
        await opened.ask("second")
    ends = entries(home, opened.session, "turn_ended", "snapshot_saved")
    assert [entry.event.type for entry in ends] == ["turn_ended", "snapshot_saved"] * 2
    fork = Sessions(home).fork(opened.session)
    async with agent(home, fork) as opened:
        assert (await run(opened, "a")).endswith("[1, 2]")


async def test_without_a_snapshot_the_loss_is_told_as_ever(home: Path) -> None:
    id = await session(home, "a = 1", snapshot="off")
    assert files(home, id) == []
    async with agent(home, id) as opened:
        assert "names of earlier cells no longer exist. Gone: a." in await run(opened, "1")


async def test_a_session_without_variables_has_no_snapshot(home: Path) -> None:
    id = await session(home, "print(1)")
    assert files(home, id) == []
    assert events(home, id, "snapshot_saved", "snapshot_skipped") == []


async def test_a_fork_has_the_variables_of_its_parent_and_its_own_from_then_on(home: Path) -> None:
    id = await session(home, "a = [1]")
    fork = Sessions(home).fork(id)
    async with agent(home, fork) as opened:
        assert "all names are as they were" in await run(opened, "a.append(2)\nown = a")
    async with agent(home, id) as opened:
        assert (await run(opened, "a")).endswith("[1]")
    async with agent(home, fork) as opened:
        assert (await run(opened, "own")).endswith("[1, 2]")


async def test_a_fork_before_the_snapshot_has_none(home: Path) -> None:
    id = await session(home, "a = [1]")
    (seq,) = [entry.seq for entry in entries(home, id, "cell_ended")]
    fork = Sessions(home).fork(id, seq)
    assert files(home, fork) == []
    async with agent(home, fork) as opened:
        assert "Gone: a." in await run(opened, "1")


async def test_a_fork_whose_snapshot_is_gone_says_so(home: Path) -> None:
    id = await session(home, "a = [1]")
    (seq,) = [entry.seq for entry in entries(home, id, "snapshot_saved")]
    async with agent(home, id) as opened:
        await run(opened, "a = [2]")
    fork = Sessions(home).fork(id, seq)
    async with agent(home, fork) as opened:
        shown = await run(opened, "1")
    assert "could not be restored. Gone: a (its file cannot be read: No such file or directory)." in shown


async def test_only_the_newest_snapshot_is_kept(home: Path) -> None:
    id = await session(home, "a = 1")
    (first,) = files(home, id)
    assert first.stat().st_mode & 0o777 == 0o600
    assert (home / "snapshot.key").stat().st_mode & 0o777 == 0o600
    async with agent(home, id) as opened:
        await run(opened, "a = 2")
    (second,) = files(home, id)
    assert second != first


async def test_nothing_is_written_again_when_no_cell_has_run(home: Path) -> None:
    id = await session(home, "a = 1")
    before = files(home, id)
    async with agent(home, id):
        pass
    assert files(home, id) == before
    assert len(events(home, id, "snapshot_saved")) == 1


async def test_half_a_file_of_a_dead_process_is_deleted(home: Path) -> None:
    id = await session(home, "a = 1")
    (Sessions(home).folder(id) / ".0123.snapshot").touch()
    before = files(home, id)
    async with agent(home, id):
        assert files(home, id) == before[1:]


async def test_deleting_the_last_variable_is_remembered(home: Path) -> None:
    id = await session(home, "a = 1")
    async with agent(home, id) as opened:
        await run(opened, "del a")
    async with agent(home, id) as opened:
        assert "a = " not in await run(opened, "'a' in globals()")
        assert (await run(opened, "'a' in globals()")).endswith("False")


HOSTILE = {
    "cut": lambda data: data[:-1],
    "empty": lambda data: b"",
    "changed": lambda data: data[:10] + bytes([data[10] ^ 1]) + data[11:],
    "signed by somebody else": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "longer": lambda data: data + b"\x00",
}


@pytest.mark.parametrize("how", HOSTILE)
async def test_a_file_that_is_not_ours_is_refused_and_kept(how: str, home: Path) -> None:
    id = await session(home, "a = 1")
    (file,) = files(home, id)
    file.write_bytes(HOSTILE[how](file.read_bytes()))
    hostile = file.read_bytes()
    async with agent(home, id) as opened:
        shown = await run(opened, "b = 2\nb")
        assert "names of earlier cells could not be restored. Gone: a (its file " in shown
        assert shown.endswith("2")
    # also when a newer one was saved
    assert file.read_bytes() == hostile
    assert len(files(home, id)) == 2
    async with agent(home, id) as opened:
        assert (await run(opened, "b")).endswith("2")


async def test_the_key_of_another_user_refuses(home: Path) -> None:
    id = await session(home, "a = 1")
    (home / "snapshot.key").write_bytes(b"x" * 32)
    async with agent(home, id) as opened:
        assert "written by somebody else" in await run(opened, "1")


async def test_a_value_whose_loading_raises_is_missing_and_its_file_stays(home: Path) -> None:
    code = "class C:\n    def __setstate__(self, state): raise OSError('not today')\nbad = C()\nbad.x = 1\ngood = 5"
    id = await session(home, code)
    (file,) = files(home, id)
    async with agent(home, id) as opened:
        shown = await run(opened, "good")
        assert "bad (OSError: not today)" in shown
        assert shown.endswith("5")
    assert file in files(home, id)


async def test_a_value_whose_loading_ends_the_process_ends_only_the_restore(home: Path) -> None:
    code = "import os\nclass C:\n    def __setstate__(self, state): os._exit(3)\nbad = C()\nbad.x = 1\ngood = 5"
    id = await session(home, code)
    async with agent(home, id) as opened:
        shown = await run(opened, "6")
        assert "could not be restored. Gone: C (the kernel process ended by itself with exit code 3)" in shown
        assert shown.endswith("6")
    assert [event.generation for event in events(home, id, "kernel_started")] == [1, 2]


async def test_a_save_that_does_not_end_is_not_taken_and_the_log_says_so(home: Path) -> None:
    # it swallows every interrupt
    code = """
import time
class C:
    def __reduce__(self):
        while True:
            try:
                time.sleep(100)
            except BaseException:
                pass
bad = C()
"""
    id = await session(home, code)
    (skipped,) = events(home, id, "snapshot_skipped")
    assert "were not saved within 5 s" in skipped.reason
    assert files(home, id) == []


def test_several_processes_agree_on_one_key(tmp_path: Path) -> None:
    code = "import sys, pathlib; from prime.snapshots import _key; print(_key(pathlib.Path(sys.argv[1])).hex())"
    command = [sys.executable, "-c", code, str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert len({process.communicate()[0] for process in processes}) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["snapshot.key"]
