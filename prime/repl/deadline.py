"""The deadline of a cell, in which waiting for what has limits of its own does not count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

#: Least seconds between two looks at the processor time.
_LOOK_S = 0.1


class Deadline:
    """Counts a cell's time and calls ``expired`` when it is over, once.

    Outside of exempt waits every second counts. While one is open only the processor time of the kernel does: a cell
    that waits uses none, one that computes beside the wait still comes to its end.
    """

    def __init__(self, seconds: float, cpu_s: Callable[[], float], expired: Callable[[], None]) -> None:
        """Start to count. ``cpu_s`` gives the processor seconds that the kernel process has used."""
        self._left = seconds
        self._cpu_s = cpu_s
        self._expired = expired
        self._loop = asyncio.get_running_loop()
        self._open: set[Hashable] = set()
        self._since = self._clock()
        self._timer = self._loop.call_later(seconds, self._look)

    def begin(self, wait: Hashable) -> None:
        """An exempt wait has begun: a call, or something else that can be told from all others."""
        self._count()
        self._open.add(wait)
        self._arm()

    def end(self, wait: Hashable) -> None:
        """It is over, exempt or not."""
        if wait in self._open:
            self._count()
            self._open.remove(wait)
            self._arm()

    def cancel(self) -> None:
        """Stop counting. Idempotent."""
        self._timer.cancel()

    def _clock(self) -> float:
        return self._cpu_s() if self._open else self._loop.time()

    def _count(self) -> None:
        self._left -= self._clock() - self._since

    def _arm(self) -> None:
        self._timer.cancel()
        self._since = self._clock()
        self._timer = self._loop.call_later(max(self._left, _LOOK_S if self._open else 0), self._look)

    def _look(self) -> None:
        self._count()
        if self._left > 0:
            self._arm()
        else:
            self._expired()
