"""``context.names``: what lives in the kernel, and what the cells have changed in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from prime import events as ev
from prime.errors import ToolFailed
from prime.log import Log
from prime.messages import Frozen
from prime.state import Kernel
from prime.tools.base import Tool, tool

#: Most names of one answer.
MAX_NAMES = 200

#: Gives the names alive with their types and sizes, and how many there are besides; None when the kernel cannot say.
Look = Callable[[], Awaitable[tuple[Sequence[tuple[str, str]], int] | None]]


class Named(Frozen):
    """A variable; ``kind`` is its type and, where it has one, its size, such as ``list[3]``."""

    name: str
    kind: str


class Alive(Frozen):
    """Names of the kernel; ``further`` counts those left out. ``removed`` are gone since the entry that was asked for:
    deleted, or lost with an earlier kernel process."""

    names: tuple[Named, ...]
    further: int
    removed: tuple[str, ...]


class Namespace:
    """The kernel's variables as the model may ask about them."""

    def __init__(self, log: Log, look: Look) -> None:
        self._log = log
        self._look = look

    async def names(self, *, since: int | None = None) -> Alive:
        """Return the variables alive, with types and sizes. With the seq of an entry in since= (a note's written_at, a
        hit's seq) only those that cells bound or removed after it, without the running cell."""
        if since is not None:
            return self._changed(since)
        seen = await self._look()
        if seen is None:
            raise ToolFailed("no_answer", "the kernel is busy in code that cannot be interrupted; ask again after it")
        found, further = seen
        return _alive(found, further, ())

    def _changed(self, since: int) -> Alive:
        if not 0 <= since < len(self._log):
            raise ToolFailed("not_found", f"there is no entry {since}; this session has 0 to {len(self._log) - 1}")
        before = now = Kernel()
        changed: dict[str, str] = {}
        for entry in self._log.entries(types=("cell_ended", "snapshot_saved", "namespace_restored")):
            event = entry.event
            if isinstance(event, ev.CellEnded) and event.generation not in (None, now.ran):
                changed.clear()  # they went with the kernel process that had them
            now = now.after(entry.seq, event)
            if entry.seq <= since:
                before = now
                continue
            if isinstance(event, ev.NamespaceRestored):
                changed = {name: kind for name, kind in changed.items() if name in event.restored}
            if not isinstance(event, ev.CellEnded):
                continue
            changed.update(event.set)
            for name in event.removed:
                changed.pop(name, None)
        alive = {name for name, _ in now.names}
        return _alive(sorted(changed.items()), 0, [name for name, _ in before.names if name not in alive])

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools."""
        return (tool(self.names, namespace="context", parallel=True, effects=False),)


def _alive(found: Sequence[tuple[str, str]], further: int, removed: Sequence[str]) -> Alive:
    kept = tuple(Named(name=name, kind=kind) for name, kind in found[:MAX_NAMES])
    return Alive(names=kept, further=further + len(found) - len(kept), removed=tuple(removed[:MAX_NAMES]))
