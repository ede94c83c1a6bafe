"""The sandbox around real kernels, commands and tools: what gets out of it, and what must go on working inside."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from command import COMMAND, environment
from prime_kernel.marks import SESSION

from prime import guest
from prime.app import Workshop, workshop
from prime.bubblewrap import Bubblewrap, Wanted, bubblewrapped
from prime.config import Config
from prime.errors import ConfigError, ToolFailed
from prime.events import CellEnded
from prime.messages import text_of
from prime.sessions import Sessions
from prime.tools.files import replace
from prime.tools.workspace import Workspace

if shutil.which("bwrap") is None:
    # .ci/run installs it, so that there nothing is left out
    pytest.skip("bubblewrap is not installed", allow_module_level=True)

pytestmark = pytest.mark.anyio

SECRET = "canary-5f2c9d"


@dataclass(frozen=True)
class Victim:
    """What a cell must not reach: a process of the host, a listening socket, a key, and a file of somebody else's."""

    process: subprocess.Popen[bytes]
    listener: socket.socket
    key: Path
    file: Path

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    folder = tmp_path_factory.mktemp("host")
    file = folder / "file"
    file.write_text("untouched")
    key = Path.home() / f".prime-repl-test-{os.getpid()}"
    key.write_text(SECRET)
    environment = {**os.environ, "CANARY": SECRET}
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        subprocess.Popen(["sleep", "600"], env=environment) as process,
    ):
        try:
            yield Victim(process, listener, key, file)
        finally:
            process.kill()
            key.unlink()


@asynccontextmanager
async def shop(home: Path, cwd: Path, session: str | None = None, **options: Any) -> AsyncIterator[Workshop]:
    os.makedirs(cwd, exist_ok=True)
    host = {**os.environ, "CANARY": SECRET, "SOME_API_KEY": SECRET}
    config = Config(home=home, guest_environment=guest.environment(host), **{"sandbox": "full", **options})
    async with workshop(config, cwd, session=session) as opened:
        yield opened


async def cell(opened: Workshop, code: str) -> CellEnded:
    return await opened.cells.run(code, None, asyncio.Event())


async def said(opened: Workshop, code: str) -> str:
    ended = await cell(opened, code)
    assert ended.status == "ok", text_of(ended.shown)
    return text_of(ended.shown)


#: Ways out, as Python: each says OUT if it got there. The names in braces are filled in.
ESCAPES = {
    "write": "open({file!r}, 'w').write('x'); print('OUT')",
    "remove": "import os; os.remove({file!r}); print('OUT')",
    "read a key": "print('OUT', open({key!r}).read())",
    "list the data directory": "import os; print('OUT' * len(os.listdir({home!r})))",
    "connect": "import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('OUT')",
    "kill": "import os; os.kill({pid}, 9); print('OUT')",
    "ptrace": "import ctypes; print('OUT' if ctypes.CDLL(None).ptrace(16, {pid}, 0, 0) == 0 else 'no')",
    "memory": "open('/proc/{pid}/mem', 'rb'); print('OUT')",
    "environment": "print('OUT', open('/proc/{pid}/environ').read())",
    "remount": "import subprocess; subprocess.run(['mount', '-o', 'remount,rw', '/'], check=True); print('OUT')",
    "setting of the machine": "open('/proc/sys/kernel/core_pattern', 'r+'); print('OUT')",
    "device": "import os; os.mknod('disk', 0o060600, os.makedev(8, 0)); open('disk', 'rb'); print('OUT')",
}
#: How a cell may go about it: itself, or with a program that a command or a tool starts.
ROUTES = {
    "cell": "try:\n    exec({source!r})\nexcept BaseException as error:\n    print(type(error).__name__)",
    "command": "!{python} -c {quoted} 2>&1",
    "tool": "r = await tools.bash({shell!r})\nprint(r.stdout, r.stderr)",
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


async def test_there_is_no_way_out(shared_home: Path, tmp_path: Path, victim: Victim) -> None:
    places = {
        "file": str(victim.file),
        "key": str(victim.key),
        "home": str(shared_home),
        "port": victim.port,
        "pid": victim.process.pid,
    }
    async with shop(shared_home, tmp_path / "work") as opened:
        for escape, source in ESCAPES.items():
            quoted = "'" + source.format(**places).replace("'", '"') + "'"
            words = {"source": source.format(**places), "python": sys.executable, "quoted": quoted}
            words["shell"] = f"{sys.executable} -c {quoted}"
            for route, way in ROUTES.items():
                ended = await cell(opened, way.format(**words))
                shown = text_of(ended.shown)
                assert "OUT" not in shown, (escape, route)
                assert SECRET not in shown, (escape, route)
                assert "SyntaxError" not in shown, (escape, route)
    assert victim.process.poll() is None
    assert victim.file.read_text() == "untouched"
    victim.listener.settimeout(0)
    with pytest.raises(BlockingIOError):
        victim.listener.accept()


async def test_tools_of_the_host_have_the_same_view(shared_home: Path, tmp_path: Path, victim: Victim) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "link").symlink_to(victim.file)
    calls = {
        "tools.write(path='/etc/prime-repl-test', content='x')": "denied",
        "tools.write(path='link', content='x')": "denied",
        "tools.read(path='link')": "denied",
        f"tools.read(path={str(victim.key)!r})": "not_found",
        f"tools.read(path={str(shared_home / 'snapshot.key')!r})": "denied",
        "tools.grep('canary', path='/')": "denied",
        f"tools.glob('*', path={str(shared_home)!r})": "denied",
        f"tools.bash('pwd', cwd={str(shared_home)!r})": "denied",
    }
    async with shop(shared_home, work) as opened:
        for call, code in calls.items():
            shown = await said(
                opened, f"try:\n    print(await {call})\nexcept ToolCallError as error: print(error.code)"
            )
            assert shown == code, call
        # what a cell has put into the home and /tmp of the sandbox, tools find under the same names, and conversely
        for folder in ("~", "/tmp"):
            await said(opened, f"import os; open(os.path.expanduser('{folder}/by-cell'), 'w').write('1');")
            assert await said(opened, f"print((await tools.read(path='{folder}/by-cell')).text)") == "1"
            await said(opened, f"await tools.write(path='{folder}/by-tool', content='2');")
            assert await said(opened, f"!cat {folder}/by-tool") == "2"
            assert await said(opened, f"print((await tools.bash('cat {folder}/by-tool')).stdout)") == "2"
        assert await said(opened, "print((await tools.write(path='~/new', content='3')).path)") == f"{Path.home()}/new"
        await said(opened, "await tools.write(path='mine', content='4');")
    assert (work / "mine").read_text() == "4"
    assert not (Path.home() / "new").exists()
    assert victim.file.read_text() == "untouched"


