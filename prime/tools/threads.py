"""Blocking work in a worker thread, off the host's event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

import anyio.to_thread

T = TypeVar("T")

_abandoned: ContextVar[threading.Event | None] = ContextVar("abandoned", default=None)


async def in_thread(body: Callable[[], T]) -> T:
    """Run ``body`` in a worker thread and return what it returns.

    Cancelling ends the waiting, not the thread: it runs to its end, unless it looks at :func:`abandoned`.
    """
    given_up = threading.Event()
    token = _abandoned.set(given_up)  # the thread runs in a copy of this context
    try:
        return await anyio.to_thread.run_sync(body, abandon_on_cancel=True)
    except asyncio.CancelledError:
        given_up.set()
        raise
    finally:
        _abandoned.reset(token)


def abandoned() -> bool:
    """Return whether nobody waits any more for the work of this thread; long loops ask and stop."""
    given_up = _abandoned.get()
    return given_up is not None and given_up.is_set()
