"""The children of one agent, as its cells see them: the namespace ``agents`` but for its queries.

A child is admitted when the parent's log has it, and settles once for each time that it was woken: what its host tells
and the notice for the model enter the log in one commit.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from prime import events as ev
from prime.agent_events import Settlement
from prime.agents.host import ChildHost, Parent, Record, record
from prime.agents.tree import Tree
from prime.errors import LogError, PrimeError, ToolFailed
from prime.kin import Child
from prime.log import Log
from prime.messages import Frozen, TextPart, plain
from prime.notices import Notices
from prime.tools.base import Tool, tool, waiting
from prime.tools.catalogue import INNER, Catalogue

#: Characters of a message between agents: what is longer belongs into a file.
MESSAGE_LIMIT = 8_000
#: Characters of a prompt, and of a name.
PROMPT_LIMIT, NAME_LIMIT = 200_000, 60
#: Characters of a child's last words in the notice; ``agents.collect`` has them whole.
_WORDS = 4_000
#: How a child calls its parent.
PARENT = "parent"


class Collected(Frozen):
    """Children that have settled, and those that are still at work."""

    done: tuple[Record, ...]
    pending: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Rights:
    """What an agent may hand on to its children.

    Attributes:
        catalogue: gives its tools.
        allowed: those that it may call, None for all.
        check_model: raises what is wrong with a model that it chooses.
    """

    catalogue: Callable[[], Catalogue]
    allowed: Collection[str] | None
    check_model: Callable[[str], Awaitable[None]]


class Family:
    """The agent of ``log`` among its kin.

    Args:
        host: where its children run, None in a session without a model.
        tree: what the whole family may do.
        parent: whom to tell, None for a root.
        rights: what it may hand on.
    """

    def __init__(self, log: Log, host: ChildHost | None, tree: Tree, parent: Parent | None, rights: Rights) -> None:
        self.log = log
        self._host = host
        self._tree = tree
        self._parent = parent
        self._rights = rights
        self._at_work: set[str] = set()
        self._closing = False
        self._news = asyncio.Event()

    @property
    def cwd(self) -> str:
        """See :class:`~prime.agents.host.Parent`."""
        return self.log.state.cwd

    @property
    def active(self) -> bool:
        """Whether a child is at work or waits for its turn."""
        return bool(self._at_work)

    async def news(self) -> None:
        """Wait until a child has settled."""
        await self._news.wait()

    def began(self, agent_id: str) -> None:
        """See :class:`~prime.agents.host.Parent`."""
        self._at_work.add(agent_id)
        if not self.log.state.kin.children[agent_id].at_work:
            self.log.append(ev.ChildWoken(agent_id=agent_id))

    def settled(self, agent_id: str, settlement: Settlement) -> None:
        """See :class:`~prime.agents.host.Parent`."""
        name = self.log.state.kin.children[agent_id].spawned.name
        words = settlement.text[:_WORDS] or "(it said nothing)"
        if len(settlement.text) > _WORDS:
            words += f"\n[{len(settlement.text):,} characters; whole: await agents.collect([{agent_id!r}])]"
        end = settlement.outcome + (f" ({settlement.detail})" if settlement.detail else "")
        text = f"Your child {name} ({agent_id}) has settled: {end}. Its last words:\n{words}"
        notice = ev.InputQueued(
            input_id=secrets.token_hex(8),
            kind="notice",
            parts=(TextPart(text=plain(text)),),
            source=_source(agent_id),
            wake=not self._closing,
        )
        self.log.append(ev.ChildSettled(agent_id=agent_id, settlement=settlement), notice, durable=True)
        self._at_work.discard(agent_id)
        news, self._news = self._news, asyncio.Event()
        news.set()

    def heard(self, agent_id: str, message: str) -> None:
        """See :class:`~prime.agents.host.Parent`."""
        name = self.log.state.kin.children[agent_id].spawned.name
        Notices(self.log).give(f"Message of your child {name} ({agent_id}):\n{message}", source=f"{agent_id}.message")

    async def resume(self) -> None:
        """Take up the children that an earlier process left at work."""
        if self._host is not None:
            for child in self.log.state.kin.children.values():
                await self._host.resume(child, self)

    async def close(self) -> None:
        """Stop the children that are at work. Each has settled when this returns, and no further one is admitted."""
        self._closing = True
        if self._host is not None:
            await asyncio.gather(*(self._host.stop(agent_id) for agent_id in sorted(self._at_work)))

    async def records(self, *, deep: bool = False) -> tuple[Record, ...]:
        """Return the records of the children, with ``deep`` each followed by those of its own."""
        found: list[Record] = []
        for child in self.log.state.kin.children.values():
            seen = await self._known_host().snapshot(child.spawned.agent_id, deep=deep)
            found += (record(child, seen), *seen.children)
        return tuple(found)

    async def spawn(
        self,
        prompt: str,
        *,
        name: Annotated[str, Field(min_length=1, max_length=NAME_LIMIT)],
        fork: bool = False,
        model: str | None = None,
        tools: list[str] | None = None,
    ) -> Record:
        """Start an agent that works for you beside you, with a kernel of its own; it sees the prompt only, with
        fork=True this conversation's completed turns too. Returns at once; a notice tells you when it has settled.

        `tools` narrows what it may call, such as ["read", "grep"]; `model` is PROVIDER/NAME, yours by default.
        """
        host = self._known_host()
        if not prompt.strip() or len(prompt) > PROMPT_LIMIT:
            raise ToolFailed("bad_arguments", f"the prompt has {len(prompt):,} characters; give 1 to {PROMPT_LIMIT:,}")
        allowed = self._narrowed(tools)
        if model is not None:
            try:
                await self._rights.check_model(model)
            except PrimeError as error:
                raise ToolFailed("bad_model", str(error)) from error
        # from here to the entry in the log nobody else comes in between
        children = self.log.state.kin.children
        if any(child.spawned.name == name for child in children.values()):
            raise ToolFailed("bad_arguments", f"there is a child {name!r} already; send it a message or choose a name")
        if self._closing:
            raise ToolFailed("closing", "the session is being closed")
        agent_id = f"{self.log.session}.{len(children) + 1}"
        self._tree.admit(agent_id.count("."))
        boundary = self._boundary() if fork else None
        order = ev.ChildSpawned(agent_id=agent_id, name=name, prompt=prompt, fork=boundary, model=model, tools=allowed)
        self.log.append(order, durable=True)
        self._tree.join(agent_id, dict)
        await host.spawn(order, self)
        return await self._record(agent_id)

    async def children(self, scope: Literal["children", "descendants"] = "children") -> tuple[Record, ...]:
        """Return your children as records: agent_id, name, state (queued, running, settled), outcome, text, tokens."""
        return await self.records(deep=scope == "descendants")

    async def send(self, agent_id: str, message: str) -> None:
        """Say something to a child, which wakes it when it has settled; as a child, to "parent". What does not fit into
        8,000 characters goes into a file: send its path."""
        if not message.strip() or len(message) > MESSAGE_LIMIT:
            raise ToolFailed("bad_arguments", f"a message has 1 to {MESSAGE_LIMIT:,} characters, not {len(message):,}")
        if agent_id == PARENT:
            if self._parent is None:
                raise ToolFailed(
                    "not_found", "this agent has no parent; its words at the end of a turn reach the person"
                )
            self._parent.heard(self.log.session, message)
            return
        self._child(agent_id)
        if stop := self._tree.stop(child=True):
            raise ToolFailed(stop.reason, stop.detail)
        try:
            await self._known_host().send(agent_id, message)
        except (LogError, OSError) as error:
            raise ToolFailed("not_delivered", f"the message was not delivered: {error}") from error

    async def interrupt(self, agent_id: str) -> Record:
        """End what a child does now, its running turn, and nothing else: its variables and its own children stay."""
        self._child(agent_id)
        await self._known_host().interrupt(agent_id)
        return await self._record(agent_id)

    async def collect(self, agent_ids: list[str], *, timeout_s: float | None = None) -> Collected:
        """Wait until these children have settled, at most timeout_s seconds; `.done` and `.pending` are their records.
        The wait does not count towards the cell's time."""
        for agent_id in agent_ids:
            self._child(agent_id)
        try:
            async with asyncio.timeout(timeout_s):
                while self._at_work.intersection(agent_ids):
                    await self.news()
        except TimeoutError:
            pass  # what is still at work is part of the answer
        settled = [each for each in agent_ids if each not in self._at_work]
        for agent_id in settled:
            Notices(self.log).withdraw(_source(agent_id))  # the cell has it now
        records = {agent_id: await self._record(agent_id) for agent_id in agent_ids}
        return Collected(
            done=tuple(records[each] for each in settled),
            pending=tuple(found for each, found in records.items() if each not in settled),
        )

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools."""

        def made(call: Callable[..., object], *, name: str | None = None, effects: bool = True) -> Tool:
            return tool(call, name=name, namespace="agents", parallel=True, effects=effects)

        return (
            made(self.spawn),
            made(self.children, name="list", effects=False),
            made(self.send),
            made(self.interrupt),
            waiting(made(self.collect, effects=False)),
        )

    def _known_host(self) -> ChildHost:
        if self._host is None:
            raise ToolFailed("no_model", "this session runs cells without a model; start it with --model")
        return self._host

    def _child(self, agent_id: str) -> Child:
        child = self.log.state.kin.children.get(agent_id)
        if child is None:
            known = ", ".join(self.log.state.kin.children) or "none"
            raise ToolFailed("not_found", f"there is no child {agent_id!r}; there are: {known}")
        return child

    async def _record(self, agent_id: str) -> Record:
        return record(self._child(agent_id), await self._known_host().snapshot(agent_id))

    def _narrowed(self, tools: Collection[str] | None) -> tuple[str, ...] | None:
        """Return the targets of a child: those of ``tools`` that this agent may call itself."""
        if tools is None:
            return None if self._rights.allowed is None else tuple(sorted(self._rights.allowed))
        catalogue = self._rights.catalogue()
        targets = {name if "." in name else f"tools.{name}" for name in tools}
        return tuple(
            sorted(target for target in targets if catalogue.get(target) and target.partition(".")[0] not in INNER)
        )

    def _boundary(self) -> int | None:
        """Return the entry at which the newest completed turn ends, or the variables after it were saved."""
        ended = self.log.store.last(("turn_ended",))
        if ended is None:
            return None
        saved = self.log.store.last(("snapshot_saved",))  # between turns: one after that end is before the running turn
        return ended.seq if saved is None else max(ended.seq, saved.seq)


def _source(agent_id: str) -> str:
    return f"{agent_id}.settled"
