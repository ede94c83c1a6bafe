"""Looking into a session from another process: real commands, and a socket that anyone of this user may write to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from command import COMMAND, environment, objects, prime, script

from prime import peek
from prime.errors import LogError, SessionNotOpen
from prime.repl.signals import Inspection
from prime.sessions import Sessions

INSPECTION = Inspection(1, "/nowhere/kernel.json", None, None, (), True, (), 0, ())

LOOP = """
import os
rows = []
def fill():
    while not os.path.exists({go!r}):
        rows.append(0)
        del rows[10:]
print('ready', flush=True)
fill()
len(rows)
"""
SLEEP = "import os, time\nprint('ready', flush=True)\nwhile not os.path.exists({go!r}): time.sleep(0.05)\n'slept'"


@contextlib.contextmanager
def at_work(home: Path, code: str) -> Iterator[subprocess.Popen[str]]:
    """Have a scripted model run a cell in a process of its own, which is past its first output in the block."""
    model = script(home, {"code": code}, {"text": "Done."})
    command = [*COMMAND, "run", "Go", "-m", model, "--json"]
    with subprocess.Popen(command, env=environment(home), stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert any('"cell_output"' in line for line in running.stdout)  # reads no further than that
            yield running
        finally:
            running.kill()


def rest(running: subprocess.Popen[str]) -> list[dict[str, Any]]:
    assert running.stdout is not None
    return objects(running.stdout.read())


@pytest.mark.parametrize(
    ("code", "place", "names", "result"),
    [
        (LOOP, "cell 1 line 8: fill()", ("rows: list[", "fill: function"), "10"),
        (SLEEP, "cell 1 line 3: while not os.path.exists(", ("time: module",), "'slept'"),
    ],
    ids=["loop", "sleep"],
)
def test_another_process_sees_names_place_and_time_and_disturbs_nothing(
    home: Path, code: str, place: str, names: tuple[str, ...], result: str
) -> None:
    go = home / "go"
    with at_work(home, code.format(go=str(go))) as running:
        seen = prime(home, "sessions", "show", "last", "--live")
        as_json = json.loads(prime(home, "sessions", "show", "last", "--live", "--json").stdout)
        go.touch()
        ended = rest(running)
        assert running.wait() == 0
    assert (seen.returncode, seen.stderr) == (0, "")
    assert seen.stdout.startswith("a cell runs for ")
    assert place in seen.stdout
    for name in names:
        assert name in seen.stdout
    assert as_json["answered"]
    assert as_json["elapsed_s"] > 0
    (cell,) = [one for one in ended if one["type"] == "cell_ended"]
    assert cell["status"] == "ok"
    assert result in cell["shown"][0]["text"]


def test_the_connection_file_is_named_while_the_session_is_open(home: Path) -> None:
    go = home / "go"
    with at_work(home, SLEEP.format(go=str(go))) as running:
        found = Path(prime(home, "sessions", "show", "last", "--connection").stdout.strip())
        assert json.loads(found.read_text())["transport"] == "ipc"
        assert found.stat().st_mode & 0o077 == 0
        assert found.parent.stat().st_mode & 0o077 == 0
        go.touch()
        rest(running)
    closed = prime(home, "sessions", "show", "last", "--connection")
    assert closed.returncode == 1
    assert "no process holds session" in closed.stderr
    assert not found.exists()


def test_a_session_that_nobody_holds_says_so_also_after_its_owner_was_killed(home: Path) -> None:
    with at_work(home, SLEEP.format(go=str(home / "go"))) as running:
        running.send_signal(signal.SIGKILL)
        running.wait()
        for _ in range(2):
            seen = prime(home, "sessions", "show", "last", "--live")
            assert seen.returncode == 1
            assert seen.stdout == ""
            assert "error: no process holds session" in seen.stderr
    goes_on = prime(home, "cell", "-s", "last", "-c", "1 + 1")
    assert goes_on.returncode == 0
    assert goes_on.stdout.endswith("2\n")
    both = prime(home, "sessions", "show", "last", "--live", "--connection")
    assert both.returncode == 2 or "not both" in both.stderr


async def inspect() -> Inspection:
    return INSPECTION


@pytest.fixture
async def window(tmp_path: Path) -> AsyncIterator[Path]:
    """A session's folder that can be looked into."""
    async with peek.answering(tmp_path, inspect):
        yield tmp_path


def asked(folder: Path, data: bytes) -> str:
    """Send bytes to the owner of a session and return what it answers."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(peek.address(folder)))
        answer = b""
        with contextlib.suppress(ConnectionError):  # turned away in the middle of it
            connection.sendall(data)
            while piece := connection.recv(65_536):
                answer += piece
    return answer.decode()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"inspect\n",
        b'{"request": "kill"}\n',
        b'{"request": "inspect", "more": 1}\n',
        b'{"request": ["inspect"]}\n',
        b"\xff\xfe\n",
        b"[" * 200 + b"\n",
        b'{"request": "inspect"' + b" " * 1_000 + b"}\n",
        b"x" * 5_000_000,
    ],
    ids=["nothing", "no JSON", "another", "more", "a list", "no text", "nested", "long", "endless"],
)
async def test_anything_but_the_one_request_is_refused_and_the_next_one_is_answered(window: Path, data: bytes) -> None:
    answer = await asyncio.to_thread(asked, window, data)
    assert answer == "" or json.loads(answer)["error"].startswith("the only request is")
    assert answer or len(data) > 1_000_000
    assert await asyncio.to_thread(peek.look, window) == INSPECTION


@pytest.mark.anyio
async def test_connections_that_ask_nothing_do_not_keep_others_out_for_ever(
    tmp_path: Path,
) -> None:
    silent = [socket.socket(socket.AF_UNIX) for _ in range(20)]

    def until_turned_away() -> None:
        for connection in silent:
            connection.settimeout(20)
            assert connection.recv(1) == b""
            connection.close()

    async with peek.answering(tmp_path, inspect, timeout_s=0.5):
        for connection in silent:
            connection.connect(str(peek.address(tmp_path)))
        await asyncio.to_thread(until_turned_away)
        assert await asyncio.to_thread(peek.look, tmp_path) == INSPECTION


@pytest.mark.anyio
async def test_the_socket_is_gone_with_the_owner(tmp_path: Path) -> None:
    async def no_kernel() -> None:
        return None

    async with peek.answering(tmp_path, no_kernel):
        assert await asyncio.to_thread(peek.look, tmp_path) is None
    assert not peek.address(tmp_path).exists()
    with pytest.raises(SessionNotOpen, match="no process holds session"):
        await asyncio.to_thread(peek.look, tmp_path)


@pytest.mark.anyio
async def test_a_folder_whose_path_is_too_long_for_a_socket_can_be_looked_into(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()

    async with peek.answering(folder, inspect):
        assert peek.address(folder).parent == Path(f"/tmp/prime-repl-{os.getuid()}")
        assert await asyncio.to_thread(peek.look, folder) == INSPECTION


@pytest.mark.anyio
async def test_an_owner_that_answers_nonsense_is_an_error_of_one_line(tmp_path: Path) -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"{}}")
        writer.close()

    server = await asyncio.start_unix_server(nonsense, peek.address(tmp_path))
    try:
        with pytest.raises(LogError, match="does not answer as it should"):
            await asyncio.to_thread(peek.look, tmp_path)
    finally:
        server.close()


def test_sessions_folders_are_private(home: Path) -> None:
    sessions = Sessions(home)
    with sessions.create(home) as log:
        assert sessions.folder(log.state.session).stat().st_mode & 0o077 == 0
