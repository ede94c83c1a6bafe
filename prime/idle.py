"""Ends a kernel that nobody uses for long, when nothing is lost by it: the next cell starts another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from prime import events as ev
from prime.log import Log
from prime.repl.signals import Repl
from prime.snapshots import Snapshots


@asynccontextmanager
async def reclaiming(log: Log, repl: Repl, snapshots: Snapshots | None, idle_s: float) -> AsyncIterator[None]:
    """End the kernel of ``repl`` whenever the session has been quiet for ``idle_s`` seconds and it holds nothing, or
    nothing that a snapshot does not keep. Without ``snapshots`` only an empty one is ended.

    A kernel with variables that cannot be saved, or in which threads, tasks or processes of cells live, is left alone
    until it has been used again.
    """
    loop = asyncio.get_running_loop()
    used = loop.time()

    def notice(entry: ev.Entry) -> None:
        nonlocal used  # no more than this: it is called for every entry
        used = loop.time()

    async def watch() -> None:
        while True:
            if (rest := used + idle_s - loop.time()) > 0:
                await asyncio.sleep(rest)
                continue
            if log.state.trace.quiet:
                await _reclaim(log, repl, snapshots, f"it was not used for {idle_s:g} s")
            seen = used  # the entry of a snapshot is no use
            while used == seen:  # noqa: ASYNC110 - an event would cost something for every entry
                await asyncio.sleep(idle_s)

    stop = log.observe(notice)
    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        stop()
        watching.cancel()
        with suppress(asyncio.CancelledError):  # that is how it ends
            await watching


async def _reclaim(log: Log, repl: Repl, snapshots: Snapshots | None, reason: str) -> None:
    saved = await snapshots.take(again=True) if snapshots is not None else None
    if not log.state.trace.quiet:
        return
    if saved is None:
        await repl.give_up(reason)
    elif not (saved.left_out or saved.threads or saved.tasks or saved.processes):
        await repl.give_up(reason, saved=True)
