"""The original text of what a log holds, whatever stands in its place on the surface. Pure over a store.

An *original* is an entry that has words: what was said, written, run, shown, called or returned. Private reasoning and
headers are none, and neither is what a policy put in the place of others. An entry with pictures alone is one, its
text is empty. Sizes are code points.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, get_args

from prime import events as ev
from prime.log import decode, owner, pick, read
from prime.messages import CallPart, ImagePart, Part, text_of
from prime.screen import Screen, collapsed, joined
from prime.store.base import Store

#: What an original is. ``context`` is words of the host; ``dispatch_input`` and ``dispatch_output`` are of a call that
#: a cell made; ``error`` is how a cell or a call failed; ``call`` is what a refused call asked for. The order is
#: that of the text index: add at the end.
Kind = Literal[
    "user", "reply", "context", "code", "dispatch_input", "dispatch_output", "output", "error", "note", "call"
]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Original(NamedTuple):
    """An entry with words or pictures. ``name`` is the target of a host call, empty for anything else."""

    seq: int
    turn: int | None
    step: int | None
    kind: Kind
    name: str
    text: str
    pictures: tuple[ImagePart, ...] = ()


class Texts:
    """The originals of one session."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.session = owner(store)

    def entry(self, seq: int) -> ev.Entry:
        """Return a stored entry."""
        (found,) = pick(self.store, self.session, [seq])
        return found

    def of(self, entry: ev.Entry, *, raw: bool = False, named: bool = True) -> Original | None:
        """Return the original of an entry, None when it has no words.

        ``raw`` gives a cell's output as it was written, not as a terminal shows it, and a reply with the calls that it
        asked for. Without ``named`` nobody looks up what an ended call had called.
        """
        event = entry.event
        if isinstance(event, ev.CellEnded):
            kind: Kind = "output" if event.error is None else "error"
            pieces = self._pieces(entry)
            text, pictures = output(pieces, event.error, raw=raw), tuple(piece.image for piece in pieces if piece.image)
            return Original(entry.seq, entry.turn, entry.step, kind, "", text, pictures)
        if isinstance(event, ev.CellOutput):
            text = event.text if raw else collapsed(event.text)
            pictures = (event.image,) if event.image else ()
            return Original(entry.seq, entry.turn, entry.step, "output", "", text, pictures) if event.late else None
        if raw and isinstance(event, ev.ModelReplied):
            return Original(entry.seq, entry.turn, entry.step, "reply", "", _with_calls(event))
        name = self._target(entry) if named and isinstance(event, ev.DispatchEnded) else ""
        return plain_original(entry, name)

    def between(self, start: int, end: int | None) -> Iterator[Original]:
        """Yield the originals of the entries with ``start <= seq < end``, in order."""
        for entry in read(self.store, start, end, types=ORIGINAL):
            if (found := self.of(entry)) is not None:
                yield found

    def turn(self, number: int) -> tuple[int, int | None] | None:
        """Return where a turn starts and where it ends: what happens before the next one belongs to it."""
        start = self.store.turn_start(number)
        return (start, self.store.turn_start(number + 1)) if start is not None else None

    def results(self, turn: int, step: int) -> Iterator[ev.Entry]:
        """Yield the results of the calls of a step, in order: of cells, and refusals."""
        if (found := self.turn(turn)) is not None:
            for entry in read(self.store, *found, types=("cell_ended", "call_refused")):
                if (entry.turn, entry.step) == (turn, step):
                    yield entry

    def refused(self, start: int = 0, end: int | None = None) -> dict[int, Original]:
        """Return what refused calls of these entries asked for, by the seqs of their refusals. The seq of each is that
        of the reply, which has it word for word."""
        found: dict[int, Original] = {}
        asked: dict[str, Original] = {}
        for entry in read(self.store, start, end, types=("model_replied", "call_refused")):
            if isinstance(entry.event, ev.ModelReplied):
                where = entry.seq, entry.turn, entry.step
                calls = (part for part in entry.event.parts if isinstance(part, CallPart))
                asked = {call.call_id: Original(*where, "call", call.name, call.arguments) for call in calls}
            elif entry.event.call_id in asked:
                found[entry.seq] = asked[entry.event.call_id]
        return found

    def sources(self, entry: ev.Entry) -> tuple[int, ...]:
        """Return the seqs of what an entry stands for: itself, or what a replacement was made of, through every
        replacement that was replaced itself."""
        if not isinstance(entry.event, ev.SurfaceReplaced):
            return (entry.seq,)
        found: dict[int, None] = {}
        for source in pick(self.store, self.session, entry.event.sources):
            found.update(dict.fromkeys(self.sources(source)))
        return tuple(found)

    def quiet_until(self) -> int:
        """Return the seq before which nothing is open: that of the open turn or cell, or the number of entries."""
        for started, ended in (("turn_started", "turn_ended"), ("cell_started", "cell_ended")):
            begun = self.store.last((started,))
            if begun is not None:
                over = self.store.last((ended,))
                if over is None or over.seq < begun.seq:
                    return begun.seq
        last = self.store.last()
        return last.seq + 1 if last is not None else 0

    def _pieces(self, entry: ev.Entry) -> list[ev.CellOutput]:
        """Return what the cell wrote that entry is the end of."""
        begun = self.store.last(("cell_started",), before=entry.seq)  # one cell runs at a time
        start = begun.seq if begun is not None else entry.seq
        pieces = (each.event for each in read(self.store, start, entry.seq, types=("cell_output",)))
        return [piece for piece in pieces if not piece.late]

    def _target(self, ended: ev.Entry) -> str:
        """Return what was called: the newest start with this number, which is a few entries back at most."""
        before = ended.seq
        while (row := self.store.last(("dispatch_started",), before=before)) is not None:
            event = decode(row, self.session, self.store.blob).event
            if (event.cell, event.call) == (ended.event.cell, ended.event.call):
                return str(event.target)
            before = row.seq
        return ""


