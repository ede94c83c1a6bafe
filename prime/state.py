"""Everything that is derived from a log while a session runs, as one fold. Pure.

There is no counter, list or total beside the log: this is rebuilt from it whenever a session opens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from prime import events as ev
from prime.errors import TraceError
from prime.inbox import Inbox
from prime.kin import Kin
from prime.messages import Header, Usage
from prime.running import Running
from prime.side import Side
from prime.surface import Surface
from prime.trace import Trace


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The newest snapshot of the variables.

    Attributes:
        seq: its entry.
        saved: what that says.
        failed: whether a restore of it has left names out: then its file is kept for as long as the session.
        cells: how many cells have run since.
        touched: the names that these have bound or removed.
    """

    seq: int
    saved: ev.SnapshotSaved
    failed: bool = False
    cells: int = 0
    touched: frozenset[str] = frozenset()

    def after(self, ended: ev.CellEnded) -> Snapshot:
        """Return the snapshot when one more cell has run."""
        return replace(self, cells=self.cells + 1, touched=self.touched.union(ended.set, ended.removed))


@dataclass(frozen=True, slots=True)
class Restoration:
    """A restore that no cell has told of yet: what came of it, the snapshot, and the names alive before the loss."""

    restored: ev.NamespaceRestored
    snapshot: Snapshot
    before: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """What the log says of the kernel.

    Attributes:
        generation: number of the newest kernel process, 0 before the first.
        alive: whether it runs.
        ran: generation that ran the newest cell, 0 before the first.
        names: names bound in the process that ran the newest cell, to their types.
        snapshot: the newest snapshot, None before the first.
        restoration: the restore that the next cell has to tell of.
        unsaved: whether the process has run cells that no snapshot covers.
    """

    generation: int = 0
    alive: bool = False
    ran: int = 0
    names: tuple[tuple[str, str], ...] = ()
    snapshot: Snapshot | None = None
    restoration: Restoration | None = None
    unsaved: bool = False

    @property
    def running(self) -> int | None:
        """The number of the process that runs, None when none does."""
        return self.generation if self.alive else None

    def after(self, seq: int, event: Any) -> Kernel:
        """Return the kernel's state after ``event`` at ``seq``."""
        if isinstance(event, ev.KernelStarted):
            return replace(self, generation=event.generation, alive=True, restoration=None, unsaved=False)
        if isinstance(event, ev.SnapshotSaved):
            return replace(self, snapshot=Snapshot(seq, event), unsaved=False)
        if isinstance(event, ev.NamespaceRestored) and self.snapshot is not None:
            snapshot = replace(self.snapshot, failed=self.snapshot.failed or bool(event.missing))
            told = Restoration(event, snapshot, tuple(name for name, _ in self.names))
            return replace(
                self,
                ran=event.generation,
                names=tuple(sorted(event.restored.items())),
                snapshot=snapshot,
                restoration=told,
            )
        if isinstance(event, (ev.KernelLost, ev.SessionForked, ev.SessionResumed, ev.SessionClosed)):
            return replace(self, alive=False)
        if isinstance(event, ev.CellEnded) and event.generation is not None:
            names = dict(self.names) if event.generation == self.ran else {}
            names.update(event.set)
            for name in event.removed:
                names.pop(name, None)
            return replace(
                self,
                ran=event.generation,
                names=tuple(sorted(names.items())),
                snapshot=self.snapshot.after(event) if self.snapshot is not None else None,
                restoration=None,
                unsaved=True,
            )
        return self


@dataclass(frozen=True, slots=True)
class Replied:
    """A reply that reported its usage."""

    seq: int
    usage: Usage


@dataclass(slots=True)
class State:
    """The fold of a whole log.

    Attributes:
        session, cwd: as the newest session_created or session_forked and the first say.
        running: the jobs beside the cells.
        header: what the next request starts with, None before the first.
        notes: the note, None before it was written.
        usage: tokens so far, by the model's full name in the header; a fork does not count its parent's.
        replied: where the newest reply with a usage stands, None before the first.
        side: the newest question after the rules of a turn, and what came of it.
        sent: seq of the newest step_started, -1 before the first.
    """

    session: str = ""
    cwd: str = ""
    trace: Trace = field(default_factory=Trace)
    inbox: Inbox = field(default_factory=Inbox)
    running: Running = field(default_factory=Running)
    kin: Kin = field(default_factory=Kin)
    kernel: Kernel = field(default_factory=Kernel)
    header: Header | None = None
    notes: ev.NotesWritten | None = None
    usage: dict[str, Usage] = field(default_factory=dict)
    replied: Replied | None = None
    side: Side = field(default_factory=Side)
    sent: int = -1
    surface: Surface = field(default_factory=Surface)

    def apply(self, seq: int, event: Any) -> Callable[[], None]:
        """Take in the event at ``seq`` and return how to take it back.

        Raises:
            AppendRefused: an event that does not belong here; nothing has changed.
        """
        trace, inbox, running = self.trace.after(event), self.inbox.after(event), self.running.after(event)
        kin = self.kin.after(event)
        if isinstance(event, ev.NotesWritten) and event.revision != (self.notes.revision if self.notes else 0) + 1:
            raise TraceError(f"notes revision {event.revision} does not follow the stored one")
        undo_surface = self.surface.apply(seq, event)
        before = {name: getattr(self, name) for name in _VALUES}
        self.trace, self.inbox, self.running, self.kernel = trace, inbox, running, self.kernel.after(seq, event)
        self.kin, self.side = kin, self.side.after(event, trace.turn)
        if isinstance(event, ev.SessionCreated):
            self.session, self.cwd = event.session, event.cwd
        elif isinstance(event, ev.SessionForked):
            self.session, self.usage = event.session, {}
        elif isinstance(event, ev.HeaderChanged):
            self.header = event.header
        elif isinstance(event, ev.NotesWritten):
            self.notes = event
        elif isinstance(event, ev.StepStarted):
            self.sent = seq
        elif isinstance(event, ev.ModelReplied) and event.usage is not None and self.header is not None:
            model = self.header.model
            self.usage = {**self.usage, model: self.usage.get(model, Usage()) + event.usage}
            self.replied = Replied(seq, event.usage)
        elif isinstance(event, ev.QueryEnded) and event.reply is not None and event.reply.usage is not None:
            self.usage = {**self.usage, event.model: self.usage.get(event.model, Usage()) + event.reply.usage}

        def undo() -> None:
            if undo_surface is not None:
                undo_surface()
            for name, value in before.items():
                setattr(self, name, value)

        return undo


#: The fields that are replaced whole; the surface alone is changed in place.
_VALUES = tuple(name for name in State.__dataclass_fields__ if name != "surface")
