"""A child that a cell forks may run the rest of the cell, and no more.

``os.fork`` copies the whole kernel. A child that came back into its event loop would be a second kernel on the same
sockets, and the parent's ``os.waitpid`` would wait for it for ever.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import NoReturn

#: The exit code of a child that awaits: only the parent's event loop could go on with it.
AWAITED = 70

_child = threading.Event()


def forked() -> bool:
    """Tell whether this process is a forked child of the kernel."""
    return _child.is_set()


def watch(loop: asyncio.AbstractEventLoop) -> None:
    """End every forked child that comes back into ``loop``, the one that runs the cells."""
    os.register_at_fork(after_in_child=_child.set)
    os.register_at_fork(after_in_child=lambda: loop.call_soon(os._exit, AWAITED))


def leave(error: BaseException | None) -> NoReturn:
    """End this process as ``error``, or its absence, ends a program."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(_exit_code(error))


def _exit_code(error: BaseException | None) -> int:
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1
