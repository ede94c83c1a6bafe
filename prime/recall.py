"""The namespaces ``history``, ``notes`` and ``context``: what left the window, one call away.

Reads the log, never the surface's present form: a result that was folded or replaced resolves to its original.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import regex

from prime import events as ev
from prime import locators
from prime.errors import ToolFailed
from prime.log import Log
from prime.messages import Frozen, TextPart, text_of
from prime.screen import Screen, collapsed, joined
from prime.tools.base import Tool, tool

#: Longest note, in characters: one recovery snapshot, not a diary.
NOTE_LIMIT = 6_000
#: Characters around a hit.
SNIPPET = 600
#: Most hits of a search.
MAX_HITS = 20
#: Seconds that a pattern of the model may take over one text.
PATTERN_SECONDS = 2.0


_STALE = (
    "seq={seq} was given with format={format}, and numbers of entries are good for format={current} only; "
    "get the number anew from history.search(...) or history.turn(n)"
)


class Expanded(Frozen):
    """One logged thing, whole or filtered. ``lines`` is how many the whole has."""

    seq: int
    kind: str
    text: str
    lines: int


class Hit(Frozen):
    """A place where the words stand; ``call`` is the exact call that returns the whole of it."""

    seq: int
    turn: int | None
    step: int | None
    kind: str
    snippet: str
    call: str


class Hits(Frozen):
    """The best hits first."""

    hits: tuple[Hit, ...]
    truncated: bool


class Said(Frozen):
    """One piece of a turn. ``kind`` is ``user``, ``notice``, ``reply``, ``code``, ``output``, ``refused`` or a call's
    target."""

    seq: int
    step: int | None
    kind: str
    text: str


class Told(Frozen):
    """A turn, or one step of it."""

    turn: int
    said: tuple[Said, ...]


class Note(Frozen):
    """The session's one note. ``written_at`` is the seq of the entry that stored it, None before the first."""

    revision: int
    text: str
    written_at: int | None


class ContextUsage(Frozen):
    """How full the window is, in tokens; ``window`` is None when the model's is unknown."""

    used: int
    window: int | None


