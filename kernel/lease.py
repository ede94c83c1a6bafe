"""Leases: the authority of one cell to call the host and to publish output.

A cell's lease travels in a context variable, so the tasks and threads it starts carry it with them, and keep carrying
it, ended, into the time of the next cell.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING

from .meter import Meter

if TYPE_CHECKING:
    from .bridge import Call


class Lease:
    """The authority of the cell ``cell``.

    Attributes:
        foreign: of a cell that another client of this kernel sent: it has its own meter and no authority at all.
        ended: set once, at the end of the cell, under ``lock``; nothing is accepted after it.
        calls: host calls accepted so far.
        pending: accepted calls that have not settled, by number.
        failures: calls that settled in failure, in that order.
        on_quiet: called, in the reader thread, whenever the last pending call has settled.
    """

    def __init__(self, cell: str, max_calls: int, output_limit: int, *, foreign: bool = False) -> None:
        self.cell = cell
        self.foreign = foreign
        self.max_calls = max_calls
        self.meter = Meter(output_limit)
        self.lock = threading.Lock()
        self.ended = foreign
        self.calls = 0
        self.pending: dict[int, Call] = {}
        self.failures: list[Call] = []
        self.on_quiet: Callable[[], None] | None = None

    def end(self) -> bool:
        """End the lease if no call is pending; tell whether it has ended."""
        with self.lock:
            if not self.pending:
                self.ended = True
            return self.ended

    def abandon(self) -> list[Call]:
        """End the lease now and return the calls that were still pending."""
        with self.lock:
            self.ended = True
            left = list(self.pending.values())
            self.pending.clear()
            return left


_carried: ContextVar[Lease | None] = ContextVar("prime_lease", default=None)
_running: Lease | None = None


def begin(lease: Lease) -> None:
    """Make ``lease`` the one of the calling context and of the running cell."""
    global _running  # noqa: PLW0603 - one cell runs at a time in a process
    _carried.set(lease)
    _running = lease


def carried() -> Lease | None:
    """Return the lease that the calling task or thread belongs to, ended or not."""
    return _carried.get()


def meter() -> Meter | None:
    """Return the meter that output written here counts against: of the cell that the writer belongs to, else (a thread
    that watches a file descriptor) of the latest cell. None before the first cell."""
    lease = _carried.get() or _running
    return None if lease is None else lease.meter
