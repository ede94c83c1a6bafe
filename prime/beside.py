"""The jobs and the terminals of a session, which share their numbers and end together."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType

from prime.jobs.commands import Jobs
from prime.jobs.numbers import Numbers
from prime.log import Log
from prime.terminals.commands import Terminals
from prime.tools.base import Tool


class Beside:
    """What runs beside the cells of one session. Use as an async context manager: what runs at the end of the block is
    ended. ``folder`` is the session's own."""

    def __init__(self, log: Log, folder: Path) -> None:
        numbers = Numbers(log)
        self._jobs = Jobs(log, numbers, folder / "jobs")
        self._terminals = Terminals(log, numbers)
        self._stack = AsyncExitStack()

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools of both."""
        return (*self._jobs.tools(), *self._terminals.tools())

    async def __aenter__(self) -> Beside:
        await self._stack.enter_async_context(self._jobs)
        await self._stack.enter_async_context(self._terminals)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
