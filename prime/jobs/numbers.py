"""Numbers for what starts beside the cells, one after the other, and how many there may be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prime.errors import ToolFailed
from prime.log import Log

#: Jobs and terminals that run at a time, and those of a session.
ACTIVE, TOTAL = 32, 1_024


class Numbers:
    """Gives the numbers of one session."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._starting = asyncio.Lock()

    @asynccontextmanager
    async def next(self) -> AsyncIterator[int]:
        """Give the number that the job gets which is started in the block; nothing else is started meanwhile.

        Raises:
            ToolFailed: ``too_many``.
        """
        async with self._starting:
            running = self._log.state.running
            if len(running.alive) >= ACTIVE or running.begun >= TOTAL:
                raise ToolFailed(
                    "too_many", f"{ACTIVE} jobs may run at a time, and {TOTAL:,} in a session; wait for one or end it"
                )
            yield running.begun + 1
