"""bash: real processes, their ends and their output."""

import asyncio
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from prime import guest
from prime.errors import ToolFailed
from prime.tools.bash import bash
from prime.tools.capture import HALF
from prime.tools.workspace import Workspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, guest.environment({**os.environ, "MARK": "given"}, ["MARK"]))


async def run(place: Workspace, command: str, **arguments: Any) -> Any:
    value = await bash.run(place, {"command": command, **arguments})
    assert bash.canonical(value) == value
    full = bash.validate({"command": command, **arguments})
    assert bash.for_model(full, value)
    assert "\n" not in bash.for_human(full, value)
    return value


async def refusal(place: Workspace, **arguments: Any) -> str:
    with pytest.raises(ToolFailed) as caught:
        await bash.run(place, arguments)
    return caught.value.code


async def test_both_streams_and_the_exit_code_are_values(place: Workspace):
    value = await run(place, "echo out; echo err >&2; exit 3")
    assert value.pop("duration_s") > 0
    assert value == {
        "exit_code": 3,
        "signal": None,
        "timed_out": False,
        "stdout": "out\n",
        "stderr": "err\n",
        "truncated": False,
    }
    assert bash.for_model({}, value) == "out\n[stderr]\nerr\n[exit code 3]"
    assert bash.for_human({"command": "x"}, {**value, "duration_s": 1.25}) == "$ x (exit code 3, 1.2 s)"
    assert bash.for_model({}, await run(place, "true")) == "[no output]"


async def test_it_is_bash_in_the_folder_asked_for(place: Workspace):
    (place.cwd / "sub").mkdir()
    value = await run(place, "[[ 1 == 1 ]] && pwd -P", cwd="sub")
    assert value["stdout"] == f"{(place.cwd / 'sub').resolve()}\n"
    assert await refusal(place, command="pwd", cwd="nowhere") == "not_found"


async def test_the_environment_is_what_was_given_and_asks_nobody(place: Workspace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CANARY_API_KEY", "secret")
    value = await run(place, "env")
    names = {line.partition("=")[0] for line in value["stdout"].splitlines()}
    assert {"MARK", "PATH", "PAGER", "GIT_TERMINAL_PROMPT"} <= names
    assert "CANARY_API_KEY" not in names
    assert (await run(place, "read line; echo $?"))["stdout"] == "1\n"
    assert (await run(place, "exec 3</dev/tty"))["exit_code"] != 0


async def test_a_shell_is_needed(tmp_path: Path):
    assert await refusal(Workspace(tmp_path, {"PATH": str(tmp_path)}), command="true") == "no_shell"
    os.symlink("/bin/sh", tmp_path / "sh")
    assert (await run(Workspace(tmp_path, {"PATH": str(tmp_path)}), "echo sh"))["stdout"] == "sh\n"


async def test_what_cannot_be_started_says_so(place: Workspace):
    assert await refusal(place, command="a\0b") == "bad_arguments"
    assert await refusal(place, command="x" * 3_000_000) == "not_started"
    assert await refusal(place, command="true", timeout_s=0) == "bad_arguments"


async def test_a_signal_is_named(place: Workspace):
    value = await run(place, "kill -SEGV $$")
    assert (value["exit_code"], value["signal"], value["timed_out"]) == (None, "SIGSEGV", False)
    assert bash.for_model({}, value) == "[ended by SIGSEGV]"


async def gone(pid: int) -> None:
    """Wait until the process has ended. Orphans are reaped by init, which may take it a moment."""
    async with asyncio.timeout(10):
        # not our child, so there is nothing to await
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_timeout_ends_everything_the_command_started(place: Workspace):
    value = await run(place, "sleep 60 & echo $!; sleep 60", timeout_s=0.3)
    assert (value["exit_code"], value["signal"], value["timed_out"]) == (None, "SIGTERM", True)
    assert bash.for_model({}, value).endswith("[timed out, ended by SIGTERM]")
    await gone(int(value["stdout"]))


async def test_a_command_that_will_not_end_is_killed(place: Workspace):
    value = await run(place, "trap '' TERM; echo $$; while :; do sleep 0.05; done", timeout_s=0.3)
    assert (value["signal"], value["timed_out"]) == ("SIGKILL", True)
    await gone(int(value["stdout"]))


async def test_cancelling_ends_everything_the_command_started(place: Workspace):
    os.mkfifo(place.cwd / "started")
    running = asyncio.create_task(bash.run(place, {"command": "sleep 60 & echo $! $$ > started; wait"}))
    pids = (await asyncio.to_thread((place.cwd / "started").read_text)).split()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    for pid in pids:
        await gone(int(pid))


def working_in(folder: Path) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == folder.resolve():
                found.append(process.pid)
        except psutil.Error:
            continue  # it ended meanwhile, or is somebody else's
    return found


@pytest.mark.parametrize("turns", range(12))
async def test_cancelling_leaves_nothing_whatever_the_moment(place: Workspace, turns: int):
    running = asyncio.create_task(bash.run(place, {"command": "sleep 60 & sleep 60 & wait"}))
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    for pid in working_in(place.cwd):
        await gone(pid)


async def test_a_program_left_in_the_background_is_not_waited_for_and_lives_on(place: Workspace):
    os.mkfifo(place.cwd / "go")
    async with asyncio.timeout(30):
        # it keeps both pipes, and writes to them after the command has ended
        value = await run(place, "(read < go; echo late; echo late >&2; echo done > end) & echo $!", timeout_s=60)
        assert value["timed_out"] is False
        pid = int(value["stdout"])
        assert psutil.pid_exists(pid)
        await asyncio.to_thread((place.cwd / "go").write_text, "now\n")
        await gone(pid)
    assert (place.cwd / "end").read_text() == "done\n"


async def test_a_background_program_that_never_stops_writing_holds_nobody_up(place: Workspace):
    async with asyncio.timeout(30):
        value = await run(place, "yes & echo $! >&2")
    os.kill(int(value["stderr"]), 9)
    await gone(int(value["stderr"]))


async def test_of_much_output_the_middle_is_left_out(place: Workspace):
    value = await run(place, "echo first; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo last; echo small >&2")
    assert value["truncated"]
    assert value["stdout"].startswith("first\nxxx")
    assert value["stdout"].endswith("x\nlast\n")
    left_out = 1_000_000 + len("first\n\nlast\n") - 2 * HALF
    assert f"\n[{left_out:,} bytes left out]\n" in value["stdout"]
    assert value["stderr"] == "small\n"


async def test_output_up_to_the_bound_is_whole_and_bytes_that_are_no_text_do_not_fail(place: Workspace):
    (place.cwd / "full").write_text("x" + "é" * (HALF - 1) + "x")
    value = await run(place, "cat full")
    assert value["stdout"] == "x" + "é" * (HALF - 1) + "x"
    assert not value["truncated"]
    assert (await run(place, "printf 'a\\377\\0b'"))["stdout"] == "a\ufffd\0b"


async def test_both_streams_are_read_at_once(place: Workspace):
    command = "for i in 1 2 3 4; do head -c 200000 /dev/zero >&2; head -c 200000 /dev/zero; done"
    assert (await run(place, command, timeout_s=60))["timed_out"] is False


async def test_commands_run_beside_each_other(place: Workspace):
    os.mkfifo(place.cwd / "pipe")
    reader = asyncio.create_task(run(place, "cat pipe"))
    await run(place, "echo through > pipe")
    assert (await reader)["stdout"] == "through\n"
