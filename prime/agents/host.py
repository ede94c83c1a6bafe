"""Where children run, as their parent sees it. Nothing here says that it is this process, or this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from prime import events as ev
from prime.agent_events import Outcome, Settlement
from prime.kin import Child
from prime.messages import Frozen

#: ``queued``: waits for others to settle; ``running``; ``settled``: has nothing to do, and can be sent a message.
Standing = Literal["queued", "running", "settled"]


class Record(Frozen):
    """A child, as every call of ``agents`` gives it.

    Attributes:
        agent_id: its session.
        state: whether it waits for its turn, works, or has nothing to do.
        activations: how many times it has settled; the fields below are those of the newest time.
        outcome: None before the first.
        reason: how its last turn ended.
        detail: one line about a reason other than ``completed``.
        text: its last words.
        tokens: used so far.
    """

    agent_id: str
    name: str
    state: Standing
    activations: int
    outcome: Outcome | None
    reason: str
    detail: str
    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A child as its host sees it: its standing, tokens used, and its own children where they were asked for."""

    state: Standing
    tokens: int
    children: tuple[Record, ...] = ()


class Parent(Protocol):
    """Whom a host tells of a child. Each call is in the parent's log when it returns."""

    @property
    def cwd(self) -> str:
        """The folder in which new children work."""
        ...

    def began(self, agent_id: str) -> None:
        """Take notice that the child is at work, or waits for its turn."""
        ...

    def settled(self, agent_id: str, settlement: Settlement) -> None:
        """Take its settlement."""
        ...

    def heard(self, agent_id: str, message: str) -> None:
        """Take a message of its."""
        ...


class ChildHost(Protocol):
    """Runs the children of a family."""

    async def spawn(self, order: ev.ChildSpawned, parent: Parent) -> None:
        """Create the child that ``order`` describes and have it work. One that is there already goes on.

        Raises:
            LogError, OSError: it could not be created.
        """
        ...

    async def resume(self, child: Child, parent: Parent) -> None:
        """Take up a child that an earlier process knew: create it if that did not come to it, tell its settlement if
        the parent has not heard of it, have it go on if it owes one."""
        ...

    async def send(self, agent_id: str, message: str) -> None:
        """Say something to a child, which wakes it when it has settled. It is in its log when this returns.

        Raises:
            LogError, OSError: it was not delivered.
        """
        ...

    async def interrupt(self, agent_id: str) -> None:
        """End its running turn, nothing else; one that waits for its turn is taken out of the queue and settles."""
        ...

    async def snapshot(self, agent_id: str, *, deep: bool = False) -> Seen:
        """Return how it stands, with ``deep`` also its children and theirs."""
        ...

    async def stop(self, agent_id: str) -> None:
        """End its work and that of its children; it has settled when this returns."""
        ...


def record(child: Child, seen: Seen) -> Record:
    """Return a child's record."""
    settled = child.settlement
    return Record(
        agent_id=child.spawned.agent_id,
        name=child.spawned.name,
        state=seen.state,
        activations=child.activations,
        outcome=settled.outcome if settled is not None else None,
        reason=settled.reason if settled is not None else "",
        detail=settled.detail if settled is not None else "",
        text=settled.text if settled is not None else "",
        tokens=seen.tokens,
    )
