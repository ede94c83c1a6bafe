"""How cells and kernels end before their time, in real processes."""

from __future__ import annotations

import ast
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from kernels import Kernel, kernel, needs_numbers_of_the_host

from prime.errors import CellBusy, KernelStartFailed
from prime.repl.signals import Ended, HostCall, Output, Started

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Kernel]:
    running = kernel(tmp_path_factory.mktemp("stops"))
    yield running
    await running.repl.close()


@pytest.fixture
async def own(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Kernel]:
    running = kernel(tmp_path)
    yield running
    await running.repl.close()


_SWALLOW = "while True:\n    try:\n        time.sleep(60)\n    except {}:\n        pass"

STOPPABLE = {
    "loop": "while True: pass",
    "printing loop": "while True: print('x')",
    "time.sleep": "import time; time.sleep(60)",
    "await sleep": "await asyncio.sleep(60)",
    "tight await": "while True: await asyncio.sleep(0)",
    "gather": "await asyncio.gather(*[asyncio.sleep(60) for _ in range(5)])",
    "to_thread": "import threading\nawait asyncio.to_thread(threading.Event().wait, 2)",
    "subprocess": "import subprocess; subprocess.run(['sleep', '60'])",
    "sync in coroutine": "import time\nasync def f(): time.sleep(60)\nawait f()",
    "except Exception": f"import time\n{_SWALLOW.format('Exception')}",
    "except KeyboardInterrupt": f"import time\n{_SWALLOW.format('KeyboardInterrupt')}",
    "hog beside await": "async def hog():\n    print('ready', flush=True)\n    while True: 1\n"
    "t = asyncio.create_task(hog())\nawait asyncio.sleep(60)",
    "lock": "import threading; l = threading.Lock(); l.acquire(); l.acquire()",
    "command": "!sleep 60",
    "script": "%%bash\necho ready\nsleep 60",
    "await call": "await tools.never()",
    "result": "tools.never().result()",
    "unawaited call": "tools.never()\nNone",
    "repr": "import time\nclass Slow:\n    def __repr__(self): time.sleep(60)\nSlow()",
}


@pytest.mark.parametrize("code", STOPPABLE.values(), ids=STOPPABLE)
async def test_an_interrupt_stops_it_and_keeps_the_namespace(shared: Kernel, code: str) -> None:
    mark = await shared.value("kept = {'a': 1}; id(kept)")
    seen = await shared.interrupted(code if "ready" in code else f"print('ready', flush=True)\n{code}")
    assert seen.status == "interrupted"
    assert seen.lost == []
    assert await shared.value("id(kept)") == mark


async def test_an_interrupt_during_the_final_wait_cancels_the_calls(shared: Kernel) -> None:
    seen = await shared.interrupted("c = tools.never()\nprint('ready')\n")
    assert seen.status == "interrupted"
    assert "was cancelled with its cell" in (await shared.cell("c.result()")).error


async def test_interrupts_at_any_moment_never_harm_the_kernel(shared: Kernel) -> None:
    pid = await shared.value("import os; os.getpid()")
    for step in range(30):
        running = asyncio.ensure_future(shared.cell("x = 0\nfor n in range(200): x += (await tools.echo(1))\nx"))
        await asyncio.sleep(step * 0.002)
        await shared.repl.interrupt()
        assert (await running).status in {"interrupted", "ok"}
        assert await shared.value("await tools.echo(2)") == "2"
    assert await shared.value("os.getpid()") == pid


async def test_without_a_running_cell_an_interrupt_does_nothing(shared: Kernel) -> None:
    await shared.repl.interrupt()
    assert await shared.value("1") == "1"


async def test_a_deadline_is_a_status_of_its_own(shared: Kernel) -> None:
    seen = await shared.cell("deadline = 1\nawait asyncio.sleep(60)", timeout_s=0.2)
    assert (seen.status, [n.name for n in seen.ended.set]) == ("timeout", ["deadline"])
    assert 0.2 <= seen.ended.duration_s < 10
    assert await shared.value("deadline") == "1"


async def test_waiting_does_not_count_and_computing_beside_it_does(tmp_path: Path) -> None:
    waiting = kernel(tmp_path, waits={"tools.slow"})
    wait = "w = tools.slow(1)\nfrom asyncio import sleep\n"
    try:
        await waiting.cell("import time; await tools.echo(1)")
        code = f"{wait}async def later():\n    await sleep(1.5)\n    await tools.release()\n"
        seen = await waiting.cell(f"{code}t = asyncio.create_task(later())\nawait w", timeout_s=0.5)
        assert (seen.status, seen.result) == ("ok", "1")
        assert seen.ended.duration_s > 1  # the time that is told is the real one
        for busy in ("while True: pass", "await tools.release()\nawait w\nawait sleep(60)", "time.sleep(60)"):
            seen = await waiting.cell((wait if busy != "time.sleep(60)" else "") + busy, timeout_s=0.5)
            assert seen.status == "timeout"
            assert seen.ended.duration_s < 20
    finally:
        await waiting.repl.close()


@pytest.mark.parametrize(
    "error", ["TimeoutError", "asyncio.TimeoutError", "KeyboardInterrupt", "asyncio.CancelledError"]
)
async def test_an_error_that_looks_like_a_stop_is_an_error(shared: Kernel, error: str) -> None:
    assert (await shared.cell(f"raise {error}('mine')", timeout_s=30)).status == "error"


async def test_what_swallows_every_interrupt_is_killed(own: Kernel) -> None:
    await own.cell("gone = 1")
    seen = await own.interrupted(
        "import time\nwhile True:\n    try:\n"
        "        print('ready', flush=True)\n        time.sleep(60)\n    except BaseException:\n        pass"
    )
    assert seen.status == "killed"
    assert [lost.generation for lost in seen.lost] == [1]
    assert "did not stop" in seen.lost[0].reason
    after = await own.cell("gone")
    assert (after.started[0].generation, after.lost) == (2, [])
    assert after.error.startswith("NameError")


