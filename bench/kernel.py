"""Kernel and calls against raw jupyter_client + ipykernel, in one run.

    python -m bench.kernel [--repeat N] [--json FILE]

Subjects: ``stock`` is jupyter_client + ipykernel as they come (TCP, history in a file, ``wait_for_ready``); ``tuned``
is the same over ``ipc`` with history in memory; ``prime-repl`` runs cells through the whole path: durable log entries,
kernel, bridge, dispatch. ``bare socket`` is the least a host call can cost: a JSON line over a Unix socket, no log.
Repetitions of the subjects are interleaved, so that a change of the machine's speed hits all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from jupyter_client.manager import AsyncKernelManager

import prime
from bench.report import document, row, table, write
from prime.app import Workshop, workshop
from prime.config import load

Samples = dict[tuple[str, str], list[float]]
RunCell = Callable[[str], Awaitable[str]]

CALLS = 1_000
CELLS = 20  # trivial cells of a subject before it is the next one's turn


@prime.tool(parallel=True, effects=False)
async def noop(n: int) -> int:
    """Return `n`."""
    return n


@asynccontextmanager
async def raw(*, tuned: bool) -> AsyncIterator[RunCell]:
    """Start a raw kernel and give a function that runs a cell in it and returns its stdout."""
    options: dict[str, Any] = {"transport": "ipc"} if tuned else {}
    manager = AsyncKernelManager(**options)
    with tempfile.TemporaryDirectory() as folder:
        if tuned:
            manager.connection_file = f"{folder}/kernel.json"
            manager.ip = f"{folder}/k"
        extra = ["--HistoryManager.hist_file=:memory:"] if tuned else []
        await manager.start_kernel(extra_arguments=extra)
        client = manager.client()
        client.start_channels()
        await client.wait_for_ready(timeout=60)
        try:
            yield lambda code: _execute(client, code)
        finally:
            client.stop_channels()
            await manager.shutdown_kernel(now=True)


async def _execute(client: Any, code: str) -> str:
    sent = client.execute(code)
    said = []
    while True:
        message = await client.get_iopub_msg()
        if message["parent_header"].get("msg_id") != sent:
            continue
        if message["msg_type"] == "stream":
            said.append(message["content"]["text"])
        if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            break
    await client.get_shell_msg()
    return "".join(said)


@asynccontextmanager
async def ours(home: Path) -> AsyncIterator[RunCell]:
    """Open a session and give a function that runs a cell by hand, log and all."""
    async with workshop(load(Path.cwd(), {"home": home}), Path.cwd(), tools=[noop]) as shop:
        yield lambda code: _cell(shop, code)


async def _cell(shop: Workshop, code: str) -> str:
    ended = await shop.cells.run(code, None, asyncio.Event())
    assert ended.status == "ok", ended
    return "".join(part.text for part in ended.shown)


@asynccontextmanager
async def bare(run: RunCell, folder: Path) -> AsyncIterator[RunCell]:
    """Give the raw kernel of ``run`` the least of a bridge: a Unix socket on which each JSON line gets one back."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(json.dumps({"id": json.loads(line)["id"]}).encode() + b"\n")
            await writer.drain()
        writer.close()

    path = str(folder / "bare")
    server = await asyncio.start_unix_server(answer, path)
    await run(_BARE.format(path=path))
    async with server:
        yield run


_BARE = """\
import asyncio, json, time
reader, writer = await asyncio.open_unix_connection({path!r})
waiting = {{}}
async def pump():
    while line := await reader.readline():
        found = json.loads(line)
        waiting.pop(found["id"]).set_result(found)
pumping = asyncio.ensure_future(pump())
def noop(n):
    future = waiting[n] = asyncio.get_running_loop().create_future()
    writer.write(json.dumps({{"id": n}}).encode() + b"\\n")
    return future
"""
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


async def cold_start(samples: Samples, home: Path) -> None:
    """Seconds from nothing to the first result, the kernel's end not counted."""
    subjects: dict[str, Callable[[], Any]] = {
        "stock": lambda: raw(tuned=False),
        "tuned": lambda: raw(tuned=True),
        "prime-repl": lambda: ours(home),
    }
    for subject, opened in subjects.items():
        start = time.perf_counter()
        async with opened() as run:
            await run("1 + 1")
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
    """Run everything ``repeat`` times, the subjects in turn."""
    samples: Samples = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for _ in range(repeat):
            await cold_start(samples, home)
        async with AsyncExitStack() as stack:
            stock = await stack.enter_async_context(raw(tuned=False))
            tuned = await stack.enter_async_context(raw(tuned=True))
            prime_repl = await stack.enter_async_context(ours(home))
            socket = await stack.enter_async_context(bare(tuned, home))
            for run in (stock, tuned, prime_repl):
                await run("x = 1")
            for _ in range(repeat):
                await cells(samples, {"stock": stock, "tuned": tuned, "prime-repl": prime_repl})
                await calls(samples, {"bare socket": ("noop", socket), "prime-repl": ("tools.noop", prime_repl)})
    return samples


_UNITS = {"trivial cell": "ms", "one call": "ms"}


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