class History:
    """What was said and shown in this session, word for word."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def turn(self, n: int, view: Literal["dialogue", "full"] = "dialogue") -> Told:
        """Return turn `n` (from 1): what was said in it; with view="full" every cell, its output and its calls too."""
        return self._told(n, None, full=view == "full")

    async def step(self, turn: int, step: int) -> Told:
        """Return one step of a turn: the reply, its cells with their whole output, and every call they made."""
        return self._told(turn, step, full=True)

    async def expand(
        self,
        seq: int,
        *,
        format: int | None = None,
        lines: str | None = None,
        grep: str | None = None,
        raw: bool = False,
    ) -> Expanded:
        """Return the whole text of entry `seq`: a cell's output, a call's value, a message; `format` stands beside the
        seq wherever one is printed. lines="10-40" or grep="regular expression" returns only those lines of it. raw=True
        keeps a cell's escape codes."""
        if format != ev.FORMAT:
            raise ToolFailed("stale", _STALE.format(seq=seq, format=format, current=ev.FORMAT))
        (entry,) = self._pick(seq)
        kind, text = self._whole(entry, raw=raw)
        every = text.splitlines()
        return Expanded(seq=seq, kind=kind, text=_filtered(text, every, lines, grep), lines=len(every))

    async def search(self, query: str, *, limit: int = 5) -> Hits:
        """Find words in everything said, written, shown or called in the earlier turns of this session. Entries with
        more of the words come first, then newer ones."""
        words = list(dict.fromkeys(query.casefold().split()))
        if not words:
            raise ToolFailed("bad_arguments", "query is empty; give the words to look for")
        found: list[tuple[int, int, ev.Entry, str, str]] = []
        for entry in self._searchable():
            kind, text = _KINDS[entry.event.type](entry.event)
            folded = text.casefold()
            if hits := sum(word in folded for word in words):
                found.append((hits, entry.seq, entry, kind, text))
        found.sort(key=lambda item: item[:2], reverse=True)
        most = min(max(limit, 1), MAX_HITS)
        return Hits(hits=tuple(_hit(*item[2:], words) for item in found[:most]), truncated=len(found) > most)

    def _searchable(self) -> Iterator[ev.Entry]:
        """Yield what has words, without what is going on (the model has it before it) and recall's own calls."""
        trace = self._log.state.trace
        open_turn = trace.turn if trace.in_turn else None
        open_cell = trace.cell if trace.cell is not None else ""
        own: set[tuple[str, int]] = set()
        for entry in self._log.entries(types=tuple(_KINDS)):
            event = entry.event
            if isinstance(event, ev.DispatchStarted) and event.target.startswith("history."):
                own.add((event.cell, event.call))
            recalled = isinstance(event, (ev.DispatchStarted, ev.DispatchEnded)) and (event.cell, event.call) in own
            current = entry.turn == open_turn if open_turn is not None else getattr(event, "cell", None) == open_cell
            if not recalled and not current:
                yield entry

    def _pick(self, seq: int) -> tuple[ev.Entry, ...]:
        if not 0 <= seq < len(self._log):
            raise ToolFailed("not_found", f"there is no entry {seq}; this session has 0 to {len(self._log) - 1}")
        return self._log.pick([seq])

    def _whole(self, entry: ev.Entry, *, raw: bool) -> tuple[str, str]:
        event = entry.event
        if isinstance(event, ev.CellEnded):
            return "output", self._output(event, entry.seq, raw=raw)
        if isinstance(event, ev.SurfaceReplaced):
            return "replacement", f"stands in for the entries {', '.join(map(str, event.sources))}; expand those"
        if event.type not in _KINDS:
            raise ToolFailed("not_found", f"entry {entry.seq} is a {event.type}, which has no text")
        return _KINDS[event.type](event)

    def _output(self, ended: ev.CellEnded, seq: int, *, raw: bool = False) -> str:
        start = max(
            (
                entry.seq
                for entry in self._log.entries(0, seq, types=("cell_started",))
                if entry.event.cell == ended.cell
            ),
            default=seq,
        )
        outputs = [
            entry.event
            for entry in self._log.entries(start, seq, types=("cell_output",))
            if entry.event.cell == ended.cell and not entry.event.late
        ]
        text = "".join(output.text for output in outputs) if raw else _shown(outputs)
        if ended.error is None:
            return text
        gap = "\n" if text and not text.endswith("\n") else ""
        error = ended.error.traceback or f"{ended.error.name}: {ended.error.message}"
        return text + gap + (error if raw else collapsed(error))

    def _told(self, turn: int, step: int | None, *, full: bool) -> Told:
        said = []
        for entry in self._of_turn(turn):
            if step is not None and entry.step != step:
                continue
            if isinstance(entry.event, ev.CellEnded):
                said.append(
                    Said(seq=entry.seq, step=entry.step, kind="output", text=self._output(entry.event, entry.seq))
                )
            elif entry.event.type in _KINDS:
                kind, text = _KINDS[entry.event.type](entry.event)
                said.append(Said(seq=entry.seq, step=entry.step, kind=kind, text=text))
        if not said:
            what = f"step {step} of turn {turn}" if step is not None else f"turn {turn}"
            raise ToolFailed("not_found", f"there is no {what}; the session is in turn {self._log.state.trace.turn}")
        wanted = said if full else [each for each in said if each.kind in ("user", "notice", "reply")]
        return Told(turn=turn, said=tuple(wanted))

    def _of_turn(self, turn: int) -> Iterator[ev.Entry]:
        starts = [entry for entry in self._log.entries(types=("turn_started",)) if entry.turn in (turn, turn + 1)]
        if not starts or starts[0].turn != turn:
            return iter(())
        end = starts[1].seq if len(starts) > 1 else None
        return (entry for entry in self._log.entries(starts[0].seq, end) if entry.turn == turn)

    def tools(self) -> tuple[Tool, ...]:
        """Return the namespace's tools."""
        return tuple(
            tool(function, namespace="history", parallel=True, effects=False)
            for function in (self.turn, self.step, self.expand, self.search)
        )


