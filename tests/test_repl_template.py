"""Kernels forked from a template are the same as those started directly, and nothing of it outlives its host."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from kernels import Kernel, kernel
from prime_kernel.marks import SESSION

from prime import guest
from prime.app import running
from prime.config import Config
from prime.errors import KernelStartFailed
from prime.providers.scripted import ScriptedProvider
from prime.repl.pool import Pool
from prime.repl.template import Template

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only"),
]


class Family:
    """Kernels of one template."""

    def __init__(self, cwd: Path, template: Template | None) -> None:
        self.cwd = cwd
        self.pool = Pool(template=template)
        self.made: list[Kernel] = []

    def new(self, **options: object) -> Kernel:
        self.made.append(kernel(self.cwd, pool=self.pool, **options))  # type: ignore[arg-type]
        return self.made[-1]


@asynccontextmanager
async def family(
    cwd: Path, *, forked: bool = True, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Family]:
    """Give a family and close it."""
    given = guest.environment(os.environ) if environment is None else environment
    made = Family(cwd, Template(sys.executable, given) if forked else None)
    try:
        yield made
    finally:
        for each in made.made:
            await each.repl.close()
        await made.pool.close()


async def pid_of(running: Kernel) -> int:
    return int(await running.value("__import__('os').getpid()"))


async def is_forked(running: Kernel) -> bool:
    return psutil.Process(await pid_of(running)).ppid() != os.getpid()


def gone(pid: int) -> bool:
    """Tell whether a process has ended, even if nobody has taken notice yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


#: What a cell can see of how its process was started.
LOOK = """
import os, resource, sys, threading
links = [os.readlink(each.path) for each in os.scandir('/proc/self/fd') if os.path.islink(each.path)]
kinds = [link.partition(':')[0] for link in links if not link.startswith('/proc')]
print(dict(
    environment={k: v for k, v in os.environ.items() if k != 'IPYTHONDIR'},
    argv=[sys.argv[0], sys.argv[1], os.path.basename(sys.argv[2])],
    path=sys.path, cwd=os.getcwd(), flags=str(sys.flags), executable=sys.executable,
    leader=(os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid()),
    limits=[resource.getrlimit(each) for each in range(10)],
    stdin=sys.stdin.read() if sys.stdin else None, inputs=os.read(0, 1),
    descriptors={kind: kinds.count(kind) for kind in set(kinds)},
    threads=sorted(type(each).__name__ for each in threading.enumerate() if 'ParentPoller' not in repr(each)),
    modules=[name for name in ('debugpy', 'prime', 'multiprocessing') if name in sys.modules],
    mask=os.umask(0o22), signals=[str(__import__('signal').getsignal(n)) for n in (13, 17, 15)],
))
"""


async def test_a_cell_sees_the_same_as_in_one_that_was_started_directly(tmp_path: Path) -> None:
    looks = []
    limited = guest.limited({**guest.environment(os.environ), "MORE": "x" * 2_000}, 1 << 30)
    for forked in (False, True):
        async with family(tmp_path, forked=forked) as made:
            running = made.new(environment=limited)
            assert await is_forked(running) is forked
            looks.append(ast.literal_eval((await running.cell(LOOK)).text()))
    assert looks[1] == looks[0]


async def test_it_is_known_by_its_own_mark_and_has_chances_of_its_own(tmp_path: Path) -> None:
    async with family(tmp_path) as made:
        first, second = (
            made.new(environment={**guest.environment(os.environ), SESSION: name}) for name in ("one", "two")
        )
        seen = [psutil.Process(await pid_of(each)).environ() for each in (first, second)]
        assert [each[SESSION] for each in seen] == ["one", "two"]
        own = [await each.value("__import__('os').environ['IPYTHONDIR']") for each in (first, second)]
        assert [repr(each["IPYTHONDIR"]) for each in seen] == own
        drawn = [
            await each.value("__import__('random').random(), __import__('uuid').uuid4()") for each in (first, second)
        ]
        assert drawn[0] != drawn[1]
        assert psutil.Process(await pid_of(first)).ppid() == psutil.Process(await pid_of(second)).ppid()


