"""A surface on which a policy tries its operations before any of them is in the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prime import events as ev
from prime.messages import Message
from prime.policies.base import Item, Operation, View
from prime.projection import message as projected
from prime.surface import Node


class Draft:
    """The surface of a view as it will be once :attr:`operations` are appended, in order and in one commit.

    Attributes:
        items: the surface so far.
        used: tokens of a request of it.
        operations: what has been asked for so far.
    """

    def __init__(self, view: View) -> None:
        self.items = list(view.items)
        self.used = float(view.used)
        self.operations: list[Operation] = []
        self._view = view

    def replace(self, start: int, stop: int, message: Message, policy: str, *, scope: str | None = None) -> None:
        """Put ``message`` in the place of the items from position ``start`` to before ``stop``."""
        shadowed = self.items[start:stop]
        replaced = ev.SurfaceReplaced(
            start=shadowed[0].seq,
            end=shadowed[-1].seq,
            sources=sources(shadowed),
            message=message,
            policy=policy,
            scope=scope,
        )
        first = shadowed[0]
        node = Node(self._seq(), closes=message.call_id)
        same = message.role == "tool"  # another form of the same result keeps the place of the original
        origin, turn, step = (first.origin, first.turn, first.step) if same else (node.seq, None, None)
        item = Item(node, origin, turn, step, replaced, message, self._view.measure(message))
        self.items[start:stop] = [item]
        self.used += self._view.scale * (item.tokens - sum(each.tokens for each in shadowed))
        self.operations.append(replaced)

    def give(self, notice: ev.NoticeGiven) -> None:
        """Put a notice at the end."""
        said = projected(notice)
        assert said is not None
        node = Node(self._seq())
        item = Item(node, node.seq, self._view.turn, None, notice, said, self._view.measure(said))
        self.items.append(item)
        self.used += self._view.scale * item.tokens
        self.operations.append(notice)

    def _seq(self) -> int:
        return self._view.next_seq + len(self.operations)


def sources(items: Iterable[Item]) -> tuple[int, ...]:
    """Return the seqs that a replacement of ``items`` cites: each of them, and the original of a shorter form."""
    return tuple(dict.fromkeys(seq for item in items for seq in (item.origin, item.seq)))


def balanced(items: Sequence[Item]) -> list[int]:
    """Return the positions at which a surface can be cut without parting a call from its result, in order, both ends
    included where they are such."""
    found, opened = [], list[str]()
    for place, item in enumerate(items):
        if not opened:
            found.append(place)
        if item.node.closes in opened:
            opened.remove(item.node.closes)
        opened.extend(item.node.opens)
    if not opened:
        found.append(len(items))
    return found