async def test_a_kernel_that_dies_in_a_cell_is_noticed_and_replaced(own: Kernel, tmp_path: Path) -> None:
    seen = await own.cell("import os\nopen('ran', 'a').write('once')\nprint('out')\nos.kill(os.getpid(), 9)")
    assert seen.status == "died"
    assert [(lost.generation, lost.reason) for lost in seen.lost] == [(1, "the kernel process was killed by SIGKILL")]
    assert (tmp_path / "ran").read_text() == "once"
    after = await own.cell("1")
    assert (after.started[0].generation, after.lost, after.result) == (2, [], "1")
    seen = await own.cell("import os; os._exit(7)")
    assert (seen.status, seen.lost[0].reason) == ("died", "the kernel process ended by itself with exit code 7")


async def test_a_kernel_that_dies_between_cells_is_reported_once(own: Kernel) -> None:
    needs_numbers_of_the_host()
    pid = int(await own.value("import os; os.getpid()"))
    os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(psutil.wait_procs, [psutil.Process(pid)] if psutil.pid_exists(pid) else [], 10)
    seen = await own.cell("1")
    assert [type(s).__name__ for s in seen.signals] == ["Lost", "Started", "Output", "Ended"]
    assert (await own.cell("1")).lost == []


@pytest.mark.parametrize("dies", [True, False])
async def test_children_end_with_the_kernel(own: Kernel, dies: bool) -> None:
    needs_numbers_of_the_host()
    child = int(await own.value("import os, subprocess; p = subprocess.Popen(['sleep', '600']); p.pid"))
    if dies:
        await own.cell("os._exit(1)")
    else:
        await own.repl.close()
    _gone, alive = await asyncio.to_thread(
        psutil.wait_procs, [psutil.Process(child)] if psutil.pid_exists(child) else [], 10
    )
    assert alive == []


async def test_breaking_the_bridge_ends_the_kernel(own: Kernel) -> None:
    seen = await own.cell("get_ipython().bridge._socket.sendall((2**31).to_bytes(4, 'big'))\nawait asyncio.sleep(60)")
    assert seen.status == "died"
    assert "broke the bridge protocol" in seen.lost[0].reason


async def test_one_cell_at_a_time(own: Kernel) -> None:
    running = asyncio.ensure_future(own.interrupted("print('ready')\nawait asyncio.sleep(60)"))
    await asyncio.sleep(0)
    with pytest.raises(CellBusy):
        await own.cell("1")
    assert (await running).status == "interrupted"


async def test_a_reader_that_leaves_stops_the_cell(own: Kernel) -> None:
    await own.cell("kept = 1")
    stream = own.repl.run("await asyncio.sleep(60)\nkept = 2", cell="left")
    task = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await stream.aclose()
    assert await own.value("kept") == "1"


async def test_calls_and_output_share_one_stream(own: Kernel) -> None:
    seen = await own.cell(
        "for n in range(3):\n    print(n, flush=True)\n    await tools.echo(n)\n    await asyncio.sleep(0.05)"
    )
    kinds = [type(s) for s in seen.signals if isinstance(s, (HostCall, Output))]
    assert kinds.count(HostCall) == kinds.count(Output) == 3
    assert kinds[-1] in {HostCall, Output}
    assert kinds != [HostCall] * 3 + [Output] * 3
    assert isinstance(seen.signals[0], Started)
    assert isinstance(seen.signals[-1], Ended)


async def test_a_prewarmed_kernel_is_used(own: Kernel) -> None:
    await own.repl.prewarm()
    await own.repl.prewarm()
    seen = await own.cell("1")
    assert [s.generation for s in seen.started] == [1]


async def test_closing_is_final_and_idempotent(tmp_path: Path) -> None:
    running = kernel(tmp_path)
    folder = Path(ast.literal_eval(await running.value("import os; os.environ['IPYTHONDIR']"))).parent
    assert folder.exists()
    await running.repl.close()
    await running.repl.close()
    assert not folder.exists()
    with pytest.raises(KernelStartFailed, match="closed"):
        await running.cell("1")


_HOST = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from kernels import kernel

async def main():
    running = kernel(Path(sys.argv[2]))
    await running.cell("import os, subprocess; child = subprocess.Popen(['sleep', '600'])")
    print(await running.value("os.getpid(), child.pid, os.environ['IPYTHONDIR']"), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_killed_host_leaves_nothing_alive(tmp_path: Path) -> None:
    here = str(Path(__file__).parent)
    with subprocess.Popen(
        [sys.executable, "-c", _HOST, here, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as host:
        assert host.stdout is not None
        *pids, ipython = ast.literal_eval(host.stdout.readline())
        left = [psutil.Process(pid) for pid in pids]
        host.kill()
        started = time.monotonic()
        _gone, alive = psutil.wait_procs(left, 10)
        assert alive == []
        assert time.monotonic() - started < 5
        assert not Path(ipython).parent.exists()


async def test_an_interrupt_while_the_kernel_starts_keeps_the_cell_from_running(own: Kernel, tmp_path: Path) -> None:
    running = asyncio.ensure_future(own.cell("open('ran', 'w')"))
    await asyncio.sleep(0)
    await own.repl.interrupt()
    seen = await running
    assert [type(s).__name__ for s in seen.signals] == ["Ended"]
    assert (seen.status, seen.ended.generation) == ("interrupted", None)
    assert not (tmp_path / "ran").exists()
    assert await own.value("1") == "1"