async def test_its_end_is_told(tmp_path: Path) -> None:
    async with family(tmp_path) as made:
        running = made.new()
        assert (await running.cell("import os\nos._exit(3)")).lost[0].reason.endswith("by itself with exit code 3")
        reason = (await running.cell("import ctypes\nctypes.string_at(0)")).lost[0].reason
        assert reason.startswith("the kernel process was killed by SIGSEGV")
        assert '"<cell 1>", line 2 in <module>' in reason
        os.kill(await pid_of(running), signal.SIGKILL)
        assert (await running.cell("1")).lost[0].reason == "the kernel process was killed by SIGKILL"


async def test_without_its_template_a_kernel_goes_on_and_the_next_is_started(tmp_path: Path) -> None:
    async with family(tmp_path) as made:
        running, another = made.new(), made.new()
        await running.cell("kept = 1")
        pid = await pid_of(running)
        template = psutil.Process(pid).ppid()
        os.kill(template, signal.SIGKILL)
        assert await another.value("2") == "2"
        assert await running.value("kept") == "1"
        seen = await running.cell("import os; os._exit(3)")
        assert (seen.status, seen.lost[0].reason) == ("died", "the kernel process is gone; its exit code is not known")
        assert gone(pid)


async def test_closing_it_ends_what_it_started(tmp_path: Path) -> None:
    async with family(tmp_path) as made:
        running = made.new()
        started = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True).pid"
        child = int(await running.value(started))
        template = psutil.Process(psutil.Process(await pid_of(running)).ppid())
    assert gone(child)
    assert gone(template.pid)


@pytest.mark.parametrize("variable", [{"PYTHONPATH": "/elsewhere"}, {"PYTHONHASHSEED": "7"}, {"PYTHONPATH": "here"}])
async def test_what_python_reads_at_its_start_has_to_be_the_templates(tmp_path: Path, variable: dict[str, str]) -> None:
    environment = guest.environment(os.environ)
    own = variable if variable == {"PYTHONPATH": "here"} else {}  # relative to a folder that the template is not in
    async with family(tmp_path, environment={**environment, **own}) as made:
        running = made.new(environment={**environment, **variable})
        assert not await is_forked(running)


async def test_an_environment_without_room_is_refused_and_told(tmp_path: Path) -> None:
    async with family(tmp_path) as made:
        large = made.new(environment={**guest.environment(os.environ), "LARGE": "x" * 50_000})
        with pytest.raises(KernelStartFailed, match="is larger than the template's room"):
            await large.cell("1")


async def test_an_interpreter_without_ipykernel_is_told_as_ever(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'ipykernel'\"\nexit 1\n")
    script.chmod(0o755)
    pool = Pool(template=Template(str(script), guest.environment(os.environ)))
    running = kernel(tmp_path, python=str(script), pool=pool)
    with pytest.raises(KernelStartFailed, match="has no ipykernel; install it with"):
        await running.cell("1")
    await pool.close()


async def test_the_setting_makes_sessions_use_it(home: Path, tmp_path: Path) -> None:
    config = Config(home=home, guest_environment=guest.environment(os.environ), kernel_template=True)
    async with running(config, tmp_path, ScriptedProvider([])) as agent:
        ended = await agent.cell("import os; os.getpid(), os.getppid()")
        pid, parent = ast.literal_eval(ended.shown[0].text.splitlines()[0])
        assert parent != os.getpid()
        assert psutil.Process(pid).environ()[SESSION].endswith(agent.session)
    assert gone(pid)
    assert gone(parent)


_HOST = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from test_repl_template import family

async def main():
    async with family(Path(sys.argv[2])) as made:
        print(await made.new().value("import os; os.getpid(), os.getppid()"), flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_killed_host_leaves_neither_kernel_nor_template(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _HOST, str(Path(__file__).parent), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        left = [psutil.Process(pid) for pid in ast.literal_eval(host.stdout.readline())]
        host.kill()
        _gone, alive = psutil.wait_procs(left, 5)
        assert alive == []
