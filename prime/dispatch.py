"""The host calls of one cell: which may overlap, in which order they enter the log, and what answers them.

Calls start in submission order. Parallel-safe ones overlap, at most :data:`IN_FLIGHT` at a time; an exclusive one waits
for all before it and blocks all behind it. An answer goes back as soon as it is there. The log gains starts and ends in
submission order, those of a moment in one commit; a call with effects waits until its start is on the disk.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pydantic import ValidationError

from prime import events as ev
from prime.errors import ToolFailed
from prime.log import Log
from prime.repl.signals import Error, HostCall, Outcome, Value
from prime.tools.base import Tool
from prime.tools.catalogue import Catalogue
from prime.tools.workspace import Workspace

#: Calls of a cell that run at the same time; more wait (design: repl, "Lease").
IN_FLIGHT = 16

#: Seconds for which starts and ends are gathered into one commit. A commit costs as much as the rest of a short call,
#: and nobody was told yet that these entries are stored: a cell's result comes after all of them.
GATHER_S = 0.005

_CANCELLED = Error("cancelled", "the call was stopped before it ended; it may have had effects")


@dataclass(slots=True, eq=False)
class _Job:
    call: HostCall
    tool: Tool | None
    started: float = 0.0
    task: asyncio.Task[Outcome] | None = None
    outcome: Outcome | None = None
    duration_s: float = 0.0


class CellCalls:
    """The calls of the cell ``cell``, from its first to :meth:`close`."""

    def __init__(
        self,
        cell: str,
        log: Log,
        catalogue: Catalogue,
        workspace: Workspace,
        answer: Callable[[int, Outcome], Awaitable[None]],
    ) -> None:
        self.count = 0
        self._cell = cell
        self._log = log
        self._catalogue = catalogue
        self._workspace = workspace
        self._answer = answer
        self._waiting: deque[_Job] = deque()
        self._uncommitted: deque[_Job] = deque()
        self._running: dict[int, _Job] = {}
        self._answers: set[asyncio.Task[None]] = set()
        self._pending: list[ev.DispatchStarted | ev.DispatchEnded] = []
        self._commit: asyncio.TimerHandle | None = None
        self._failure: BaseException | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def submit(self, call: HostCall) -> None:
        """Take in a call. It starts when the calls before it allow it."""
        self.count += 1
        try:
            tool = self._catalogue.get(call.target)
        except ToolFailed:
            tool = None  # the job itself reports it, in its place in the order
        self._waiting.append(_Job(call, tool))
        self._idle.clear()
        self._start()

    def cancel(self, call: int) -> None:
        """Stop a call that nobody waits for: a waiting one never starts, a running one is cancelled."""
        for job in self._waiting:
            if job.call.call == call:
                self._waiting.remove(job)
                self._reply(job, _CANCELLED)
                self._start()
                return
        if (running := self._running.get(call)) is not None and running.task is not None:
            running.task.cancel()

    def commit(self) -> None:
        """Put into the log now what has begun, and what has ended and is not held back by an earlier call."""
        self._store(durable=False)

    async def close(self, *, stop: bool) -> None:
        """Wait until every call has its end in the log; with ``stop``, cancel them first.

        Raises:
            LogError: the log could not be written while the calls ran.
        """
        if stop:
            for job in (*self._waiting, *self._running.values()):
                self.cancel(job.call.call)
        await self._idle.wait()
        self.commit()
        if self._answers:
            await asyncio.wait(self._answers)
        if self._failure is not None:
            raise self._failure

    def _start(self) -> None:
        """Start every call that may start now."""
        while self._waiting and self._may_start(self._waiting[0]):
            job = self._waiting.popleft()
            self._pending.append(self._start_event(job))
            if job.tool is not None and job.tool.effects:
                if not self._store(durable=True):
                    return
            else:
                self._gather()
            self._running[job.call.call] = job
            self._uncommitted.append(job)
            job.started = time.monotonic()
            job.task = asyncio.create_task(self._run(job))
            job.task.add_done_callback(lambda _, job=job: self._settle(job))  # type: ignore[misc]
        if not (self._waiting or self._running):
            self._idle.set()

    def _may_start(self, job: _Job) -> bool:
        if any(not _parallel(running) for running in self._running.values()):
            return False
        return len(self._running) < IN_FLIGHT if _parallel(job) else not self._running

    def _gather(self) -> None:
        if self._commit is None:
            self._commit = asyncio.get_running_loop().call_later(GATHER_S, self.commit)

    def _store(self, *, durable: bool) -> bool:
        """Commit what is pending; return whether the log took it."""
        if self._commit is not None:
            self._commit.cancel()
            self._commit = None
        events, self._pending = self._pending, []
        if events:
            try:
                self._log.append(*events, durable=durable)
            except Exception as error:
                self._fail(error)
        return self._failure is None

    def _start_event(self, job: _Job) -> ev.DispatchStarted:
        call = job.call
        try:
            return ev.DispatchStarted(cell=self._cell, call=call.call, target=call.target, arguments=call.arguments)
        except ValidationError:
            # only a forged frame gets here: the kernel's own door lets nothing through that the log refuses
            job.tool = None
            return ev.DispatchStarted(cell=self._cell, call=call.call, target=call.target, arguments={})

    def _end_event(self, job: _Job, outcome: Outcome) -> ev.DispatchEnded:
        error = None
        if isinstance(outcome, Error):
            error = ev.DispatchError(code=outcome.code, message=outcome.message)
        return ev.DispatchEnded(
            cell=self._cell,
            call=job.call.call,
            value=outcome.value if isinstance(outcome, Value) else None,
            error=error,
            duration_s=job.duration_s,
        )

    async def _run(self, job: _Job) -> Outcome:
        outcome: Outcome
        try:
            tool = job.tool or self._catalogue.get(job.call.target)
            outcome = Value(await tool.run(self._workspace, job.call.arguments))
        except ToolFailed as error:
            outcome = Error(error.code, str(error))
        await self._answer(job.call.call, outcome)
        return outcome

    def _settle(self, job: _Job) -> None:
        assert job.task is not None
        job.duration_s = time.monotonic() - job.started
        self._running.pop(job.call.call, None)
        if job.task.cancelled():
            job.outcome = _CANCELLED
            self._reply(job, _CANCELLED)
        elif (error := job.task.exception()) is not None:
            job.outcome = Error("failed", f"{type(error).__name__}: {error}")
            self._reply(job, job.outcome)
        else:
            job.outcome = job.task.result()
        while self._uncommitted and (outcome := self._uncommitted[0].outcome) is not None:
            self._pending.append(self._end_event(self._uncommitted.popleft(), outcome))
            self._gather()
        self._start()

    def _reply(self, job: _Job, outcome: Outcome) -> None:
        task = asyncio.ensure_future(self._answer(job.call.call, outcome))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    def _fail(self, error: Exception) -> None:
        """The log cannot be written: nothing more may happen in this cell."""
        self._failure = error
        refusal = Error("log_failed", f"the session's log cannot be written: {error}")
        for job in (*self._waiting, *self._running.values()):
            self._reply(job, refusal)
            if job.task is not None:
                job.task.cancel()
        self._waiting.clear()
        self._running.clear()
        self._uncommitted.clear()
        self._pending.clear()
        self._idle.set()


def _parallel(job: _Job) -> bool:
    return job.tool is None or job.tool.parallel
