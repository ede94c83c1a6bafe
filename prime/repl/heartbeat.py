"""Tells a kernel process that is stuck from one that is busy.

ipykernel echoes what comes to its heartbeat channel from a thread that needs no interpreter lock, so also a cell that
sits in C code for minutes answers. What does not answer is stopped, or so swapped out that it never gets on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

#: Beats within the patience: one that is late by the host's own fault is not held against the kernel.
_BEATS = 6


class Heartbeat:
    """Beats while a cell runs, and at no other time.

    Args:
        patience_s: seconds of silence that mean that the process is stuck. A kernel is asked for the first time a sixth
            of it after its cell began: short cells pay nothing.
        ask: send a beat.
        stuck: called once when nothing has come back.
    """

    def __init__(self, patience_s: float, ask: Callable[[], None], stuck: Callable[[], None]) -> None:
        self._interval_s = patience_s / _BEATS
        self._ask = ask
        self._stuck = stuck
        self._timer: asyncio.TimerHandle | None = None
        self._unanswered = 0

    def start(self) -> None:
        """A cell has begun."""
        self.stop()
        self._unanswered = 0
        self._wait()

    def stop(self) -> None:
        """It has ended. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def answered(self) -> None:
        """A beat has come back."""
        self._unanswered = 0

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._beat)

    def _beat(self) -> None:
        # counted, not timed: a host that was itself stopped has missed beats, and nobody's answers
        if self._unanswered >= _BEATS:
            self._timer = None
            self._stuck()
            return
        self._unanswered += 1
        self._ask()
        self._wait()
