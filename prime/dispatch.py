"""The host calls of one cell: which may overlap, in which order they enter the log, and what answers them.

Calls start in submission order. Parallel-safe ones overlap, at most :data:`IN_FLIGHT` at a time; an exclusive one waits
for all before it and blocks all behind it. An answer goes back as soon as it is there. The log gains starts and ends in
submission order, those of a moment in one commit; a call with effects waits until its start is on the disk.

Before that the gate decides whether it may begin. When somebody has to be asked, the calls behind it wait too:
questions come one at a time, in order.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import ValidationError

from prime import events as ev
from prime.approvals import Approval, Gate, Verdict
from prime.errors import ToolFailed
from prime.log import Log
from prime.messages import plain
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
_NEVER_BEGAN = Error("cancelled", "the call was stopped before it began; it had no effects")
_NOT_JSON = Error("bad_arguments", "the arguments are not JSON that the log can hold")


@dataclass(slots=True, eq=False)
class _Job:
    call: HostCall
    tool: Tool | None
    refusal: Error | None = None
    started: float = 0.0
    task: asyncio.Task[None] | None = None
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
        gate: Gate | None = None,
        hold: Callable[[int, bool], None] = lambda call, held: None,
    ) -> None:
        """``gate`` decides which may begin, all by default; ``hold`` is told when a call begins to wait for a person,
        and when it does so no longer."""
        self.count = 0
        self._cell = cell
        self._log = log
        self._catalogue = catalogue
        self._workspace = workspace
        self._answer = answer
        self._gate = gate or Gate()
        self._hold = hold
        self._asked: tuple[int, asyncio.Task[Verdict]] | None = None
        self._waiting: deque[_Job] = deque()
        self._uncommitted: deque[_Job] = deque()
        self._running: dict[int, _Job] = {}
        self._answers: set[asyncio.Task[None]] = set()
        self._pending: list[Any] = []
        self._commit: asyncio.TimerHandle | None = None
        self._refusal: Error | None = None
        self._failure: BaseException | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def submit(self, call: HostCall) -> None:
        """Take in a call. It starts when the calls before it allow it, and never once the cell is being stopped."""
        self.count += 1
        try:
            tool = self._catalogue.get(call.target)
        except ToolFailed:
            tool = None  # the job itself reports it, in its place in the order
        job = _Job(call, tool)
        if self._refusal is not None:
            self._reply(job, self._refusal)
            return
        self._waiting.append(job)
        self._idle.clear()
        self._start()

    def cancel(self, call: int) -> None:
        """Stop a call that nobody waits for: a waiting one never starts, a running one is cancelled."""
        for job in self._waiting:
            if job.call.call == call:
                self._waiting.remove(job)
                self._reply(job, _NEVER_BEGAN)
                self._start()
                return
        if self._asked is not None and self._asked[0] == call:
            self._asked[1].cancel()
        running = self._running.get(call)
        # one that has its outcome is being answered: cancelling it now would answer twice
        if running is not None and running.task is not None and running.outcome is None:
            running.task.cancel()

    def commit(self) -> None:
        """Put into the log now what has begun, and what has ended and is not held back by an earlier call."""
        self._store(durable=False)

    async def close(self, *, stop: bool) -> None:
        """Wait until every call has its end in the log; with ``stop``, cancel them first and take in no more.

        Raises:
            LogError: the log could not be written while the calls ran.
        """
        if stop:
            self._stop(_NEVER_BEGAN)
        await self._idle.wait()
        self.commit()
        while self._answers:
            await asyncio.wait(self._answers)
        if self._failure is not None:
            raise self._failure

    def _stop(self, refusal: Error) -> None:
        self._refusal = self._refusal or refusal
        while self._waiting:
            self._reply(self._waiting.popleft(), refusal)
        if self._asked is not None:
            self._asked[1].cancel()
        for job in (*self._running.values(),):
            self.cancel(job.call.call)
        self._start()

    def _start(self) -> None:
        """Start every call that may start now."""
        while self._asked is None and self._waiting and self._may_start(self._waiting[0]):
            job = self._waiting.popleft()
            decision = None
            if job.tool is not None:
                decision = self._gate.decide(job.tool, job.call.arguments, self._workspace)
            started = self._start_event(job, decision.rule if decision is not None else None)
            if decision is None or decision.effect == "allow" or job.refusal is not None:
                self._begin(job, started)
            elif decision.effect == "ask":
                self._ask(job, started)
            else:
                self._refuse(job, started, self._gate.refusal(job.call.target, decision))
        if not (self._waiting or self._running or self._asked):
            self._idle.set()

    def _begin(self, job: _Job, started: ev.DispatchStarted) -> None:
        self._pending.append(started)
        if job.tool is not None and job.tool.effects:
            if not self._store(durable=True):
                self._reply(job, self._refusal or _NEVER_BEGAN)
                return
        else:
            self._gather()
        self._running[job.call.call] = job
        self._uncommitted.append(job)
        job.started = time.monotonic()
        job.task = asyncio.create_task(self._run(job))
        job.task.add_done_callback(lambda _: self._settle(job))

    def _ask(self, job: _Job, started: ev.DispatchStarted) -> None:
        """Have somebody decide. Until then the call has not begun."""
        call, rule = job.call, started.gate or ""
        approval = Approval(f"{self._cell}/{call.call}", call.target, call.arguments, rule)
        request = ev.ApprovalRequested(approval_id=approval.id, rule=rule, **_of(started))
        self._pending.append(request)
        if not self._store(durable=False):
            self._reply(job, self._refusal or _NEVER_BEGAN)
            return
        self._hold(call.call, True)
        task = asyncio.create_task(self._gate.ask(approval))
        self._asked = call.call, task
        task.add_done_callback(lambda task: self._told(job, started, approval, task))

    def _told(self, job: _Job, started: ev.DispatchStarted, approval: Approval, task: asyncio.Task[Verdict]) -> None:
        """Take the answer of whoever was asked."""
        self._asked = None
        self._hold(job.call.call, False)
        verdict = None if task.cancelled() or self._refusal is not None else task.result()
        self._pending.append(
            ev.ApprovalGiven(
                approval_id=approval.id,
                outcome="withdrawn" if verdict is None else "allowed" if verdict.allowed else "denied",
                scope="session" if verdict is not None and verdict.allowed and verdict.always else "once",
                by=plain(verdict.by) if verdict is not None else "nobody",
            )
        )
        if verdict is None:
            self._gather()
            self._reply(job, self._refusal or _NEVER_BEGAN)
        elif verdict.allowed:
            if verdict.always:
                self._gate.remember(approval)
            self._begin(job, started)
        else:
            self._refuse(job, started, f"{approval.target} was denied by {plain(verdict.by)}; it did not begin")
        self._start()

    def _refuse(self, job: _Job, started: ev.DispatchStarted, reason: str) -> None:
        self._pending.append(ev.DispatchRefused(rule=started.gate or "", reason=reason, **_of(started)))
        self._gather()
        self._reply(job, Error("denied", reason))

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
                return False
        return True

    def _start_event(self, job: _Job, gate: str | None) -> ev.DispatchStarted:
        call = job.call
        start = partial(ev.DispatchStarted, cell=self._cell, call=call.call, target=call.target, gate=gate)
        try:
            return start(arguments=call.arguments)
        except ValidationError:
            # the kernel's own door lets nothing through that the log refuses, but it is not trusted to
            job.refusal = _NOT_JSON
            return start(arguments={})

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

    async def _run(self, job: _Job) -> None:
        outcome: Outcome
        try:
            if job.refusal is not None:
                outcome = job.refusal
            else:
                tool = job.tool or self._catalogue.get(job.call.target)
                outcome = Value(await tool.run(self._workspace, job.call.arguments))
        except ToolFailed as error:
            outcome = Error(error.code, plain(str(error)))
        self._decide(job, outcome)
        await self._answer(job.call.call, outcome)

    def _decide(self, job: _Job, outcome: Outcome) -> None:
        job.outcome = outcome
        job.duration_s = time.monotonic() - job.started
        # before the answer leaves: what a cell shows of a value is looked up in the log, however slow the host is
        while self._uncommitted and (ended := self._uncommitted[0].outcome) is not None:
            self._pending.append(self._end_event(self._uncommitted.popleft(), ended))
            self._gather()

    def _settle(self, job: _Job) -> None:
        assert job.task is not None
        self._running.pop(job.call.call, None)
        error = None if job.task.cancelled() else job.task.exception()
        if job.outcome is None:
            outcome = Error("failed", plain(f"{type(error).__name__}: {error}")) if error is not None else _CANCELLED
            self._decide(job, outcome)
            self._reply(job, outcome)
        elif error is not None:
            self._failure = self._failure or error
        self._start()

    def _reply(self, job: _Job, outcome: Outcome) -> None:
        task = asyncio.ensure_future(self._answer(job.call.call, outcome))
        self._answers.add(task)
        task.add_done_callback(self._replied)

    def _replied(self, task: asyncio.Task[None]) -> None:
        self._answers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error

    def _fail(self, error: Exception) -> None:
        """The log cannot be written: nothing more may happen in this cell."""
        self._failure = self._failure or error
        self._pending.clear()
        self._uncommitted.clear()
        self._stop(Error("log_failed", plain(f"the session's log cannot be written: {error}")))


def _of(started: ev.DispatchStarted) -> dict[str, Any]:
    """Return which call it is, as other events say it."""
    return {name: getattr(started, name) for name in ("cell", "call", "target", "arguments")}


def _parallel(job: _Job) -> bool:
    return job.tool is None or job.tool.parallel
