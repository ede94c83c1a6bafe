"""What is measured: raw kernels, ours, and the least of a bridge. Each runs a cell and returns what it said."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_client.manager import AsyncKernelManager

import prime
from prime.app import Workshop, workshop
from prime.config import load

RunCell = Callable[[str], Awaitable[str]]

#: Seconds that an interrupted cell has until it counts as not stopped.
STOP_S = 3.0


@prime.tool(parallel=True, effects=False)
async def noop(n: int) -> int:
    """Return `n`."""
    return n


@dataclass(frozen=True)
class Raw:
    """A raw kernel with jupyter_client's own client."""

    manager: AsyncKernelManager
    client: Any

    async def run(self, code: str) -> str:
        """Run a cell and return its stdout."""
        return await self._finished(self.client.execute(code))

    async def interrupted(self, code: str, moment: float) -> float:
        """Run a cell, interrupt it ``moment`` seconds later, and return the seconds it took to stop. One that is not
        stopped within :data:`STOP_S` costs that, and its kernel is started again."""
        sent = self.client.execute(code)
        await asyncio.sleep(moment)
        begun = time.perf_counter()
        await self.manager.interrupt_kernel()
        try:
            async with asyncio.timeout(STOP_S):
                await self._finished(sent)
        except TimeoutError:
            await self.restart()
            return STOP_S
        return time.perf_counter() - begun

    async def restart(self) -> None:
        """Kill the kernel and start it again."""
        await self.manager.restart_kernel(now=True)
        await self.client.wait_for_ready(timeout=60)

    async def _finished(self, sent: str) -> str:
        said = []
        while True:
            message = await self.client.get_iopub_msg()
            if message["parent_header"].get("msg_id") != sent:
                continue
            if message["msg_type"] == "stream":
                said.append(message["content"]["text"])
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                break
        while (await self.client.get_shell_msg())["parent_header"].get("msg_id") != sent:
            pass
        return "".join(said)


@asynccontextmanager
async def raw(*, tuned: bool) -> AsyncIterator[Raw]:
    """Start a raw kernel: as it comes, or over ``ipc`` with its history in memory."""
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
            yield Raw(manager, client)
        finally:
            client.stop_channels()
            await manager.shutdown_kernel(now=True)


@dataclass(frozen=True)
class Ours:
    """A session whose cells are run by hand, log and all."""

    shop: Workshop

    async def run(self, code: str) -> str:
        """Run a cell that succeeds, and return what a model would be shown."""
        ended = await self.shop.cells.run(code, None, asyncio.Event())
        assert ended.status == "ok", ended
        return "".join(part.text for part in ended.shown if part.type == "text")

    async def interrupted(self, code: str, moment: float) -> float:
        """Run a cell, interrupt it ``moment`` seconds later, and return the seconds until its end is in the log."""
        cancel = asyncio.Event()
        running = asyncio.create_task(self.shop.cells.run(code, None, cancel))
        await asyncio.sleep(moment)
        begun = time.perf_counter()
        cancel.set()
        await running
        return time.perf_counter() - begun

    async def die(self) -> float:
        """Run a cell that kills its kernel, and return the seconds until its end is in the log."""
        code = "import os, time\nprint(time.time(), flush=True)\ntime.sleep(0.1)\nos.kill(os.getpid(), 9)"
        await self.run("x = 1")  # takes the notice of an earlier loss
        ended = await self.shop.cells.run(code, None, asyncio.Event())
        noticed = time.time()
        assert ended.status == "died", ended
        said = "".join(part.text for part in ended.shown if part.type == "text")
        return noticed - float(said.split()[0]) - 0.1


@asynccontextmanager
async def ours(home: Path) -> AsyncIterator[Ours]:
    """Open a session."""
    async with workshop(load(Path.cwd(), {"home": home}), Path.cwd(), tools=[noop]) as shop:
        yield Ours(shop)


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
