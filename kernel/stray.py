"""What no caller hears of: errors that end a thread or a task, and warnings. They are printed, short."""

from __future__ import annotations

import asyncio
import sys
import threading
import warnings
from collections import Counter
from contextvars import copy_context
from typing import Any

from . import failure

#: Warnings of one line of code that a cell shows.
_SHOWN = 3

_seen: Counter[tuple[str, int]] = Counter()
#: The context of the latest cell: the loop's own knows of no cell, and its output would belong to nobody.
_cell = copy_context()


def watch(loop: asyncio.AbstractEventLoop) -> None:
    """Print errors of threads, of the tasks of ``loop``, and warnings, in this process from now on."""
    threading.excepthook = _thread_failed
    loop.set_exception_handler(_task_failed)
    warnings.showwarning = _warned
    # IPython's advice after sys.exit() is wrong here; widgets are missing on purpose, and tqdm does well without
    warnings.filterwarnings("ignore", message="To exit: use")
    warnings.filterwarnings("ignore", message="IProgress not found")


def begin_cell() -> None:
    """Show warnings anew; what the event loop has to say belongs to the calling context from now on."""
    global _cell  # noqa: PLW0603 - one cell runs at a time in a process
    _seen.clear()
    _cell = copy_context()


def _print(text: str) -> None:
    if sys.stderr is not None:
        print(text, file=sys.stderr)


def _thread_failed(failed: Any) -> None:
    if failed.exc_value is not None and not isinstance(failed.exc_value, SystemExit):
        name = failed.thread.name if failed.thread is not None else "unknown"
        _print(f"The thread {name} ended with an error:\n{failure.render(failed.exc_value, None)}")


def _task_failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if error is None:
        loop.default_exception_handler(context)
        return
    task = context.get("task") or context.get("future")
    name = f"The task {task.get_name()}" if isinstance(task, asyncio.Task) else "A callback of the event loop"
    _cell.copy().run(_print, f"{name} ended with an error that nobody awaited:\n{failure.render(error, None)}")


def _warned(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    if file is not None:
        file.write(warnings.formatwarning(message, category, filename, lineno, line))
        return
    _seen[filename, lineno] += 1
    count = _seen[filename, lineno]
    if count <= _SHOWN:
        text = str(message)
        text = text if len(text) <= 500 else f"{text[:490]} ... [cut]"
        more = "\n[further warnings of this line are not shown]" if count == _SHOWN else ""
        _print(f"{failure.place(filename)} line {lineno}: {category.__name__}: {text}{more}")
