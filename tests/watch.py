"""Looking into a log from a test: what is there, and waiting until something is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from prime import events as ev
from prime.log import Log
from prime.messages import text_of


def of(log: Log, *kinds: str) -> list[Any]:
    """Return the events of these kinds, in order."""
    return [entry.event for entry in log.entries(types=kinds)]


def kinds(log: Log, start: int = 0) -> list[str]:
    """Return the kinds of all entries from ``start``, in order."""
    return [entry.event.type for entry in log.entries(start)]


def shown(ended: ev.CellEnded) -> str:
    """Return the text that the model sees of a cell."""
    return text_of(ended.shown)


def results(log: Log) -> list[str]:
    """Return the text of every result that answered a call, in order."""
    return [
        text_of(event.shown) if isinstance(event, ev.CellEnded) else event.text
        for event in of(log, "cell_ended", "call_refused")
        if event.call_id is not None
    ]


async def happened(log: Log, kind: str, count: int = 1, *, seconds: float = 20.0) -> None:
    """Wait until the log has ``count`` entries of a kind."""
    await until(log, lambda: len(of(log, kind)) >= count, seconds=seconds)


async def until(log: Log, condition: Callable[[], bool], *, seconds: float = 20.0) -> None:
    """Wait until ``condition`` holds, looking after each entry."""
    news = asyncio.Event()
    stop = log.observe(lambda entry: news.set())
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                news.clear()
                await news.wait()
    finally:
        stop()
