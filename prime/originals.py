"""What the log holds behind the surface, for policies: whole outputs, reads of files, words of persons, the note."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prime import events as ev
from prime.messages import text_of, thaw
from prime.policies.backoff import Backoff
from prime.policies.base import Entries, Note, Output, Prompt, Read
from prime.texts import output

#: The call that reads a file by lines.
READ = "tools.read"
#: The call that gives back a whole result.
EXPAND = "history.expand"
#: Hex digits of a fingerprint.
FINGERPRINT = 8
#: Characters from which a text that a cell got back counts as recalled: shorter ones are names and figures.
RECALLED = 64
#: Characters of an output that is kept: a turn that is too small to be sealed is asked for again with every turn.
_REMEMBERED = 2_000
#: Entries looked through at first for what is behind an entry, four times as many at each further try.
_LOOK_BACK = 64


def _fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT]


class StoredOriginals:
    """The :class:`~prime.policies.base.Originals` of a log. Every entry of a call is read once, when it is asked for
    the first time, and every text that a file gave is hashed once."""

    def __init__(self, entries: Entries, fingerprint: Callable[[str], str] = _fingerprint) -> None:
        self._entries = entries
        self._fingerprint = fingerprint
        self._reads: list[Read] = []
        self._newest: dict[tuple[str, str], list[Read]] = {}
        self._through = 0
        self._outputs: dict[int, Output] = {}
        self._backoff = Backoff()
        self._counted = 0
        self._note: Note | None = None
        self._noted = 0

    def output(self, seq: int) -> Output:
        """See :meth:`prime.policies.base.Originals.output`."""
        found = self._outputs.get(seq)
        if found is None:
            found = self._output(seq)
            if len(found.text) <= _REMEMBERED:
                self._outputs[seq] = found
        return found

    def _output(self, seq: int) -> Output:
        (result,) = self._entries(seq, seq + 1)
        if isinstance(result.event, ev.CallRefused):
            return Output(text=result.event.text, called=(result.event.name,))
        start, cell = self._start(seq, result.event.cell), result.event.cell
        pieces: list[ev.CellOutput] = []
        called: dict[int, str] = {}
        for entry in self._entries(start, seq, types=("cell_output", "dispatch_started")):
            event = entry.event
            if event.cell != cell:
                continue
            if isinstance(event, ev.DispatchStarted):
                called[event.call] = event.target
            elif not event.late:
                pieces.append(event)
        alone = pieces[0] if len(pieces) == 1 else None
        return Output(
            text=output(pieces, result.event.error, raw=False),
            target=alone.target if alone is not None else None,
            arguments=alone.arguments if alone is not None else None,
            called=tuple(dict.fromkeys(called.values())),
            recalled=self._recalled(start, seq, {call for call, name in called.items() if name.startswith("history.")}),
        )

    def reads(self, start: int, end: int) -> Sequence[Read]:
        """See :meth:`prime.policies.base.Originals.reads`."""
        self._index(end)
        first = bisect_left(self._reads, start, key=lambda read: read.seq)
        return self._reads[first : bisect_left(self._reads, end, key=lambda read: read.seq)]

    def read_before(self, read: Read) -> Read | None:
        """See :meth:`prime.policies.base.Originals.read_before`."""
        earlier = self._newest.get((read.path, read.window), ())
        return next((each for each in reversed(earlier) if each.turn < read.turn), None)

    def prompts(self, before: int, most: int) -> Sequence[Prompt]:
        """See :meth:`prime.policies.base.Originals.prompts`."""
        span = _LOOK_BACK
        while True:
            start = max(before - span, 0)
            newest = deque(self._entries(start, before, types=("user_said",)), maxlen=most)
            if len(newest) == most or not start:
                return [Prompt(entry.seq, entry.turn or 0, text_of(entry.event.parts)) for entry in newest]
            span *= 4

    def entries(self, seqs: Sequence[int]) -> Sequence[ev.Entry]:
        """See :meth:`prime.policies.base.Originals.entries`."""
        return [entry for seq in seqs for entry in self._entries(seq, seq + 1)]

    def note(self) -> Note | None:
        """See :meth:`prime.policies.base.Originals.note`."""
        for entry in self._entries(self._noted, types=("notes_written",)):
            self._note = Note(entry.seq, entry.turn, entry.event.revision, entry.event.text)
            self._noted = entry.seq + 1
        return self._note

    def backed_off(self, scope: str) -> bool:
        """See :meth:`prime.policies.base.Originals.backed_off`."""
        for entry in self._entries(self._counted, types=("surface_replaced", "dispatch_started")):
            self._counted = entry.seq + 1
            if isinstance(entry.event, ev.SurfaceReplaced):
                self._backoff.fold(entry.event)
            elif entry.event.target == EXPAND and isinstance(value := self._given(entry), Mapping):
                self._backoff.expand(entry.event.arguments, value.get("seq", -1))
        return self._backoff.holds(scope)

    def _given(self, started: ev.Entry) -> Any:
        """Return what a call gave, None when it failed or has not ended."""
        call = started.event.cell, started.event.call
        for end in (started.seq + _LOOK_BACK, None):  # nearly always close by
            for entry in self._entries(started.seq, end, types=("dispatch_ended",)):
                if (entry.event.cell, entry.event.call) == call:
                    return entry.event.value if entry.event.error is None else None
        return None

    def _start(self, seq: int, cell: str) -> int:
        """Return where the cell with this lease, whose result is entry ``seq``, began."""
        span = _LOOK_BACK
        while True:
            start = max(seq - span, 0)
            for entry in self._entries(start, seq, types=("cell_started",)):
                if entry.event.cell == cell:
                    return entry.seq
            if not start:
                return seq  # a recording without it: there is no output either
            span *= 4

    def _recalled(self, start: int, end: int, calls: set[int]) -> tuple[str, ...]:
        if not calls:
            return ()
        found: list[str] = []
        for entry in self._entries(start, end, types=("dispatch_ended",)):
            if entry.event.call in calls and entry.event.error is None:
                found += _texts(entry.event.value)
        return tuple(found)

    def _index(self, end: int) -> None:
        begun: dict[tuple[str, int], ev.DispatchStarted] = {}
        for entry in self._entries(self._through, end, types=("dispatch_started", "dispatch_ended")):
            event = entry.event
            if isinstance(event, ev.DispatchStarted):
                if event.target == READ:
                    begun[event.cell, event.call] = event
            elif (started := begun.pop((event.cell, event.call), None)) is not None:
                self._take(entry, started)
        self._through = max(self._through, end)

    def _take(self, entry: ev.Entry, started: ev.DispatchStarted) -> None:
        value, arguments = entry.event.value, started.arguments
        # a picture has no text; a log of another version may hold values of another shape
        if not isinstance(value, Mapping) or not {"path", "text", "line_count"} <= value.keys():
            return
        if entry.event.error is not None or entry.turn is None or entry.step is None:
            return
        others = {key: thaw(item) for key, item in sorted(arguments.items()) if key != "path"}
        read = Read(
            seq=entry.seq,
            turn=entry.turn,
            step=entry.step,
            path=value["path"],
            window=json.dumps(others) if others else "default",
            lines=value["line_count"],
            fingerprint=self._fingerprint(value["text"]),
        )
        self._reads.append(read)
        self._newest.setdefault((read.path, read.window), []).append(read)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a JSON value that are long enough to be recognised."""
    if isinstance(value, str):
        if len(value) >= RECALLED:
            yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
