"""Terminals: real programs on real pseudo-terminals, driven as a model would."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from watch import happened, of

from prime import guest
from prime.errors import ToolFailed
from prime.jobs.commands import Jobs
from prime.jobs.numbers import Numbers
from prime.log import Log
from prime.messages import text_of
from prime.sessions import Sessions
from prime.terminals.commands import KEPT, Terminals
from prime.tools.workspace import Workspace

pytestmark = pytest.mark.anyio

#: Seconds in which any program shows what it should; none of the tests waits for them to pass.
LONG = 30
SHELL = "PS1='> ' exec bash --norc --noprofile"
PYTHON = f"{sys.executable} -i -q"


class Place:
    """A session with terminals, called as cells do: through the tools."""

    def __init__(self, log: Log, tools: Any, workspace: Workspace) -> None:
        self.log = log
        self.workspace = workspace
        self._tools = {tool.target.partition(".")[2].removeprefix("terminal_"): tool for tool in tools}

    async def call(self, target: str, *args: Any, **arguments: Any) -> Any:
        tool = self._tools[target]
        named = dict(zip((each.name for each in tool.binding().parameters), args, strict=False))
        full = tool.validate({**named, **arguments})
        value = await tool.run(self.workspace, full)
        assert tool.for_model(full, value)
        assert "\n" not in tool.for_human(full, value)
        return value

    async def opened(self, command: str, prompt: str | None, **arguments: Any) -> int:
        """Open a terminal and wait for what it shows first."""
        number = int((await self.call("open", command, **arguments))["terminal_id"])
        if prompt is not None:
            await self.shows(number, prompt)
        return number

    async def shows(self, terminal: int, until: str) -> Any:
        """Return what is shown once ``until`` was written."""
        value = await self.call("read", terminal, until=until, wait_s=LONG)
        assert value["waited"] == "matched", value
        return value

    async def typed(self, terminal: int, text: str, until: str, *keys: str) -> Any:
        """Type a text and Enter, or the given keys, and return what is shown then."""
        await self.call("send", terminal, text, keys=list(keys or ("enter",)))
        return await self.shows(terminal, until)


@contextlib.asynccontextmanager
async def session(home: Path, name: str | None = None) -> AsyncIterator[Place]:
    sessions = Sessions(home)
    with sessions.open(name) if name else sessions.create(home) as log:
        numbers = Numbers(log)
        jobs = Jobs(log, numbers, sessions.folder(log.session) / "jobs")
        async with jobs, Terminals(log, numbers) as terminals:
            workspace = Workspace(home, {**guest.environment(os.environ), "LANG": "C.UTF-8", "PS1": "> "})
            yield Place(log, (*terminals.tools(), jobs.tools()[0]), workspace)


@pytest.fixture
async def place(home: Path) -> AsyncIterator[Place]:
    async with session(home) as found:
        yield found


async def refusal(place: Place, target: str, *args: Any, **arguments: Any) -> str:
    with pytest.raises(ToolFailed) as caught:
        await place.call(target, *args, **arguments)
    return caught.value.code


async def test_a_python_prompt_is_driven_and_its_end_is_noticed(place: Place) -> None:
    number = await place.opened(PYTHON, ">>> ")
    seen = await place.typed(number, "print(6 * 7, __import__('os').isatty(0))", r"42 True\n")
    assert ">>> print(6 * 7" in seen["screen"]
    # the prompt that stands there already is not taken for the one to come
    seen = await place.typed(number, "import time; time.sleep(0.5); print('sl' + 'ept')", ">>> $")
    assert "slept" in seen["screen"]
    seen = await place.typed(number, "exit(3)", "exit")
    seen = await place.call("read", number, wait_s=LONG, until="never")
    assert (seen["waited"], seen["state"], seen["exit_code"]) == ("ended", "exited", 3)
    (ended,) = of(place.log, "job_ended")
    assert (ended.reason, ended.exit_code) == ("exited", 3)
    assert await refusal(place, "send", number, "x") == "not_running"


async def test_an_end_that_nobody_waits_for_is_told_and_wakes_nobody(place: Place) -> None:
    number = await place.opened(SHELL, "> ")
    await place.call("send", number, "exit 4", keys=["enter"])
    await happened(place.log, "job_ended")
    (told,) = place.log.state.inbox.pending
    assert ("exit code 4" in text_of(told.parts), told.wake, told.source) == (True, False, "terminals.1")
    await place.call("read", number, wait_s=1)
    assert place.log.state.inbox.pending == ()


async def test_ctrl_c_interrupts_what_runs_in_the_foreground(place: Place) -> None:
    number = await place.opened(SHELL, "> ")
    # in a group of its own before it says so
    await place.typed(number, "(echo star''ted; sleep 1000); echo after=$?", "started\n")
    seen = await place.typed(number, "", r"(after=130\n)?> $", "ctrl-c")
    assert "^C" in seen["screen"]
    await place.typed(number, "(echo star''ted; cat)", "started\n")
    await place.call("signal", number, "INT")
    await place.shows(number, "> $")
    assert (await place.typed(number, "echo $((40+2))", "42"))["state"] == "running"


@pytest.mark.skipif(shutil.which("less") is None, reason="there is no less")
async def test_a_pager_scrolls_its_own_screen(place: Place) -> None:
    (place.workspace.cwd / "text").write_text("".join(f"line {number}\n" for number in range(1, 201)))
    number = await place.opened("less text", "text", rows=10)
    seen = await place.call("read", number, wait_s=2)
    assert seen["alternate"]
    assert seen["screen"].startswith("line 1\n")
    assert "line 9" in seen["screen"]
    assert "line 10" not in seen["screen"]
    seen = await place.typed(number, "", "line 18", "pagedown")
    assert seen["screen"].startswith("line 10\n")
    seen = await place.typed(number, "", r"\(END\)", "G")
    assert "line 200" in seen["screen"]
    await place.call("send", number, "q")
    assert (await place.call("read", number, until="never", wait_s=LONG))["exit_code"] == 0


@pytest.mark.skipif(shutil.which("vim") is None, reason="there is no vim")
async def test_an_editor_is_driven_by_keys(place: Place) -> None:
    file = place.workspace.cwd / "note.txt"
    number = await place.opened("vim -N -u NONE -i NONE note.txt", "note.txt")
    await place.call("send", number, "ione", keys=["enter"])
    await place.call("send", number, "three", keys=["up", "end"])
    await place.call("send", number, keys=["enter", "t", "w", "o", "escape"])
    seen = await place.call("read", number, wait_s=5, quiet_s=0.5)
    assert seen["screen"].startswith("one\ntwo\nthree\n~")
    assert seen["row"] == 1
    await place.call("send", number, ":wq", keys=["enter"])
    assert (await place.call("read", number, until="never", wait_s=LONG))["exit_code"] == 0
    assert file.read_text() == "one\ntwo\nthree\n"


async def test_several_lines_are_pasted_as_one_text_where_that_is_known(place: Place) -> None:
    number = await place.opened(SHELL, "> ")
    await place.typed(number, "bind 'set enable-bracketed-paste on'; echo re''ady", r"\nready\n> $")
    await place.call("send", number, "echo one\necho t''wo")
    seen = await place.call("read", number, wait_s=3)
    assert "\none" not in seen["screen"]  # nothing ran yet
    assert "two" in (await place.typed(number, "", "two\n"))["screen"]
    cat = await place.opened("cat; echo end", None)
    assert (await place.typed(cat, "a\nb\n", "b\n+a?b|b", "ctrl-d"))["screen"].startswith("a\n")


async def test_lines_that_scroll_off_are_given_once(place: Place) -> None:
    number = await place.opened(SHELL, "> ", rows=5)
    seen = await place.typed(number, "seq 1 100; echo do''ne", "done")
    lines = seen["scrolled"].split("\n")
    assert lines[1:4] == ["1", "2", "3"]
    assert not seen["left_out"]
    assert "100" in seen["screen"]
    again = await place.call("read", number, wait_s=1)
    assert again["scrolled"] == ""
    assert "100" in again["screen"]


async def test_wide_and_combined_characters_have_their_places(place: Place) -> None:
    command = "printf '漢字ab\\r\\n😀e\\u0301x\\r\\n\\033[1;5HX'; sleep 1000"
    number = await place.opened(command, "X")
    seen = await place.call("read", number, wait_s=1)
    assert seen["screen"] == "漢字Xb\n😀éx" or seen["screen"] == "漢字Xb\n😀e\u0301x"
    assert (seen["row"], seen["col"]) == (0, 5)


async def test_a_screen_is_drawn_over_and_asked_for_its_cursor(place: Place) -> None:
    asks = (
        "import sys, termios, tty; tty.setcbreak(0); print('\\x1b[2J\\x1b[3;4Hhere\\x1b[6n', end='', flush=True); "
        "answer = ''.join(iter(lambda: sys.stdin.read(1), 'R')); print('\\x1b[2J\\x1b[H', repr(answer), 'over')"
    )
    number = await place.opened(f'{sys.executable} -c "{asks}"', "over")
    seen = await place.call("read", number, wait_s=1)
    assert seen["screen"].strip() == "'\\x1b[3;8' over"


async def test_the_program_is_told_of_a_new_size(place: Place) -> None:
    number = await place.opened("trap 'stty size; echo sized' WINCH; echo up; while true; do sleep 0.05; done", "up")
    await place.call("resize", number, 10, 44)
    seen = await place.shows(number, "sized")
    assert "10 44" in seen["screen"]
    assert (seen["rows"], seen["cols"]) == (10, 44)


async def test_a_flood_passes_and_leaves_nothing_behind(place: Place) -> None:
    number = await place.opened(SHELL, "> ")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen = await place.typed(number, "yes $(seq 1 30) | head -c 10000000; echo; echo do''ne", "done\n")
    assert seen["left_out"]
    assert len(seen["scrolled"]) < 500_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB
    assert (await place.typed(number, "echo $((40+2))", "42"))["state"] == "running"


async def test_a_program_that_does_not_read_is_reported(place: Place) -> None:
    number = await place.opened("stty raw -echo; echo up; exec sleep 1000", "up")
    assert await refusal(place, "send", number, "x" * 60_000) == "not_taken"


async def test_closing_ends_everything_of_the_session(place: Place) -> None:
    number = await place.opened(SHELL, "> ")
    seen = await place.typed(number, "trap '' HUP; (trap '' HUP; sleep 1000) & echo pid=$!.", r"pid=\d+\.")
    inner = int(seen["screen"].partition("\npid=")[2].partition(".")[0])
    closed = await place.call("close", number)
    assert (closed["state"], closed["signal"]) == ("killed", "SIGKILL")
    with contextlib.suppress(psutil.NoSuchProcess):
        assert psutil.Process(inner).status() == psutil.STATUS_ZOMBIE
    assert place.log.state.inbox.pending == ()
    assert await refusal(place, "read", number) == "gone"
    (listed,) = (await place.call("list"))["terminals"]
    assert listed["state"] == "killed"


async def test_terminals_and_jobs_share_their_numbers_and_end_with_the_session(home: Path) -> None:
    async with session(home) as place:
        started = await asyncio.gather(
            place.call("open", "cat"), place.call("start", "sleep 1000"), place.call("open", "cat")
        )
        pids = [each["pid"] for each in started]
    assert [event.job for event in of_jobs(home, place.log.session)] == [1, 2, 3]
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    async with session(home, place.log.session) as again:
        assert sorted(item.source or "" for item in again.log.state.inbox.pending) == [
            "jobs.2",
            "terminals.1",
            "terminals.3",
        ]
        assert await refusal(again, "read", 1) == "gone"


def of_jobs(home: Path, name: str) -> list[Any]:
    with Sessions(home).open(name) as log:
        return of(log, "job_started")


async def test_the_screens_of_the_last_programs_that_have_ended_are_kept(place: Place) -> None:
    for count in range(KEPT + 2):
        await place.call("open", f"echo {count}")
        await happened(place.log, "job_ended", count + 1)
    assert await refusal(place, "read", 1) == "gone"
    assert (await place.call("read", 2))["screen"] == "1"


async def test_what_is_wrong_is_said(place: Place) -> None:
    assert await refusal(place, "read", 1) == "not_found"
    number = await place.opened("cat", None)
    assert await refusal(place, "send", number, keys=["entr"]) == "bad_arguments"
    assert await refusal(place, "read", number, until="(") == "bad_arguments"
    assert await refusal(place, "open", cwd="nowhere") == "not_found"