async def test_a_secret_of_the_host_is_nowhere(tmp_path: Path, victim: Victim) -> None:
    home = tmp_path / "home"
    look = "import glob\nfor path in glob.glob('/proc/[0-9]*/environ'): print(open(path, errors='replace').read())"
    async with shop(home, tmp_path / "work") as opened:
        for code in (look, "import os; dict(os.environ)", "!env", "print((await tools.bash('env')).stdout)"):
            assert SECRET not in await said(opened, code)
        await said(opened, "print('x' * 100_000)")  # over what is shown and over what fits in a row
    session = Sessions(home).ids()[0]
    files = [path for path in Sessions(home).folder(session).rglob("*") if path.is_file()]
    assert any(path.suffix == ".snapshot" for path in files)
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


async def test_variables_and_the_level_in_force_are_kept(home: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    async with shop(home, work) as opened:
        await said(opened, "x = [1, 2]\ndef f(): return sum(x)")
        (started,) = opened.log.entries(types=("kernel_started",))
        assert started.event.sandbox == "full"
        assert psutil.pid_exists(started.event.pid)
        session = opened.log.session
    async with shop(home, work, session) as opened:
        assert (await said(opened, "f()")).splitlines()[-1] == "3"


async def test_what_goes_on_inside_can_be_seen_and_stopped(home: Path, tmp_path: Path) -> None:
    async with shop(home, tmp_path / "work") as opened:
        await said(opened, "x = 1")
        repl = opened.cells.repl
        for code in (
            "import time; time.sleep(60)",
            "await asyncio.sleep(60)",
            "!sleep 60",
            "await tools.bash('sleep 60')",
        ):
            cancel = asyncio.Event()
            running = asyncio.create_task(opened.cells.run(f"import asyncio\n{code}", None, cancel))
            while (seen := await repl.inspect()) is None or not (seen.stack or seen.calls):  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert "x" in [name.name for name in seen.names]
            cancel.set()
            ended = await asyncio.wait_for(running, 10)
            assert (ended.status, ended.generation) == ("interrupted", 1)
        assert await said(opened, "x") == "1"


async def test_jobs_are_inside_too(home: Path, tmp_path: Path, victim: Victim) -> None:
    async with shop(home, tmp_path / "work") as opened:
        source = ESCAPES["connect"].format(port=victim.port)
        code = f"job = await jobs.start({f'{sys.executable} -c {source!r}; touch /etc/x; ls ~'!r})\n"
        shown = await said(opened, f"{code}print((await jobs.output(job.job_id, wait_s=60)).text)")
        assert "ConnectionRefusedError" in shown
        assert "Read-only file system" in shown
        await said(opened, "job = await jobs.start('sleep 613')\nprint(await jobs.kill(job.job_id))")
        assert not any("613" in process.cmdline() for process in psutil.process_iter() if _marked(process, home))


async def test_an_idle_kernel_is_ended_and_its_variables_come_back(home: Path, tmp_path: Path) -> None:
    async with shop(home, tmp_path / "work", kernel_idle_s=0.3) as opened:
        assert await said(opened, "kept = 5\nkept") == "5"
        (started,) = opened.log.entries(types=("kernel_started",))
        await asyncio.to_thread(psutil.Process(started.event.pid).wait, 20)
        assert (await said(opened, "kept")).splitlines()[-1] == "5"


async def test_what_a_session_started_ends_with_it(home: Path, tmp_path: Path) -> None:
    async with shop(home, tmp_path / "work") as opened:
        await said(opened, "!setsid sleep 611 >/dev/null 2>&1 &")
        await said(opened, "await tools.bash('setsid sleep 612 >/dev/null 2>&1 &');")
        mine = [process for process in psutil.process_iter() if _marked(process, home)]
        assert sum("sleep" in process.name() for process in mine) == 2
    assert [process for process in mine if process.is_running() and process.status() != psutil.STATUS_ZOMBIE] == []


def _marked(process: psutil.Process, home: Path) -> bool:
    try:
        return process.environ().get(SESSION, "").startswith(str(home))
    except psutil.Error:
        return False


async def test_what_is_asked_for_besides_is_shown(home: Path, tmp_path: Path, victim: Victim) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    options = {"sandbox_read": (victim.key,), "sandbox_write": (extra,), "sandbox_network": True}
    async with shop(home, tmp_path / "work", **options) as opened:
        key = repr(str(victim.key))
        await said(opened, f"open({str(extra / 'a')!r}, 'w').write('1');")
        await said(opened, f"import socket; socket.create_connection(('127.0.0.1', {victim.port}), 5).close()")
        assert await said(opened, f"print(open({key}).read())") == SECRET
        assert await said(opened, f"print((await tools.read(path={key})).text)") == SECRET
        write = f"await tools.write(path={key}, content='')"
        assert await said(opened, f"try:\n    {write}\nexcept ToolCallError as error: print(error.code)") == "denied"
    victim.listener.settimeout(5)
    victim.listener.accept()[0].close()


async def test_net_off_only_cuts_the_network_and_other_processes(home: Path, tmp_path: Path, victim: Victim) -> None:
    async with shop(home, tmp_path / "work", sandbox="net-off") as opened:
        assert await said(opened, f"print(open({str(victim.key)!r}).read())") == SECRET
        for escape in ("connect", "kill", "ptrace", "memory", "setting of the machine"):
            source = ESCAPES[escape].format(port=victim.port, pid=victim.process.pid)
            shown = text_of((await cell(opened, ROUTES["cell"].format(source=source))).shown)
            assert "OUT" not in shown, escape
    assert victim.process.poll() is None


@pytest.mark.parametrize("cwd", [Path("/"), Path.home(), Path("/tmp")])
async def test_a_workspace_that_holds_what_is_hidden_is_refused(home: Path, cwd: Path) -> None:
    with pytest.raises(ConfigError, match=r"the sandbox hides .* work in a"):
        async with shop(home, cwd):
            pass


async def test_a_kernel_is_not_forked_into_it(home: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="kernel_template"):
        async with shop(home, tmp_path / "work", kernel_template=True):
            pass


async def test_one_that_does_not_work_is_an_error(tmp_path: Path) -> None:
    wanted = Wanted("full", tmp_path, tmp_path / "home", str(tmp_path / "python"), {})
    with pytest.raises(ConfigError, match="python does not run"):
        async with bubblewrapped(wanted):
            pass
    gone = Wanted("full", tmp_path / "gone", tmp_path / "home", sys.executable, {})
    with pytest.raises(ConfigError, match=r"the sandbox cannot be set up here .*gone"):
        async with bubblewrapped(gone):
            pass


def test_without_bubblewrap_nothing_runs(home: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    program = shutil.which("bwrap")
    assert program is not None
    hidden = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", "/dev/null", program]
    command = [*hidden, *COMMAND, "cell", "--sandbox", "full", "-c", "print('ran')"]
    ran = subprocess.run(command, cwd=work, env=environment(home), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error: the sandbox needs bwrap; `apt install bubblewrap`")
    assert ran.stderr.count("\n") == 1


async def test_a_signal_to_the_group_reaches_the_command_alone(tmp_path: Path) -> None:
    sandbox = Bubblewrap(Wanted("net-off", tmp_path, tmp_path, sys.executable, {}))
    workspace = Workspace(tmp_path, sandbox=sandbox)
    script = "trap 'echo asked; exit 7' TERM; echo ready; while :; do sleep 0.01; done"
    process = await asyncio.create_subprocess_exec(
        *workspace.command(("/bin/sh", "-c", script), tmp_path), stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    os.killpg(process.pid, signal.SIGTERM)
    assert await process.stdout.read() == b"asked\n"
    assert await process.wait() == 7


async def test_what_was_checked_is_what_is_used(tmp_path: Path) -> None:
    work, data, host = (tmp_path / name for name in ("work", "data", "host"))
    for folder in (work / "folder", data, host):
        folder.mkdir(parents=True)
        (folder / "file").write_text(f"of {folder.name}")

    def swap() -> None:
        """Put a link to the host's folder in the place of the workspace's, as a cell can at any moment."""
        (work / "folder").rename(work / "moved")
        (work / "folder").symlink_to(host)

    def unswap() -> None:
        (work / "folder").unlink()
        (work / "moved").rename(work / "folder")

    async with bubblewrapped(Wanted("full", work, data, sys.executable, {"PATH": os.environ["PATH"]})) as sandbox:
        workspace = Workspace(work, sandbox=sandbox)
        found = workspace.resolve("folder/file")
        with workspace.reading(found) as place:
            swap()
            assert place.read_text() == "of folder"
        with pytest.raises(ToolFailed, match="hidden by the sandbox"), workspace.reading(found):
            pass
        with pytest.raises(ToolFailed, match="hidden by the sandbox"), workspace.writing(found):
            pass
        unswap()
        with workspace.writing(found) as place:
            swap()
            replace(place, b"changed")
        unswap()
        with workspace.writing(workspace.resolve("folder/new/deep/file")) as place:
            (work / "folder" / "new").rename(work / "folder" / "old")
            (work / "folder" / "new").symlink_to(host)
            replace(place, b"new")
    assert (host / "file").read_text() == "of host"
    assert sorted(host.iterdir()) == [host / "file"]
    assert (work / "folder" / "file").read_text() == "changed"
    assert (work / "folder" / "old" / "deep" / "file").read_text() == "new"


async def test_a_cell_that_swaps_folders_under_a_tool_gets_nowhere(home: Path, tmp_path: Path, victim: Victim) -> None:
    work, secret = tmp_path / "work", Path.home() / f".prime-repl-swap-{os.getpid()}"
    for folder in (work / "real", secret):
        folder.mkdir(parents=True)
        (folder / "file").write_text("mine" if folder != secret else SECRET)
    code = f"""
import os, threading
os.symlink({str(secret)!r}, "link")
os.rename("real", "place")
stop = False
def swap():
    while not stop:
        os.rename("place", "real"); os.rename("link", "place"); os.rename("place", "link"); os.rename("real", "place")
thread = threading.Thread(target=swap)
thread.start()
seen = set()
for _ in range(60):
    for call in ("read('place/file')", "write('place/new', 'x')", "grep('.', 'place')"):
        try:
            seen.add(str(await eval("tools." + call)))
        except ToolCallError as error:
            seen.add(error.code)
stop = True
thread.join()
print(seen)
"""
    try:
        async with shop(home, work) as opened:
            shown = await said(opened, code)
        assert "mine" in shown
        assert SECRET not in shown
        assert sorted(secret.iterdir()) == [secret / "file"]
    finally:
        shutil.rmtree(secret)


async def test_hidden_places_have_no_other_names(tmp_path: Path) -> None:
    work, home = tmp_path / "work", tmp_path / "data"
    for folder in (work, home):
        folder.mkdir()
    (work / "up").symlink_to(tmp_path)
    async with bubblewrapped(Wanted("full", work, home, sys.executable, {"PATH": os.environ["PATH"]})) as sandbox:
        workspace = Workspace(work, sandbox=sandbox)
        for path in (str(home), "../data", "up/data", "up", str(Path.home() / ".." / work.name / ".." / home)):
            with pytest.raises(ToolFailed, match="hidden by the sandbox"):
                workspace.resolve(path)
        assert workspace.resolve("a/../b") == work / "b"
        inner = workspace.resolve("~/a")
        assert not inner.is_relative_to(Path.home())
        assert workspace.name(inner) == str(Path.home() / "a")
