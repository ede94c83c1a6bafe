"""Prove that the REPL survives: interrupts at any moment, any cells, any amount of output.

    python -m bench.stress [--interrupts N] [--cells N] [--seed N] [--json FILE]

``interrupts``: cells of every kind that an interrupt can meet, each interrupted 0-60 ms after it was sent. Each must
end as ``interrupted``, or as ``killed`` where nothing but the kill can stop it; then the next cell must work, in the
same kernel if it was not killed. ``cells``: random cells (:mod:`bench.cells`) through the whole path, log and all;
each must end as its kind says, at the end no process is left and the log verifies. ``print``: one cell prints 200 MB.

The test suite runs the same, less of it. A fault raises an ``AssertionError`` that begins with the seed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

import prime
from bench.cells import Cells
from bench.kill import GONE_S, processes
from bench.report import Row, document, row, table, write
from prime.app import Workshop, workshop
from prime.config import Config
from prime.sessions import Sessions
from prime.verify import verify

#: The latest moment of an interrupt, in seconds after the cell was sent.
LATEST_S = 0.06

#: Seconds after which a cell that should have ended counts as hung. No specimen takes longer, not on a busy machine.
HUNG_S = 60.0

PRINTED_MB = 200

_SWALLOW = "import time\nwhile True:\n    try: {}\n    except {}: pass"
_HOG = "async def hog():\n    while True: pass\nt = asyncio.ensure_future(hog())\nawait asyncio.sleep(60)"

#: What an interrupt may meet. ``swallowing CancelledError`` alone needs the kill.
INTERRUPTED = {
    "sync loop": "import time\nwhile True: time.sleep(0.001)",
    "busy loop": "while True: pass",
    "print loop": "while True: print('x')",
    "short cell": "x = 1",
    "await sleep": "await asyncio.sleep(60)",
    "tight await": "while True: await asyncio.sleep(0)",
    "sync in a coroutine": "import time\nasync def f(): time.sleep(60)\nawait f()",
    "gather": "await asyncio.gather(*(asyncio.sleep(60) for _ in range(5)))",
    "to_thread": "import threading\nawait asyncio.to_thread(threading.Event().wait, 1)",
    "subprocess.run": "import subprocess\nsubprocess.run(['sleep', '60'])",
    "%%bash": "%%bash\nsleep 60",
    "await beside a hog": _HOG,
    "swallowing KeyboardInterrupt": _SWALLOW.format("time.sleep(60)", "KeyboardInterrupt"),
    "host calls": "while True: await tools.noop(n=1)",
    "swallowing CancelledError": _SWALLOW.format("await asyncio.sleep(60)", "asyncio.CancelledError"),
}
LAST = "swallowing CancelledError"

#: Each kill takes two seconds of grace: one in so many rounds is enough.
_KILL_ROUNDS = 8


@prime.tool(parallel=True, effects=False)
async def noop(n: int) -> int:
    """Return `n`."""
    return n


@dataclass
class Interrupts:
    """What the interrupts came to: seconds from interrupt to end and statuses, by kind."""

    settled: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))


@dataclass(frozen=True)
class Survival:
    """What random cells came to. Memory in bytes."""

    cells: int
    statuses: Counter[str]
    kinds: Counter[str]
    kernels: int
    host_before: int
    host_after: int
    seconds: float


@dataclass(frozen=True)
class Printed:
    """What printing came to, in bytes."""

    host_growth: int
    kernel: int
    dropped: int
    seconds: float


@asynccontextmanager
async def shop(folder: Path) -> AsyncIterator[Workshop]:
    """Open a session whose data and work are below ``folder``."""
    home, work = folder / "home", folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    config = Config(home=home, guest_environment=environment, cell_timeout_s=HUNG_S)
    async with workshop(config, work, tools=[noop]) as opened:
        yield opened


async def interrupts(count: int, seed: int, folder: Path) -> Interrupts:
    """Interrupt ``count`` cells.

    Raises:
        AssertionError: one hung, harmed its kernel or ended otherwise than it may.
    """
    luck, found = random.Random(seed), Interrupts()
    async with shop(folder) as opened:
        for number, kind in enumerate(_order(count, luck)):
            where = f"seed {seed}, interrupt {number} ({kind})"
            begun = opened.log.state.kernel.generation
            moment = luck.uniform(0, LATEST_S)
            status, settled = await _interrupt(opened, INTERRUPTED[kind], moment)
            found.statuses[kind][status] += 1
            if status in {"interrupted", "killed"}:
                found.settled[kind].append(settled)
            allowed = {"interrupted", "killed"} if kind == LAST else {"interrupted"}
            allowed |= {"ok"} if kind == "short cell" else set()
            assert status in allowed, f"{where}: ended as {status}"
            after = await opened.cells.run(f"print({number} + 1)", None, asyncio.Event())
            shown = "".join(part.text for part in after.shown if part.type == "text")
            assert after.status == "ok", f"{where}: the next cell was {after.status}: {shown}"
            assert str(number + 1) in shown, f"{where}: the next cell showed {shown}"
            restarted = opened.log.state.kernel.generation - begun
            assert number == 0 or restarted == (status == "killed"), f"{where}: {restarted} new kernels after {status}"
    _check(folder, f"seed {seed}")
    return found


async def _interrupt(opened: Workshop, code: str, moment: float) -> tuple[str, float]:
    cancel = asyncio.Event()
    running = asyncio.create_task(opened.cells.run(code, None, cancel))
    await asyncio.sleep(moment)
    cancel.set()
    begun = time.monotonic()
    async with asyncio.timeout(HUNG_S):
        ended = await running
    return ended.status, time.monotonic() - begun


def _order(count: int, luck: random.Random) -> list[str]:
    """Return ``count`` kinds, each about as often, in an order by chance."""
    order: list[str] = []
    while len(order) < count:
        kill = len(order) // len(INTERRUPTED) % _KILL_ROUNDS == 0
        order += luck.sample([kind for kind in INTERRUPTED if kill or kind != LAST], len(INTERRUPTED) - (not kill))
    return order[:count]


async def survive(count: int, seed: int, folder: Path) -> Survival:
    """Run ``count`` random cells.

    Raises:
        AssertionError: one ended otherwise than its kind says, a process was left, or the log does not verify.
    """
    source, statuses, kinds = Cells(seed), Counter[str](), Counter[str]()
    host, before = psutil.Process(), 0
    async with shop(folder) as opened:
        begun = time.monotonic()
        for number in range(count):
            if number == count // 10:  # by then everything is imported and every cache has its size
                before = host.memory_info().rss
            cell = source.next()
            ended = await opened.cells.run(cell.code, None, asyncio.Event())
            statuses[ended.status] += 1
            kinds[cell.kind] += 1
            if ended.status not in cell.ends:
                lost = [entry.event for entry in opened.log.entries(types=("kernel_lost",))][-1:]
                where = f"seed {seed}, cell {number} ({cell.kind})"
                raise AssertionError(f"{where}: {ended}\n{lost}\n{cell.code[:2_000]}")
        seconds = time.monotonic() - begun
        after, kernels = host.memory_info().rss, opened.log.state.kernel.generation
    assert kernels == 1 + statuses["died"], f"seed {seed}: {kernels} kernels for {statuses['died']} deaths"
    _check(folder, f"seed {seed}")
    return Survival(count, statuses, kinds, kernels, before, after, seconds)


def _check(folder: Path, where: str) -> None:
    """Check that no process is left and that the log holds."""
    until = time.monotonic() + GONE_S
    while (left := processes(folder / "work")) and time.monotonic() < until:
        psutil.wait_procs(left, timeout=0.1)
    assert not left, f"{where}: left behind: {left}"
    sessions = Sessions(folder / "home")
    for session in sessions.ids():
        with sessions.read(session) as store:
            verify(store)


async def flood(megabytes: int, folder: Path) -> Printed:
    """Print ``megabytes`` in one cell and watch the memory of host and kernel."""
    host = psutil.Process()
    async with shop(folder) as opened:
        for _ in range(3):
            await opened.cells.run("print('warm')", None, asyncio.Event())
        (kernel,) = processes(folder / "work")
        before, peaks, begun = host.memory_info().rss, [0, 0], time.monotonic()
        code = f"for _ in range({megabytes}): print('x' * 999_999)"
        running = asyncio.create_task(opened.cells.run(code, None, asyncio.Event()))
        while not running.done():
            peaks = [max(*both) for both in zip(peaks, (p.memory_info().rss for p in (host, kernel)), strict=True)]
            await asyncio.wait({running}, timeout=0.01)
        ended = await running
        seconds = time.monotonic() - begun
    assert ended.status == "ok", ended
    return Printed(max(peaks[0] - before, 0), peaks[1], ended.dropped, seconds)


def rows(found: Interrupts, survival: Survival, printed: Printed) -> list[Row]:
    """Return everything as rows of a result."""
    mb = 1_000_000
    settle = [
        row(f"interrupt: {kind}", "prime-repl", found.settled[kind], "s") for kind in INTERRUPTED if found.settled[kind]
    ]
    return [
        *settle,
        row("a random cell", "prime-repl", [survival.seconds / survival.cells * 1000], "ms"),
        row(
            "host memory growth over the cells", "prime-repl", [(survival.host_after - survival.host_before) / mb], "MB"
        ),
        row(f"{PRINTED_MB} MB print: host growth", "prime-repl", [printed.host_growth / mb], "MB"),
        row(f"{PRINTED_MB} MB print: kernel", "prime-repl", [printed.kernel / mb], "MB"),
        row(f"{PRINTED_MB} MB print: dropped", "prime-repl", [printed.dropped / mb], "MB"),
        row(f"{PRINTED_MB} MB print: took", "prime-repl", [printed.seconds], "s"),
    ]


def main() -> None:
    """Run everything, print the table, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interrupts", type=int, default=1_000)
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where to write the result")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stress-") as name:
        folder = Path(name)
        printed = asyncio.run(flood(PRINTED_MB, folder / "print"))
        found = asyncio.run(interrupts(options.interrupts, options.seed, folder / "interrupts"))
        survival = asyncio.run(survive(options.cells, options.seed, folder / "cells"))
    result = rows(found, survival, printed)
    table(result)
    more = {
        "interrupts": options.interrupts,
        "cells": survival.cells,
        "seed": options.seed,
        "interrupt_statuses": {kind: dict(counts) for kind, counts in found.statuses.items()},
        "cell_statuses": dict(survival.statuses),
        "cell_kinds": dict(survival.kinds),
        "kernels": survival.kernels,
    }
    print(more)
    write(options.json, document(result, **more))


if __name__ == "__main__":
    main()
