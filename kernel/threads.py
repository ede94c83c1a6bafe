"""Threads belong to the cell that starts them: they run in a copy of the starter's context.

Python 3.14 can do this by itself for ``Thread`` (``-X thread_inherit_context``); the pool needs it per piece of work,
because its threads outlive cells.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from . import forks


def inherit_context() -> None:
    """Make threads and thread pools of this process carry the context of whoever gives them work."""
    start: Any = threading.Thread.start
    submit: Any = ThreadPoolExecutor.submit

    @functools.wraps(start)
    def starting(thread: threading.Thread) -> None:
        thread.run = functools.partial(copy_context().run, thread.run)  # type: ignore[method-assign]
        start(thread)

    @functools.wraps(submit)
    def submitting(pool: ThreadPoolExecutor, work: Any, /, *args: Any, **kwargs: Any) -> Any:
        return submit(pool, copy_context().run, _worked, work, *args, **kwargs)

    threading.Thread.start = starting  # type: ignore[method-assign,assignment]
    ThreadPoolExecutor.submit = submitting  # type: ignore[method-assign,assignment]


def _worked(work: Any, /, *args: Any, **kwargs: Any) -> Any:
    process = os.getpid()
    try:
        return work(*args, **kwargs)
    finally:
        if os.getpid() != process:  # a child forked here would wait for more work, alone, for ever
            forks.leave(sys.exc_info()[1])