def plain_original(entry: ev.Entry, name: str) -> Original | None:
    """Return the original of an entry whose words are all its own; ``name`` is what an ended call had called."""
    event = entry.event
    kind: Kind
    pictures: tuple[ImagePart, ...] = ()
    match event:
        case ev.UserSaid():
            kind, text, pictures = "user", text_of(event.parts), _pictures(event.parts)
        case ev.NoticeGiven():
            kind, text = "context", event.text
        case ev.ModelReplied():
            kind, text = "reply", text_of(event.parts)
        case ev.CellStarted():
            kind, text = "code", event.code
        case ev.CallRefused():
            kind, text = "error", event.text
        case ev.DispatchStarted():
            kind, name, text = "dispatch_input", event.target, words(event.arguments)
        case ev.DispatchRefused():
            kind, text = "error", f"denied: {event.reason}"
        case ev.DispatchEnded() if event.error is not None:
            kind, text = "error", f"{event.error.code}: {event.error.message}"
        case ev.DispatchEnded():
            kind, text = "dispatch_output", words(event.value)
        case ev.NotesWritten():
            kind, text = "note", event.text
        case _:
            return None
    return Original(entry.seq, entry.turn, entry.step, kind, name, text, pictures)


#: The types of entries that can be originals.
ORIGINAL = (
    *("user_said", "notice_given", "model_replied", "cell_started", "cell_output", "cell_ended", "call_refused"),
    *("dispatch_started", "dispatch_ended", "dispatch_refused", "notes_written"),
)


def output(pieces: Iterable[ev.CellOutput], error: ev.CellError | None, *, raw: bool) -> str:
    """Return a cell's whole output and the error that ended it: as a terminal shows it, or as it was written."""
    text = "".join(piece.text for piece in pieces) if raw else _on_screen(pieces)
    if error is None:
        return text
    gap = "\n" if text and not text.endswith("\n") else ""
    said = error.traceback or f"{error.name}: {error.message}"
    return text + gap + (said if raw else collapsed(said))


def _pictures(parts: tuple[Part, ...]) -> tuple[ImagePart, ...]:
    return tuple(part for part in parts if isinstance(part, ImagePart))


def _with_calls(event: ev.ModelReplied) -> str:
    calls = (f"{part.name}({part.arguments})" for part in event.parts if isinstance(part, CallPart))
    return "\n".join(filter(None, (text_of(event.parts), *calls)))


def words(value: Any) -> str:
    """Return a JSON value with its strings unescaped, so that words can be found and read as they are."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return "\n".join(map(words, value))
    if hasattr(value, "items"):
        return "\n".join(f"{key}: {words(item)}" for key, item in value.items())
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _on_screen(pieces: Iterable[ev.CellOutput]) -> str:
    """Return what a cell wrote as a terminal shows it."""
    screen, shown = Screen(), []
    for piece in pieces:
        shown += screen.write(piece.text, own_line=piece.stream in ("result", "display"))
    return joined([*shown, *screen.end()])
