"""Many kernels beside each other: how many may start at once, and how many may live."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from prime.errors import TooManyKernels
from prime.repl.template import Template

#: Kernels alive at once. Each takes about 30 MB of memory of its own (``bench.kernel``).
MAX_KERNELS = 32


class Member(Protocol):
    """One that owns at most one kernel."""

    @property
    def alive(self) -> bool:
        """Whether it has a kernel."""
        ...

    async def give_up(self, reason: str) -> bool:
        """End its kernel if nobody would miss it, and tell whether that was so."""
        ...


class Pool:
    """The kernels of one family of agents.

    Starting one keeps a core busy for half a second. More starts than cores would only slow each other down, up to the
    time that a start may take; they wait here instead, in order, and their time begins with their turn.
    """

    def __init__(
        self, max_kernels: int = MAX_KERNELS, starts: int | None = None, template: Template | None = None
    ) -> None:
        """Make an empty pool.

        Args:
            max_kernels: kernels alive at once.
            starts: kernels that start at once; by default as many as there are cores, and two at least.
            template: what forks them; without one each is started directly.
        """
        self.template = template
        self._most = max_kernels
        self._gate = asyncio.Semaphore(starts or max(2, cores()))
        self._starting: set[Member] = set()
        self._members: dict[Member, None] = {}  # the least recently used first

    @asynccontextmanager
    async def starting(self, member: Member) -> AsyncIterator[None]:
        """Wait for a turn to start a kernel, and hold it for the block.

        Raises:
            TooManyKernels: there are as many as may be, and each of them is needed.
        """
        async with self._gate:
            await self._make_room(member)
            self._starting.add(member)
            self.used(member)
            try:
                yield
            finally:
                self._starting.discard(member)

    def used(self, member: Member) -> None:
        """Take notice that ``member`` is the one that was used last."""
        self._members.pop(member, None)
        self._members[member] = None

    def leave(self, member: Member) -> None:
        """Forget a member, whose kernel is closed."""
        self._members.pop(member, None)

    async def close(self) -> None:
        """End the template. The kernels are their owners' to close."""
        if self.template is not None:
            await self.template.close()

    async def _make_room(self, member: Member) -> None:
        while self._full(member):
            for other in [each for each in self._members if each is not member]:
                if await other.give_up("closed while idle and empty, to make room for another kernel"):
                    break
            else:
                raise TooManyKernels(
                    f"all {self._most} kernels are alive, and each runs a cell or holds variables; "
                    "close an agent that is done, or raise the setting max_kernels"
                )

    def _full(self, member: Member) -> bool:
        others = [each for each in self._members if each is not member]
        return sum(each.alive or each in self._starting for each in others) >= self._most


def cores() -> int:
    """Return how many processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS has no affinity
