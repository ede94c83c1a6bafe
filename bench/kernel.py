"""Kernel and calls against raw jupyter_client + ipykernel, in one run.

    python -m bench.kernel [--repeat N] [--json FILE]

Subjects: ``stock`` is jupyter_client + ipykernel as they come (TCP, history in a file, ``wait_for_ready``); ``tuned``
is the same over ``ipc`` with history in memory; ``prime-repl`` runs cells through the whole path: durable log entries,
kernel, bridge, dispatch. ``bare socket`` is the least a host call can cost: a JSON line over a Unix socket, no log.
Peers (:mod:`bench.peers`) take part when they are installed. Repetitions of the subjects are interleaved, so that a
change of the machine's speed hits all of them. An interrupt that takes 3 s did not stop its cell at all. What takes
minutes is in :mod:`bench.stress`: floods, thousands of cells.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench import lifecycle, peers
from bench.report import document, row, table, write
from bench.subjects import RunCell, bare, ours, raw

Samples = dict[tuple[str, str], list[float]]

CALLS = 1_000
CELLS = 20  # trivial cells of a subject before it is the next one's turn


_ONE = """\
import json, time
took = []
for n in range(200):
    start = time.perf_counter()
    await {call}(n=n)
    took.append((time.perf_counter() - start) * 1000)
print(json.dumps(took))
"""
_SEQUENTIAL = """\
import json, time
start = time.perf_counter()
for n in range({calls}):
    await {call}(n=n)
print(json.dumps([time.perf_counter() - start]))
"""
_CONCURRENT = """\
import asyncio, json, time
start = time.perf_counter()
await asyncio.gather(*({call}(n=n) for n in range({calls})))
print(json.dumps([time.perf_counter() - start]))
"""


async def cold_start(samples: Samples, home: Path, others: dict[str, peers.Opened]) -> None:
    """Seconds from nothing to the first result, the kernel's end not counted."""
    subjects: dict[str, Callable[[], Any]] = {
        "stock": lambda: raw(tuned=False),
        "tuned": lambda: raw(tuned=True),
        "prime-repl": lambda: ours(home),
        **others,
    }
    for subject, opened in subjects.items():
        start = time.perf_counter()
        async with opened() as kernel:
            await getattr(kernel, "run", kernel)("1 + 1")
            samples["cold start to first result", subject].append(time.perf_counter() - start)


async def cells(samples: Samples, runs: dict[str, RunCell]) -> None:
    """Milliseconds of a trivial cell; ours with its durable entries in the log."""
    for subject, run in runs.items():
        for _ in range(CELLS):
            start = time.perf_counter()
            await run("x = 1")
            samples["trivial cell", subject].append((time.perf_counter() - start) * 1000)


async def calls(samples: Samples, runs: dict[str, tuple[str, RunCell]]) -> None:
    """Host calls from inside a cell, timed there."""
    for measure, code in (
        ("one call", _ONE),
        (f"{CALLS:,} sequential calls", _SEQUENTIAL),
        (f"{CALLS:,} concurrent calls", _CONCURRENT),
    ):
        for subject, (call, run) in runs.items():
            said = await run(code.format(call=call, calls=CALLS))
            samples[measure, subject] += json.loads(said.splitlines()[0])


async def measure(repeat: int) -> Samples:
    """Run everything ``repeat`` times, the subjects in turn; what takes seconds, a third as often."""
    samples: Samples = defaultdict(list)
    others = peers.installed()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for _ in range(repeat):
            await cold_start(samples, home, others)
        async with AsyncExitStack() as stack:
            stock = await stack.enter_async_context(raw(tuned=False))
            tuned = await stack.enter_async_context(raw(tuned=True))
            prime_repl = await stack.enter_async_context(ours(home))
            socket = await stack.enter_async_context(bare(tuned.run, home))
            runs: dict[str, RunCell] = {"stock": stock.run, "tuned": tuned.run, "prime-repl": prime_repl.run}
            for name, opened in others.items():
                runs[name] = await stack.enter_async_context(opened())
            for run in runs.values():
                await run("x = 1")
            for _ in range(repeat):
                await cells(samples, runs)
                await calls(samples, {"bare socket": ("noop", socket), "prime-repl": ("tools.noop", prime_repl.run)})
                await lifecycle.reads(samples, prime_repl, home)
            for _ in range(max(repeat // 3, 1)):
                await lifecycle.interrupts(samples, stock, prime_repl)
                await lifecycle.deaths(samples, stock, prime_repl)
        for _ in range(max(repeat // 3, 1)):
            await lifecycle.prewarmed(samples, home)
            await lifecycle.together(samples, home)
            await lifecycle.family(samples, home)
            await lifecycle.memory(samples)
    return samples


_UNITS = {
    "trivial cell": "ms",
    "one call": "ms",
    "prewarmed first cell": "ms",
    "idle memory of host and kernel": "MB",
    f"memory of one of {lifecycle.FAMILY} kernels": "MB",
}


def main() -> None:
    """Measure, print the table, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=9, help="interleaved repetitions (default: 9)")
    parser.add_argument("--json", type=Path, help="where to write the result")
    options = parser.parse_args()
    samples = asyncio.run(measure(options.repeat))
    rows = [row(name, subject, found, _UNITS.get(name, "s")) for (name, subject), found in samples.items()]
    rows.sort(key=lambda each: list(dict.fromkeys(name for name, _ in samples)).index(each.measure))
    table(rows)
    write(options.json, document(rows))


if __name__ == "__main__":
    main()