class Notes:
    """One current recovery snapshot, kept with the session through crashes and forks."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def read(self) -> Note:
        """Return the session's note with its revision (0 and empty before the first write)."""
        written = self._log.state.notes
        if written is None:
            return Note(revision=0, text="", written_at=None)
        *_, entry = self._log.entries(types=("notes_written",))
        return Note(revision=written.revision, text=written.text, written_at=entry.seq)

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
        return Note(revision=current + 1, text=text, written_at=entry.seq)

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


def _dispatch_ended(event: ev.DispatchEnded) -> tuple[str, str]:
    if event.error is not None:
        return "call_value", f"{event.error.code}: {event.error.message}"
    return "call_value", _text(event.value)


#: Event type -> its kind and its words. Private reasoning and headers have none.
_KINDS: dict[str, Callable[[Any], tuple[str, str]]] = {
    "user_said": lambda event: ("user", text_of(event.parts)),
    "notice_given": lambda event: ("notice", event.text),
    "model_replied": lambda event: ("reply", _reply(event)),
    "cell_started": lambda event: ("code", event.code),
    "cell_output": lambda event: ("output_piece", collapsed(event.text)),
    "call_refused": lambda event: ("refused", event.text),
    "dispatch_started": lambda event: (event.target, _text(event.arguments)),
    "dispatch_ended": _dispatch_ended,
    "notes_written": lambda event: ("note", event.text),
}


def _reply(event: ev.ModelReplied) -> str:
    return "".join(part.text for part in event.parts if isinstance(part, TextPart))


def _text(value: Any) -> str:
    """Return a JSON value with its strings unescaped, so that words can be found and read as they are."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return "\n".join(map(_text, value))
    if hasattr(value, "items"):
        return "\n".join(f"{key}: {_text(item)}" for key, item in value.items())
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _shown(outputs: list[ev.CellOutput]) -> str:
    screen, pieces = Screen(), []
    for output in outputs:
        pieces += screen.write(output.text, own_line=output.stream in ("result", "display"))
    return joined([*pieces, *screen.end()])


def _hit(entry: ev.Entry, kind: str, text: str, words: list[str]) -> Hit:
    folded = text.casefold()
    first = min(place for word in words if (place := folded.find(word)) >= 0)
    start = max(first - SNIPPET // 4, 0)
    call = locators.step(entry.turn, entry.step) if entry.turn and entry.step else locators.expand(entry.seq)
    return Hit(
        seq=entry.seq,
        turn=entry.turn,
        step=entry.step,
        kind=kind,
        snippet=text[start : start + SNIPPET],
        call=call,
    )


def _filtered(text: str, every: list[str], lines: str | None, grep: str | None) -> str:
    if lines is None and grep is None:
        return text
    numbered = list(enumerate(every, 1))
    if lines is not None:
        if (found := regex.fullmatch(r"(\d+)(?:-(\d+))?", lines.strip())) is None:
            raise ToolFailed("bad_arguments", f'lines={lines!r} is not a range; write lines="10-40" or lines="7"')
        first, last = int(found[1]), int(found[2] or found[1])
        if not 1 <= first <= last:
            raise ToolFailed("bad_arguments", f"lines={lines!r} is empty or begins before line 1")
        numbered = numbered[first - 1 : last]
    if grep is not None:
        numbered = _matching(numbered, grep)
        return "\n".join(f"{number}: {line}" for number, line in numbered)
    return "\n".join(line for _, line in numbered)


def _matching(numbered: list[tuple[int, str]], grep: str) -> list[tuple[int, str]]:
    try:
        pattern = regex.compile(grep)
        until = time.monotonic() + PATTERN_SECONDS
        return [
            (number, line)
            for number, line in numbered
            if pattern.search(line, timeout=max(until - time.monotonic(), 0.001))
        ]
    except regex.error as error:
        raise ToolFailed("bad_pattern", f"grep={grep!r} is not a regular expression: {error}") from None
    except TimeoutError:
        raise ToolFailed("bad_pattern", f"grep={grep!r} takes too long; write a simpler pattern") from None
