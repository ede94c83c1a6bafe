"""The surface's nodes with what a policy may know of them, kept as entries are appended. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prime import events as ev
from prime import projection
from prime.policies.base import Item
from prime.surface import Node, node_of
from prime.tokens import estimate_message


class Items:
    """What is on the surface, by seq. Each message is projected and measured once."""

    def __init__(self) -> None:
        self._items: dict[int, Item] = {}

    def load(self, entries: Iterable[ev.Entry], pick: Callable[[Sequence[int]], Iterable[ev.Entry]]) -> None:
        """Take in the entries of a surface; ``pick`` gives those of the originals that some of them stand for."""
        for entry in entries:
            original = entry
            while _another_form(original.event):
                (original,) = pick([original.event.sources[0]])
            if entry is original and isinstance(entry.event, ev.SurfaceReplaced):
                self._put(entry, entry.seq, None, None)
            else:
                self._put(entry, original.seq, original.turn, original.step)

    def take(self, entry: ev.Entry) -> None:
        """Take in one more entry of the log, in order; one that is not model-visible changes nothing."""
        if not isinstance(entry.event, ev.SurfaceReplaced):
            self._put(entry, entry.seq, entry.turn, entry.step)
            return
        before = self._items[entry.event.start]
        if _another_form(entry.event):
            self._put(entry, before.origin, before.turn, before.step)
        else:
            self._put(entry, entry.seq, None, None)
        for seq in entry.event.sources:
            self._items.pop(seq, None)

    def of(self, seqs: Iterable[int]) -> list[Item]:
        """Return the items of a surface, in its order."""
        return [self._items[seq] for seq in seqs]

    def _put(self, entry: ev.Entry, origin: int, turn: int | None, step: int | None) -> None:
        event = entry.event
        if isinstance(event, ev.SurfaceReplaced):
            node: Node | None = Node(entry.seq, closes=event.message.call_id)
        else:
            node = node_of(entry.seq, event)
        if node is None:
            return
        message = projection.message(event)
        tokens = estimate_message(message) if message is not None else 0.0
        self._items[entry.seq] = Item(node, origin, turn, step, event, message, tokens)


def _another_form(event: object) -> bool:
    """Tell whether an event shows one result in another form, which keeps the place of the original."""
    return isinstance(event, ev.SurfaceReplaced) and event.message.role == "tool"
