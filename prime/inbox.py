"""What has been said to the agent and not been run yet, as a fold of the log. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from prime import events as ev
from prime.errors import TraceError
from prime.messages import text_of

#: Turns in a row that notices may start without a word of a person between them (design: agents, "Jobs").
MAX_WAKES = 3


@dataclass(frozen=True, slots=True)
class Inbox:
    """What waits to be claimed.

    Attributes:
        pending: the inputs, in the order in which they were queued.
        claimed: the input whose words are due.
        wakes_left: turns that notices may still start. A person's words make it :data:`MAX_WAKES`; before the first of
            them nobody wants a turn. A child that settles may always start one: the family's limits bound how many do.
            Notices that may not start one are claimed with the next words.
    """

    pending: tuple[ev.InputQueued, ...] = ()
    claimed: ev.InputQueued | None = None
    wakes_left: int = 0

    def after(self, event: Any) -> Inbox:
        """Return the inbox after ``event``.

        Raises:
            TraceError: an id queued twice, or taken that is not there; words that are not those of the claimed input.
        """
        if isinstance(event, ev.UserSaid) or (isinstance(event, ev.NoticeGiven) and event.input_id is not None):
            if self.claimed is None or event != words(self.claimed):
                raise TraceError("what is said comes from a claimed input, unchanged")
            left = MAX_WAKES if isinstance(event, ev.UserSaid) else self.wakes_left
            return replace(self, claimed=None, wakes_left=left)
        if isinstance(event, ev.InputQueued):
            if any(event.input_id == item.input_id for item in self.pending):
                raise TraceError(f"input {event.input_id} is queued already")
            return replace(self, pending=(*self.pending, event))
        if self.claimed is not None:
            raise TraceError("a claimed input is followed by its words")
        if isinstance(event, (ev.InputClaimed, ev.InputWithdrawn)):
            taken = [item for item in self.pending if item.input_id == event.input_id]
            if not taken:
                raise TraceError(f"input {event.input_id} is not pending")
            rest = tuple(item for item in self.pending if item.input_id != event.input_id)
            claimed = taken[0] if isinstance(event, ev.InputClaimed) else None
            return replace(self, pending=rest, claimed=claimed)
        if isinstance(event, ev.TurnStarted):
            return replace(self, wakes_left=max(self.wakes_left - 1, 0))
        if isinstance(event, ev.ChildSettled):
            return replace(self, wakes_left=max(self.wakes_left, 1))
        if isinstance(event, ev.SessionForked):
            return Inbox()
        return self

    @property
    def wakes(self) -> bool:
        """Whether something pending starts a turn."""
        return any(
            item.kind in ("ask", "steer") or (item.kind == "notice" and item.wake and self.wakes_left > 0)
            for item in self.pending
        )

    @property
    def steers(self) -> bool:
        """Whether something pending keeps the running turn from ending."""
        return any(item.kind == "steer" for item in self.pending)

    def due(self, *, opening: bool) -> tuple[ev.InputQueued, ...]:
        """Return what is to be claimed now: everything but asks, and when a turn is ``opening`` the oldest ask too."""
        asks = [item for item in self.pending if item.kind == "ask"][: 1 if opening else 0]
        return tuple(item for item in self.pending if item.kind != "ask" or item in asks)


def words(item: ev.InputQueued) -> ev.UserSaid | ev.NoticeGiven:
    """Return what enters the log when an input is claimed: the words of a person, or those of the host."""
    if item.kind == "notice":
        return ev.NoticeGiven(about=item.source or item.kind, text=text_of(item.parts), input_id=item.input_id)
    return ev.UserSaid(input_id=item.input_id, kind=item.kind, parts=item.parts)
