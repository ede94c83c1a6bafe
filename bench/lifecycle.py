"""Measures of a kernel's life for :mod:`bench.kernel`: many files, interrupts, deaths, many kernels, memory."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import psutil

from bench.stress import INTERRUPTED
from bench.subjects import Ours, Raw, ours, raw
from prime import guest
from prime.repl.kernel import KernelRepl
from prime.repl.pool import Pool
from prime.repl.process import Launch
from prime.repl.signals import Started
from prime.repl.template import Template

Samples = dict[tuple[str, str], list[float]]

FILES = 200
KERNELS = 8
FAMILY = 32

#: Seconds that a prewarmed kernel gets before its first cell: it is idle by then also on a busy machine.
_WARM_S = 2.0

#: Seconds after which a cell is interrupted: it runs by then.
_RUNS_S = 0.1

_BATCH = "texts = await asyncio.gather(*(tools.read(path=p) for p in paths))\nprint(sum(t.lines for t in texts))"


async def prewarmed(samples: Samples, home: Path) -> None:
    """Milliseconds of the first cell in a kernel that is ready."""
    async with raw(tuned=False) as stock:
        await _first(samples, "stock", stock)
    async with ours(home) as prime_repl:
        await prime_repl.shop.cells.repl.prewarm()
        await asyncio.sleep(_WARM_S)
        await _first(samples, "prime-repl", prime_repl)


async def _first(samples: Samples, subject: str, kernel: Raw | Ours) -> None:
    begun = time.perf_counter()
    await kernel.run("1 + 1")
    samples["prewarmed first cell", subject].append((time.perf_counter() - begun) * 1000)


async def reads(samples: Samples, kernel: Ours, folder: Path) -> None:
    """Seconds to read many files, all in one cell and with a cell for each."""
    paths = [folder / f"{number}.txt" for number in range(FILES)]
    for number, path in enumerate(paths):
        path.write_text(f"line of file {number}\n" * 40)
    measure = f"{FILES} files read"
    await kernel.run(f"paths = {list(map(str, paths))!r}")
    begun = time.perf_counter()
    await kernel.run("texts = await asyncio.gather(*(tools.read(path=path) for path in paths))")
    samples[measure, "prime-repl, one cell"].append(time.perf_counter() - begun)
    begun = time.perf_counter()
    for number in range(FILES):
        await kernel.run(f"text = await tools.read(path=paths[{number}])")
    samples[measure, f"prime-repl, {FILES} cells"].append(time.perf_counter() - begun)


async def interrupts(samples: Samples, stock: Raw, prime_repl: Ours) -> None:
    """Seconds from an interrupt to the end of its cell, for every kind of cell that has no end of its own."""
    for kind, code in INTERRUPTED.items():
        if kind == "short cell":
            continue
        if "tools." not in code:
            imported = code if code.startswith("%%") else f"import asyncio\n{code}"  # ours has it already
            samples[f"interrupt: {kind}", "stock"].append(await stock.interrupted(imported, _RUNS_S))
        samples[f"interrupt: {kind}", "prime-repl"].append(await prime_repl.interrupted(code, _RUNS_S))


async def deaths(samples: Samples, stock: Raw, prime_repl: Ours) -> None:
    """Seconds until a dead kernel is noticed, and from the death of an idle one to the next result. The raw kernel is
    told of its death: by itself jupyter_client waits for ever."""
    samples["death in a cell noticed", "prime-repl"].append(await prime_repl.die())
    await prime_repl.run("kept = 1")
    pid = int((await prime_repl.run("import os\nprint(os.getpid())")).split()[0])
    begun = time.perf_counter()
    await stock.restart()
    await stock.run("1 + 1")
    samples["death to the next result", "stock"].append(time.perf_counter() - begun)
    kernel = psutil.Process(pid)
    begun = time.perf_counter()
    kernel.kill()
    while kernel.is_running() and kernel.status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.001)  # a cell that reaches it while it dies is lost with it
    shown = await prime_repl.run("1 + 1")
    samples["death to the next result", "prime-repl"].append(time.perf_counter() - begun)
    assert "kept" in shown, f"the loss of a name goes without a notice: {shown}"


async def together(samples: Samples, home: Path) -> None:
    """Seconds until many kernels that start at once have each given a result."""
    measure = f"{KERNELS} kernels at once"
    for subject, opened in (("stock", lambda: raw(tuned=False)), ("prime-repl", lambda: ours(home))):
        async with AsyncExitStack() as stack:

            async def start(opened=opened, stack=stack) -> None:  # type: ignore[no-untyped-def]
                kernel = await stack.enter_async_context(opened())
                await kernel.run("1 + 1")

            begun = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for _ in range(KERNELS):
                    group.create_task(start())
            samples[measure, subject].append(time.perf_counter() - begun)


async def family(samples: Samples, cwd: Path) -> None:
    """Seconds until the kernels of one family have each given a result, started directly and forked from a template
    that is ready, and the megabytes of memory that each has for itself (USS)."""
    environment = guest.environment(os.environ)
    for subject, template in (("prime-repl", None), ("prime-repl, forked", Template(sys.executable, environment))):
        pool = Pool(FAMILY + 1, template=template)
        launch = Launch(sys.executable, cwd, environment)
        repls = [KernelRepl((), launch, pool=pool) for _ in range(FAMILY + 1)]
        await _use(repls[0])  # starts the template
        begun = time.perf_counter()
        pids = await asyncio.gather(*map(_use, repls[1:]))
        samples[f"{FAMILY} kernels of one program", subject].append(time.perf_counter() - begun)
        own = [psutil.Process(pid).memory_full_info().uss / 1_000_000 for pid in pids]
        samples[f"memory of one of {FAMILY} kernels", subject].append(statistics.median(own))
        await asyncio.gather(*(repl.close() for repl in repls))
        await pool.close()


async def _use(repl: KernelRepl) -> int:
    signals = [signal async for signal in repl.run("1 + 1", cell="cell")]
    return next(signal.pid for signal in signals if isinstance(signal, Started))


async def memory(samples: Samples) -> None:
    """Megabytes of an idle host with its kernel, in a process of its own."""
    for subject in ("stock", "prime-repl"):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.idle", subject, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()
        samples["idle memory of host and kernel", subject].append(int(said) / 1_000_000)
