"""What a log says of the agent's family: its parent, its children, and what it owes its parent. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from prime import events as ev
from prime.agent_events import Settlement
from prime.errors import TraceError


@dataclass(frozen=True, slots=True)
class Child:
    """A child as its parent's log knows it: how it was started, what it told last, and whether it is at work."""

    spawned: ev.ChildSpawned
    settlement: Settlement | None = None
    at_work: bool = True

    @property
    def activations(self) -> int:
        """How many times it has settled."""
        return self.settlement.activation if self.settlement is not None else 0


def _nobody() -> Mapping[str, Child]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Kin:
    """The family of one session.

    Attributes:
        parent: session of the agent that has made this one for a child, None for nobody's child.
        children: by their sessions, in the order in which they were admitted.
        settlement: the newest one of this session itself.
        owes: whether it has been told something since: a settlement is due.
    """

    parent: str | None = None
    children: Mapping[str, Child] = field(default_factory=_nobody)
    settlement: Settlement | None = None
    owes: bool = False

    def after(self, event: Any) -> Kin:
        """Return the family after ``event``.

        Raises:
            TraceError: a child admitted twice or not at all, or a settlement that was there before.
        """
        if isinstance(event, ev.SessionCreated):
            return Kin(event.parent)
        if isinstance(event, ev.SessionForked):
            return Kin(event.parent if event.child else None)
        if isinstance(event, ev.InputQueued):
            return replace(self, owes=True)
        if isinstance(event, ev.ActivationSettled):
            if self.settlement is not None and event.settlement.activation <= self.settlement.activation:
                raise TraceError(f"activation {event.settlement.activation} is settled already")
            return replace(self, settlement=event.settlement, owes=False)
        if isinstance(event, ev.ChildSpawned):
            if event.agent_id in self.children:
                raise TraceError(f"child {event.agent_id} is there already")
            return self._with(Child(event))
        if isinstance(event, ev.ChildSettled):
            child = self.children.get(event.agent_id)
            if child is None or event.settlement.activation <= child.activations:
                raise TraceError(f"activation {event.settlement.activation} of {event.agent_id} is not to be told here")
            return self._with(replace(child, settlement=event.settlement, at_work=False))
        if isinstance(event, ev.ChildWoken):
            if event.agent_id not in self.children:
                raise TraceError(f"there is no child {event.agent_id}")
            return self._with(replace(self.children[event.agent_id], at_work=True))
        return self

    def lines(self) -> Iterator[str]:
        """Yield a line for each child that is at work: what a model that has lost sight of it must know."""
        for agent_id, child in self.children.items():
            if child.at_work:
                call = f"await agents.collect([{agent_id!r}])"
                yield f"At work: child {child.spawned.name} ({agent_id}); `{call}` waits for it."

    def _with(self, child: Child) -> Kin:
        return replace(self, children=MappingProxyType({**self.children, child.spawned.agent_id: child}))
