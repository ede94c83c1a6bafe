"""Children in this process: sessions beside their parent's, opened while they have something to do.

A child is resident from its first turn until it settles. Then its session is closed, its variables are in a snapshot,
and its kernel's memory is free; a message opens it again. What it owes and what it has told is in the logs, so that a
process that takes over goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from prime import events as ev
from prime.agent import Agent
from prime.agent_events import Outcome, Settlement
from prime.agents.family import Family
from prime.agents.host import Parent, Record, Seen, Standing, record
from prime.agents.tree import Tree, Used
from prime.errors import PrimeError, SessionNotFound
from prime.kin import Child
from prime.log import Log
from prime.messages import TextPart, plain, text_of
from prime.notices import Notices
from prime.sessions import Sessions
from prime.state import State

_logger = logging.getLogger(__name__)

_OUTCOMES: dict[str, Outcome] = {
    "completed": "completed",
    "cancelled": "cancelled",
    "error": "failed",
    "interrupted": "failed",
    "max_cost": "budget",
    "budget": "budget",
}

_ABOUT = (
    "You work for another agent, as its child {name!r}{fork}. It sees neither your cells nor your words until you are "
    "done: then your last words go to it, so end with the result itself, and name the files that you wrote. "
    '`await agents.send("parent", "...")` is for what cannot wait until then.'
)
_GO_ON = (
    "The process that ran you died while you worked. A cell that ran then may have had effects; look before you repeat "
    "anything, and go on with the task."
)

#: Opens the session of a child and runs its agent in it, under ``parent``.
Opener = Callable[[ev.ChildSpawned, Parent], AbstractAsyncContextManager[tuple[Agent, Family]]]


@dataclass(eq=False)
class _Member:
    """A child. ``lock`` is held while its session is created, opened, written to from outside, or closed. One that is
    ``stopped`` takes up nothing more; it was ``unfinished`` when something was left to do."""

    order: ev.ChildSpawned
    parent: Parent
    activations: int = 0
    state: Standing = "settled"
    agent: Agent | None = None
    family: Family | None = None
    task: asyncio.Task[None] | None = None
    stopped: bool = False
    unfinished: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def agent_id(self) -> str:
        return self.order.agent_id

    def cut(self) -> None:
        """End its turn, and take back what it was told."""
        if self.agent is None or self.family is None:
            return
        pending = self.agent.state.inbox.pending
        self.unfinished |= self.family.active or any(item.kind != "notice" for item in pending)
        for item in pending:
            self.agent.withdraw(item.input_id)
        self.agent.interrupt()


class LocalHost:
    """All children of one root, and theirs. See :class:`~prime.agents.host.ChildHost`."""

    def __init__(self, sessions: Sessions, tree: Tree, open_child: Opener) -> None:
        self._sessions = sessions
        self._tree = tree
        self._open_child = open_child
        self._members: dict[str, _Member] = {}
        self._queue: deque[_Member] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def spawn(self, order: ev.ChildSpawned, parent: Parent) -> None:
        """See :class:`~prime.agents.host.ChildHost`."""
        await self._surely(self._create(self._member(Child(order), parent)))

    async def resume(self, child: Child, parent: Parent) -> None:
        """See :class:`~prime.agents.host.ChildHost`."""
        member = self._member(child, parent)
        try:
            known = await asyncio.to_thread(self._stored, member.agent_id)
        except SessionNotFound:
            if child.settlement is None:  # else somebody has deleted it, or was told that it could not be created
                await self._create(member)
            return
        for agent_id, (_, used) in known.items():
            self._tree.join(agent_id, lambda used=used: used)  # type: ignore[misc]
        state, _ = known[member.agent_id]
        told = state.kin.settlement
        if state.kin.owes:
            self._enqueue(member)
        elif told is not None and told.activation > child.activations:
            self._settle(member, told)

    async def send(self, agent_id: str, message: str) -> None:
        """See :class:`~prime.agents.host.ChildHost`."""
        await self._surely(self._send(self._members[agent_id], message))

    async def interrupt(self, agent_id: str) -> None:
        """See :class:`~prime.agents.host.ChildHost`."""
        await self._surely(self._interrupt(self._members[agent_id]))

    async def snapshot(self, agent_id: str, *, deep: bool = False) -> Seen:
        """See :class:`~prime.agents.host.ChildHost`."""
        member = self._members[agent_id]
        children: tuple[Record, ...] = ()
        if deep and member.family is not None:
            children = await member.family.records(deep=True)
        elif deep:
            children = tuple(await asyncio.to_thread(lambda: list(self._descendants(agent_id))))
        return Seen(member.state, self._tree.tokens(agent_id), children)

    async def stop(self, agent_id: str) -> None:
        """See :class:`~prime.agents.host.ChildHost`."""
        await self._surely(self._stop(self._members[agent_id]))

    async def _surely(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what must not stop halfway, also when whoever asked for it is cancelled."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def _send(self, member: _Member, message: str) -> None:
        async with member.lock:
            if member.agent is not None:
                member.agent.steer(message)
                return
            await asyncio.to_thread(self._tell, member.agent_id, _said("steer", message))
            if member.state == "settled":
                self._enqueue(member)

    async def _interrupt(self, member: _Member) -> None:
        async with member.lock:
            if member.agent is not None:
                member.agent.interrupt()
            elif member.state == "queued":
                await self._drop(member)

    async def _stop(self, member: _Member) -> None:
        async with member.lock:
            member.stopped = True
            if member.state == "queued":
                await self._drop(member)
            member.cut()
        if member.family is not None:
            await member.family.close()
            member.cut()
        if member.task is not None:
            await asyncio.wait({member.task})

    def _member(self, child: Child, parent: Parent) -> _Member:
        member = _Member(child.spawned, parent, child.activations)
        self._members[member.agent_id] = member
        self._tree.join(member.agent_id, dict)
        return member

    async def _create(self, member: _Member) -> None:
        order = member.order
        fork = ", and what is above was its conversation until you were started" if order.fork is not None else ""
        words = _said("ask", order.prompt), _said("notice", _ABOUT.format(name=order.name, fork=fork))
        member.state = "queued"
        member.parent.began(member.agent_id)
        async with member.lock:
            try:
                await asyncio.to_thread(self._sessions.beget, order, member.parent.cwd, *words)
            except (PrimeError, OSError) as error:
                self._lost(member, error)
                return
        self._enqueue(member)

    def _enqueue(self, member: _Member) -> None:
        member.state = "queued"
        member.parent.began(member.agent_id)
        self._queue.append(member)
        self._schedule()

    def _schedule(self) -> None:
        """Have those work that may. One whose own children are at work takes no place, so nobody waits for a place that
        is held by somebody who waits for them."""
        while self._queue and self._busy() < self._tree.bounds.running:
            member = self._queue.popleft()
            member.state = "running"
            member.task = asyncio.create_task(self._run(member))

    def _busy(self) -> int:
        waiting = {each.agent_id.rpartition(".")[0] for each in self._members.values() if each.state != "settled"}
        return sum(each.state == "running" and each.agent_id not in waiting for each in self._members.values())

    async def _run(self, member: _Member) -> None:
        try:
            async with AsyncExitStack() as stack:
                async with member.lock:
                    agent, family = await stack.enter_async_context(self._open_child(member.order, member.parent))
                    log = family.log
                    self._tree.join(member.agent_id, lambda: log.state.usage)
                    self._go_on(agent, log)
                    member.agent, member.family = agent, family
                    if member.stopped:
                        member.cut()
                await self._work(member, agent)
                async with member.lock:
                    member.agent = member.family = None
                    used = log.state.usage
                    self._tree.join(member.agent_id, lambda: used)
                    settlement = _settlement(log, member)
                    log.append(ev.ActivationSettled(settlement=settlement), durable=True)
                    self._settle(member, settlement)
                    await stack.aclose()
        except Exception as error:
            if member.state == "settled":
                _logger.exception("child %s was not closed in good order", member.agent_id)
            else:
                self._lost(member, error)
        finally:
            member.agent = member.family = None

    async def _work(self, member: _Member, agent: Agent) -> None:
        """Wait until the child has nothing left to do, whoever says something to it meanwhile."""
        while True:
            await agent.done()
            if not member.lock.locked():  # else somebody is about to say something
                return
            async with member.lock:
                pass

    def _go_on(self, agent: Agent, log: Log) -> None:
        """Have a child go on whose process died in a turn."""
        ended = log.store.last(("turn_ended", "activation_settled"))
        if ended is None or ended.type != "turn_ended" or agent.state.inbox.wakes:
            return
        (entry,) = log.pick((ended.seq,))
        if entry.event.reason == "interrupted":
            Notices(log).give(_GO_ON, source=f"{agent.session}.resumed")

    def _settle(self, member: _Member, settlement: Settlement) -> None:
        member.state = "settled"
        member.activations = settlement.activation
        member.parent.settled(member.agent_id, settlement)
        self._schedule()

    def _lost(self, member: _Member, error: Exception) -> None:
        detail = f"{type(error).__name__}: {error}"
        _logger.warning("child %s cannot work: %s", member.agent_id, detail)
        lost = Settlement(activation=member.activations + 1, outcome="failed", reason="lost", detail=detail, text="")
        self._settle(member, lost)

    async def _drop(self, member: _Member) -> None:
        """Take a child out of the queue; its words are withdrawn."""
        self._queue.remove(member)
        detail = "it was stopped before it began"
        settlement = Settlement(
            activation=member.activations + 1, outcome="cancelled", reason="cancelled", detail=detail, text=""
        )
        await asyncio.to_thread(self._tell, member.agent_id, ev.ActivationSettled(settlement=settlement))
        self._settle(member, settlement)

    def _tell(self, agent_id: str, *events: ev.InputQueued | ev.ActivationSettled) -> None:
        """Append to the log of a child that is not resident; with its settlement, what it had to do is withdrawn."""
        with self._sessions.open(agent_id) as log:
            settled = any(isinstance(event, ev.ActivationSettled) for event in events)
            old = log.state.inbox.pending if settled else ()
            log.append(*(ev.InputWithdrawn(input_id=item.input_id) for item in old), *events, durable=True)

    def _stored(self, agent_id: str) -> dict[str, tuple[State, Used]]:
        """Return what the logs of a child and of its own children say.

        Raises:
            SessionNotFound: the child was never created.
        """
        with self._sessions.read(agent_id) as store:
            state = Log(store).state
        found: dict[str, tuple[State, Used]] = {agent_id: (state, state.usage)}
        for each in state.kin.children:
            try:
                found |= self._stored(each)
            except SessionNotFound:
                continue  # admitted and not created: the child does that when it goes on
        return found

    def _descendants(self, agent_id: str) -> Iterable[Record]:
        state, _ = self._stored(agent_id)[agent_id]
        for child in state.kin.children.values():
            tokens = self._tree.tokens(child.spawned.agent_id)
            yield record(child, Seen("settled", tokens))
            yield from self._descendants(child.spawned.agent_id)


def _said(kind: ev.InputKind, text: str) -> ev.InputQueued:
    source = "agents" if kind == "notice" else None
    parts = (TextPart(text=plain(text)),)
    return ev.InputQueued(input_id=secrets.token_hex(8), kind=kind, parts=parts, source=source, wake=kind != "notice")


def _settlement(log: Log, member: _Member) -> Settlement:
    """Return what came of the work of a child since it settled last."""
    before = log.store.last(("activation_settled", "session_forked"))
    entries = log.entries(before.seq + 1 if before is not None else 0, types=("model_replied", "turn_ended"))
    reason, detail, text = "cancelled", "it was stopped before it began", ""
    for entry in entries:
        if isinstance(entry.event, ev.TurnEnded):
            reason, detail = entry.event.reason, entry.event.detail
        else:
            text = text_of(entry.event.parts) or text
    if left := [job.label for job in log.state.running.alive]:
        detail = f"{detail}; ended with it: {', '.join(left)}".lstrip("; ")
    if member.unfinished and reason == "completed":
        reason, detail = "cancelled", "it was stopped before it had done everything"
    told = log.state.kin.settlement
    activation = max(member.activations, told.activation if told is not None else 0) + 1
    return Settlement(
        activation=activation, outcome=_OUTCOMES.get(reason, "limit"), reason=reason, detail=detail, text=text
    )
