"""The namespaces ``notes`` and ``context``: what the agent keeps for itself, and how full its window is."""

from __future__ import annotations

from collections.abc import Callable

from prime import events as ev
from prime.errors import ToolFailed
from prime.log import Log
from prime.messages import Frozen
from prime.tools.base import Tool, tool

#: Longest note, in characters: one recovery snapshot, not a diary.
NOTE_LIMIT = 6_000


class Note(Frozen):
    """The session's one note. ``written_at`` is the seq of the entry that stored it, None before the first; how many
    ``entries`` and turns (``turns``) have begun since tells how much it cannot know of."""

    revision: int
    text: str
    written_at: int | None
    entries: int
    turns: int


class ContextUsage(Frozen):
    """How full the window is, in tokens; ``window`` is None when the model's is unknown."""

    used: int
    window: int | None


class Notes:
    """One current recovery snapshot, kept with the session through crashes and forks."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def read(self) -> Note:
        """Return the session's note with its revision (0 and empty before the first write) and its age."""
        written = self._log.store.last(("notes_written",))
        if written is None or self._log.state.notes is None:
            return Note(revision=0, text="", written_at=None, entries=0, turns=0)
        note = self._log.state.notes
        begun = self._log.store.last(("turn_started",), before=written.seq)
        return Note(
            revision=note.revision,
            text=note.text,
            written_at=written.seq,
            entries=len(self._log) - 1 - written.seq,
            turns=self._log.state.trace.turn - (begun.turn or 0 if begun is not None else 0),
        )

    async def write(self, text: str, *, revision: int) -> Note:
        """Replace the note whole; `revision` is the one you read, so that two writers cannot overwrite each other. Keep
        the goal, constraints, verified progress and open points, at most 6,000 characters."""
        if len(text) > NOTE_LIMIT:
            raise ToolFailed(
                "too_long", f"the note has {len(text):,} characters, at most {NOTE_LIMIT:,} are kept; shorten it"
            )
        current = self._log.state.notes.revision if self._log.state.notes else 0
        if revision != current:
            raise ToolFailed("stale", f"the note is at revision {current}, not {revision}; read it and merge")
        (entry,) = self._log.append(ev.NotesWritten(revision=current + 1, text=text), durable=True)
        return Note(revision=current + 1, text=text, written_at=entry.seq, entries=0, turns=0)

    def tools(self) -> tuple[Tool, ...]:
        """Return the namespace's tools."""
        return (
            tool(self.read, namespace="notes", parallel=True, effects=False),
            tool(self.write, namespace="notes"),
        )


class ContextInfo:
    """The window as the model may ask about it."""

    def __init__(self, used: Callable[[], int], window: Callable[[], int | None], renew: Callable[[], None]) -> None:
        self._used = used
        self._window = window
        self._renew = renew

    async def usage(self) -> ContextUsage:
        """Return how many tokens the conversation takes, and the model's window."""
        return ContextUsage(used=self._used(), window=self._window())

    async def new(self) -> str:
        """Start a new window before your next reply: older messages leave it, names and the note stay, and a directory
        says how to get the rest back. Put what you need to go on into the note first."""
        self._renew()
        return "queued: the window is switched before your next reply"

    def tools(self) -> tuple[Tool, ...]:
        """Return the namespace's tools."""
        return tuple(
            tool(function, namespace="context", parallel=True, effects=False) for function in (self.usage, self.new)
        )
