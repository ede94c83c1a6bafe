"""What cells and commands start does not outlive its owner, in real processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import psutil
import pytest

from prime import reaper
from prime.agent import Agent
from prime.app import running
from prime.config import Config
from prime.guest import environment
from prime.providers.scripted import ScriptedProvider
from prime.reaper import Mark
from prime.sessions import Sessions

pytestmark = pytest.mark.anyio

#: Each starts a process that writes its number to a file of its name and stays.
STARTS = {
    "child": "subprocess.Popen(['sh', '-c', 'echo $$ > child; exec sleep 600'])",
    "detached": "subprocess.Popen(['sh', '-c', 'echo $$ > detached; exec sleep 600'], start_new_session=True)",
    "orphan": "subprocess.run(['sh', '-c', 'sleep 600 & echo $! > orphan'], start_new_session=True)",
    "deaf": "subprocess.Popen(['sh', '-c', 'trap \"\" TERM; echo $$ > deaf; sleep 600 & wait; sleep 600'], "
    "start_new_session=True)",
    "bare": "subprocess.Popen(['env', '-i', 'sh', '-c', 'echo $$ > bare; exec sleep 600'], start_new_session=True)",
    "unmarked": "kept = dict(os.environ); os.environ.clear()\n!sleep 600 & echo $! > unmarked\nos.environ.update(kept)",
    "left": "await tools.bash(command='sleep 600 & echo $! > left')",
    "gone_far": "await tools.bash(command='setsid sh -c \"sleep 600 & echo \\\\$! > gone_far\"')",
}
#: Those that the host starts, for the kernel.
OF_TOOLS = {"left", "gone_far"}

START_ALL = "\n".join(
    [
        "import os, pathlib, subprocess, time",
        "pathlib.Path('kernel').write_text(str(os.getpid()))",
        *STARTS.values(),
        f"while not all(os.path.exists(n) and os.path.getsize(n) for n in {list(STARTS)}): time.sleep(0.01)",
    ]
)

Open = Callable[..., AbstractAsyncContextManager[Agent]]


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """Where everything runs. A test that fails leaves nothing there either."""
    folder = tmp_path / "work"
    folder.mkdir()
    yield folder
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder):
                process.kill()
        except psutil.Error:
            continue  # it ended while it was looked at, or belongs to somebody else


@pytest.fixture
def opened(home: Path, work: Path) -> Open:
    """Open a session that works in ``work``."""

    @asynccontextmanager
    async def session(name: str | None = None) -> AsyncIterator[Agent]:
        config = Config(home=home, guest_environment=environment(os.environ))
        async with running(config, work, ScriptedProvider([]), session=name) as agent:
            yield agent

    return session


async def run(agent: Agent, code: str) -> None:
    ended = await agent.cell(code)
    assert ended.status == "ok", ended


def started(work: Path) -> dict[str, psutil.Process]:
    return {name: psutil.Process(int((work / name).read_text())) for name in ("kernel", *STARTS)}


def alive(processes: dict[str, psutil.Process]) -> set[str]:
    return {
        name for name, process in processes.items() if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    }


def until_gone(processes: dict[str, psutil.Process], timeout_s: float) -> set[str]:
    """Wait until none is alive, and return those that are after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while (left := alive(processes)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


async def test_the_end_of_a_session_ends_whatever_it_started(opened: Open, work: Path) -> None:
    async with opened() as agent:
        await run(agent, START_ALL)
        processes = started(work)
        assert alive(processes) == processes.keys()
    assert alive(processes) == set()


async def test_the_end_of_a_kernel_ends_what_it_started_and_nothing_else(opened: Open, work: Path) -> None:
    async with opened() as agent:
        await run(agent, START_ALL)
        processes = started(work)
        stopping = "import time\nwhile True:\n    try: time.sleep(60)\n    except BaseException: pass"
        running = asyncio.ensure_future(agent.cell(stopping))
        await asyncio.sleep(0)
        while not running.done():
            agent.interrupt()
            await asyncio.sleep(0.05)
        assert (await running).status == "killed"
        assert alive(processes) == OF_TOOLS
        assert (await agent.cell("1")).status == "ok"


async def test_a_kernel_that_dies_leaves_only_what_hides_from_it(opened: Open, work: Path) -> None:
    async with opened() as agent:
        await run(agent, START_ALL)
        processes = started(work)
        assert (await agent.cell("os.kill(os.getpid(), 9)")).status == "died"
        # without its environment and without its parent, nothing tells whose it is
        assert alive(processes) - {"bare"} == OF_TOOLS


HOST = """
import asyncio, os, sys
from pathlib import Path
from prime.app import running
from prime.config import Config
from prime.guest import environment
from prime.providers.scripted import ScriptedProvider

async def main():
    config = Config(home=Path(sys.argv[1]), guest_environment=environment(os.environ))
    async with running(config, Path(sys.argv[2]), ScriptedProvider([])) as agent:
        ended = await agent.cell(sys.argv[3])
        print(ended.status, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture
def host(home: Path, work: Path) -> Iterator[subprocess.Popen[str]]:
    """A host with everything started."""
    command = [sys.executable, "-c", HOST, str(home), str(work), START_ALL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ok\n"
        yield process
        process.kill()


def test_a_killed_host_leaves_nothing_even_with_a_kernel_that_is_stuck(host: subprocess.Popen[str], work: Path) -> None:
    processes = started(work)
    processes["kernel"].suspend()
    guards = psutil.Process(host.pid).children()
    host.kill()
    assert until_gone(processes, 5) == set()
    assert until_gone({str(each.pid): each for each in guards}, 5) == set()


async def test_a_host_inside_a_cell_ends_with_what_it_started(opened: Open, work: Path, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    command = [sys.executable, "-c", HOST, str(inner), str(work), START_ALL]
    async with opened() as agent:
        await run(
            agent,
            f"import subprocess\nhost = subprocess.Popen({command}, stdout=subprocess.PIPE, text=True)\n"
            "assert host.stdout.readline() == 'ok\\n'",
        )
        processes = started(work)
        assert alive(processes) == processes.keys()
    assert until_gone(processes, 5) - {"bare"} == set()


async def test_opening_a_session_ends_what_a_dead_host_left(
    host: subprocess.Popen[str], home: Path, work: Path, opened: Open
) -> None:
    processes = started(work)
    for child in psutil.Process(host.pid).children():
        if child.pid != processes["kernel"].pid:
            child.kill()  # its guard
    host.kill()
    host.wait()
    assert until_gone({"kernel": processes["kernel"]}, 5) == set()
    assert alive(processes) >= OF_TOOLS
    (session,) = Sessions(home).ids()
    async with opened(session):
        assert alive(processes) - {"bare"} == set()


def _sleeper(**variables: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"], env={**os.environ, **variables}, start_new_session=True)


def test_only_the_very_mark_counts() -> None:
    mark = Mark("PRIME_TEST_MARK", f"/a/{os.getpid()}")
    ours = _sleeper(PRIME_TEST_MARK=mark.value)
    others = [_sleeper(), _sleeper(PRIME_TEST_MARK=f"{mark.value}0"), _sleeper(PRIME_TEST_MARKS=mark.value)]
    try:
        reaper.end(mark)
        assert ours.wait() == -signal.SIGTERM
        assert [each.poll() for each in others] == [None] * 3
    finally:
        for each in (ours, *others):
            each.kill()
            each.wait()


def test_a_number_that_was_given_to_another_process_means_nothing(caplog: pytest.LogCaptureFixture) -> None:
    gone = _sleeper()
    known = psutil.Process(gone.pid)
    gone.kill()
    gone.wait()
    successor = _successor(known)
    try:
        reaper.end(Mark("PRIME_TEST_MARK", f"/b/{os.getpid()}"), {known})
        assert successor.poll() is None
        assert caplog.records == []
    finally:
        successor.kill()
        successor.wait()


def _successor(gone: psutil.Process) -> subprocess.Popen[bytes]:
    """Start a process that gets the number of one that has ended, in a later tick of the system's clock."""
    last = Path("/proc/sys/kernel/ns_last_pid")
    for _ in range(100):
        try:
            last.write_text(str(gone.pid - 1))
        except OSError:
            break
        found = _sleeper()
        if found.pid == gone.pid and psutil.Process(found.pid) != gone:
            return found
        found.kill()
        found.wait()
    pytest.skip("this system does not let a test choose the number of a process")


async def test_a_block_that_fails_is_cleaned_up_too(tmp_path: Path) -> None:
    mark = Mark("PRIME_TEST_MARK", str(tmp_path))
    left = _sleeper(PRIME_TEST_MARK=mark.value)
    inside = []

    async def fail() -> None:
        async with reaper.guarding(mark):
            assert left.wait() == -signal.SIGTERM
            inside.append(_sleeper(PRIME_TEST_MARK=mark.value))
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert inside[0].wait() == -signal.SIGTERM


async def test_a_guard_that_was_killed_is_no_fault(tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    async with reaper.guarding(Mark("PRIME_TEST_MARK", str(tmp_path))):
        for guard in set(psutil.Process().children()) - before:
            guard.kill()
    assert set(psutil.Process().children()) <= before


async def test_a_copy_of_a_session_is_another_owner(opened: Open, home: Path, work: Path) -> None:
    async with opened() as agent:
        await run(agent, START_ALL)
        processes = started(work)
        copy = f"{agent.session}-copy"
        shutil.copytree(home / "sessions" / agent.session, home / "sessions" / copy)
        (home / "sessions" / copy / "owner.json").unlink()
        async with opened(copy):
            assert alive(processes) == processes.keys()
        assert alive(processes) == processes.keys()
