"""What has been said to the agent and not been run yet, as a fold of the log. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from prime import events as ev
from prime.errors import TraceError


@dataclass(frozen=True, slots=True)
class Inbox:
    """Pending inputs in the order in which they were queued. ``claimed`` is the input whose UserSaid is due."""

    pending: tuple[ev.InputQueued, ...] = ()
    claimed: ev.InputQueued | None = None

    def after(self, event: Any) -> Inbox:
        """Return the inbox after ``event``.

        Raises:
            TraceError: an id queued twice, or taken that is not there; words that are not those of the claimed input.
        """
        if self.claimed is not None and not isinstance(event, (ev.UserSaid, ev.InputQueued)):
            raise TraceError("a claimed input is followed by its words")
        if isinstance(event, ev.InputQueued):
            if any(event.input_id == item.input_id for item in self.pending):
                raise TraceError(f"input {event.input_id} is queued already")
            return replace(self, pending=(*self.pending, event))
        if isinstance(event, (ev.InputClaimed, ev.InputWithdrawn)):
            taken = [item for item in self.pending if item.input_id == event.input_id]
            if not taken:
                raise TraceError(f"input {event.input_id} is not pending")
            rest = tuple(item for item in self.pending if item.input_id != event.input_id)
            return Inbox(rest, taken[0] if isinstance(event, ev.InputClaimed) else None)
        if isinstance(event, ev.UserSaid):
            claimed = self.claimed
            if claimed is None or (claimed.input_id, claimed.kind, claimed.parts) != (
                event.input_id,
                event.kind,
                event.parts,
            ):
                raise TraceError("a person's words come from a claimed input, unchanged")
            return replace(self, claimed=None)
        if isinstance(event, ev.SessionForked):
            return Inbox()
        return self

    @property
    def wakes(self) -> bool:
        """Whether something pending starts a turn."""
        return any(item.kind != "inform" for item in self.pending)

    @property
    def steers(self) -> bool:
        """Whether something pending keeps the running turn from ending."""
        return any(item.kind == "steer" for item in self.pending)

    def due(self, *, opening: bool) -> tuple[ev.InputQueued, ...]:
        """Return what is to be claimed now: everything but asks, and when a turn is ``opening`` the oldest ask too."""
        asks = [item for item in self.pending if item.kind == "ask"][: 1 if opening else 0]
        return tuple(item for item in self.pending if item.kind != "ask" or item in asks)
