"""The surface: which entries are messages of the next request, in which order. Pure.

An append pushes a node; a replacement puts one node in the place of a contiguous range and cites every entry that it
shadows. The log itself is never touched: the surface is a fold over it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from prime import events as ev
from prime.errors import SurfaceError
from prime.messages import CallPart


@dataclass(frozen=True, slots=True)
class Node:
    """An entry on the surface. ``opens`` are the calls that it asks for, ``closes`` the one that it answers."""

    seq: int
    opens: tuple[str, ...] = ()
    closes: str | None = None


class Surface:
    """An ordered list of nodes, kept by :meth:`apply`."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes in order."""
        return tuple(self._nodes)

    @property
    def seqs(self) -> tuple[int, ...]:
        """The seqs in order; after a replacement they need not rise."""
        return tuple(node.seq for node in self._nodes)

    def apply(self, seq: int, event: Any) -> Callable[[], None] | None:
        """Take in the event at ``seq``. Return how to take it back, or None when it does not touch the surface.

        Raises:
            SurfaceError: a replacement that may not be; nothing has changed.
        """
        if isinstance(event, ev.SurfaceReplaced):
            return self._replace(seq, event)
        node = node_of(seq, event)
        if node is None:
            return None
        self._nodes.append(node)
        return self._nodes.pop  # type: ignore[return-value]

    def _replace(self, seq: int, event: ev.SurfaceReplaced) -> Callable[[], None]:
        places = {node.seq: place for place, node in enumerate(self._nodes)}
        if event.start not in places or event.end not in places:
            raise SurfaceError(f"entries {event.start} and {event.end} are not both on the surface")
        start, stop = places[event.start], places[event.end] + 1
        if start >= stop:
            raise SurfaceError(f"entry {event.start} comes after entry {event.end} on the surface")
        shadowed = self._nodes[start:stop]
        if len(set(event.sources)) != len(event.sources) or not all(0 <= source < seq for source in event.sources):
            raise SurfaceError("sources are distinct and earlier than the replacement")
        if missing := {node.seq for node in shadowed} - set(event.sources):
            raise SurfaceError(f"the sources leave out entry {min(missing)}, which would be shadowed")
        node = _stand_in(seq, event, shadowed)
        self._nodes[start:stop] = [node]

        def undo() -> None:
            self._nodes[start : start + 1] = shadowed

        return undo


def node_of(seq: int, event: Any) -> Node | None:
    """Return the node that an event appends, None for one that is not model-visible by itself."""
    if isinstance(event, (ev.UserSaid, ev.NoticeGiven)):
        return Node(seq)
    if isinstance(event, ev.ModelReplied):
        return Node(seq, opens=tuple(part.call_id for part in event.parts if isinstance(part, CallPart)))
    if isinstance(event, ev.CallRefused) or (isinstance(event, ev.CellEnded) and event.call_id is not None):
        return Node(seq, closes=event.call_id)
    return None


def visible(seq: int, event: Any) -> bool:
    """Tell whether an event puts a node on the surface, by itself or in the place of others."""
    return isinstance(event, ev.SurfaceReplaced) or node_of(seq, event) is not None


def fold(entries: Iterable[ev.Entry]) -> Surface:
    """Return the surface of a log, folded from its start.

    Raises:
        SurfaceError: the same that the append would have raised.
    """
    surface = Surface()
    for entry in entries:
        surface.apply(entry.seq, entry.event)
    return surface


def _stand_in(seq: int, event: ev.SurfaceReplaced, shadowed: list[Node]) -> Node:
    """Return the replacing node; a call and its result leave together, or only the content of one result changes."""
    role, call_id = event.message.role, event.message.call_id
    if any(isinstance(part, CallPart) for part in event.message.parts):
        raise SurfaceError("a replacement asks for no calls")
    if role == "tool":
        if len(shadowed) != 1 or call_id is None or shadowed[0].closes != call_id:
            raise SurfaceError("a result may only be replaced by another form of the same result")
        return Node(seq, closes=call_id)
    if not whole(shadowed):
        raise SurfaceError("a replacement may not part a call from its result")
    if role != "user" or call_id is not None:
        raise SurfaceError("what stands in for a range is a message in the user's role")
    return Node(seq)


def whole(nodes: list[Node]) -> bool:
    """Tell whether every call of ``nodes`` has its result among them, after it.

    Ids repeat: some models count from 0 in each reply.
    """
    opened: list[str] = []
    for node in nodes:
        if node.closes is not None:
            if node.closes not in opened:
                return False
            opened.remove(node.closes)
        opened.extend(node.opens)
    return not opened
