"""Finding words in the originals of sessions: what is indexed, how hits are ranked, what is shown of them.

A search sees what was over when it was made: not the open turn, and not what recall itself was asked and gave, so that
it never finds itself. An entry with more of the words comes before one with fewer, however often those stand there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from prime import events as ev
from prime.log import pick, read
from prime.store.base import Document
from prime.store.words import folded
from prime.texts import KINDS, ORIGINAL, Kind, Original, Texts, output, plain_original

#: Version of the rules below for what is indexed: with another one, an index is made anew.
RULES = 1
#: Documents that go into the index at a time; the event loop runs between two lots.
LOT = 500
#: Entries that are read and weighed in one search; of more with the same words, these are the newest.
WEIGHED = 32
#: Places of one term that are looked at for the snippet.
_PLACES = 50
#: Shortest line of recalled text that marks a printed line as recalled, and most lines that are compared.
_TELLING, _COMPARED = 16, 2_000

#: What belongs to the conversation, and what is only the output of it.
DIALOGUE: tuple[Kind, ...] = ("user", "reply", "context", "code", "dispatch_input", "error")
OUTPUTS: tuple[Kind, ...] = ("output", "dispatch_output")
#: Code points of a snippet; outputs show more, because their call returns much.
_SNIPPET: dict[Kind, int] = {"output": 600, "dispatch_output": 600, "error": 600}
SNIPPET = 180


class Found(NamedTuple):
    """An original that has words of a query. A higher ``score`` is better; ``session`` is whose it is."""

    score: float
    original: Original
    snippet: str
    session: str


def index(texts: Texts) -> Iterator[None]:
    """Index what is over and not yet indexed, one lot at each step, so that the caller can do other things between."""
    start, end = texts.store.indexed(RULES), texts.quiet_until()
    if start < end:
        for lot, until in _lots(texts, start, end):
            texts.store.index(lot, until, RULES)
            yield


def find(texts: Texts, terms: Sequence[str], kinds: Sequence[Kind], limit: int) -> list[Found]:
    """Return the best ``limit`` indexed originals of these kinds, best first: coverage of the terms, then how often and
    how densely they stand there, then the newer one."""
    numbers = [KINDS.index(kind) for kind in kinds]
    matches = texts.store.find(terms, numbers, max(WEIGHED, limit), RULES)
    found: list[tuple[float, ev.Entry]] = []
    for entry in pick(texts.store, texts.session, [match.seq for match in matches]):
        original = texts.of(entry, named=False)
        if original is not None and (score := _score(original, terms)):
            found.append((score, entry))
    found.sort(key=lambda each: (-each[0], -each[1].seq))
    best = ((score, texts.of(entry)) for score, entry in found[:limit])
    return [Found(score, original, _shown(original, terms), texts.session) for score, original in best if original]


def searchable(original: Original) -> str:
    """Return the text of an original as it is searched: that of a call with the name of what was called."""
    return f"{original.name}\n{original.text}" if original.kind == "dispatch_input" else original.text


def snippet(text: str, start: int, end: int, size: int) -> str:
    """Return ``size`` code points of ``text`` on one line, those from ``start`` to ``end`` in the middle."""
    first = max(min((start + end - size) // 2, len(text) - size), 0)
    shown = " ".join(text[first : first + size].split())
    return f"{'…' if first else ''}{shown}{'…' if first + size < len(text) else ''}"


def _score(original: Original, terms: Sequence[str]) -> float:
    text = searchable(original)
    low = folded(text)
    counts = [count for term in terms if (count := low.count(term))]
    often = min(sum(counts), 10) / math.log2(4 + len(text) / 200)
    return len(counts) / len(terms) * 1000 + often if counts else 0.0


def _shown(original: Original, terms: Sequence[str]) -> str:
    text, size = searchable(original), _SNIPPET.get(original.kind, SNIPPET)
    return snippet(text, *_best(folded(text), terms, size), size)


def _best(low: str, terms: Sequence[str], size: int) -> tuple[int, int]:
    """Return where the stretch of at most ``size`` starts and ends that has the most distinct terms, the first such."""
    places = sorted((place, term) for term in terms for place in _places(low, term))
    best = (0, 0, 0)
    for number, (start, _) in enumerate(places):
        inside: dict[str, int] = {}
        for place, term in places[number:]:
            if place + len(term) > start + size:
                break
            inside.setdefault(term, place + len(term))
        best = max(best, (len(inside), -start, max(inside.values(), default=start)))
        if len(inside) == len(terms):
            break
    return -best[1], best[2]


def _places(low: str, term: str) -> Iterator[int]:
    place = low.find(term)
    for _ in range(_PLACES):
        if place < 0:
            return
        yield place
        place = low.find(term, place + len(term))


def _lots(texts: Texts, start: int, end: int) -> Iterator[tuple[list[Document], int]]:
    """Yield documents with the seq before which everything is among them or earlier ones. A lot ends between cells, so
    that the next one needs nothing of it."""
    lot: list[Document] = []
    cell = _Cell()
    for entry in read(texts.store, start, end, types=ORIGINAL):
        if isinstance(entry.event, ev.CellStarted):
            cell = _Cell()
            if len(lot) >= LOT:
                yield lot, entry.seq
                lot = []
        if (original := cell.take(entry)) is not None and (text := searchable(original)):
            lot.append(Document(original.seq, KINDS.index(original.kind), text))
    yield lot, end


class _Cell:
    """What was seen of one cell while a log is read in order."""

    def __init__(self) -> None:
        self._pieces: list[ev.CellOutput] = []
        self._targets: dict[int, str] = {}
        self._recalled: list[str] = []

    def take(self, entry: ev.Entry) -> Original | None:
        """Take in an entry; return what is to be indexed of it."""
        event = entry.event
        match event:
            case ev.CellOutput() if not event.late:
                self._pieces.append(event)
                return None
            case ev.CellOutput():
                return Original(entry.seq, entry.turn, entry.step, "output", "", output([event], None, raw=False))
            case ev.CellEnded():
                kind: Kind = "output" if event.error is None else "error"
                text = _without(output(self._pieces, event.error, raw=False), self._recalled)
                return Original(entry.seq, entry.turn, entry.step, kind, "", text)
            case ev.DispatchStarted():
                self._targets[event.call] = event.target
                return None if _recalls(event.target) else plain_original(entry, "")
            case ev.DispatchEnded():
                target = self._targets.pop(event.call, "")
                if not _recalls(target):
                    return plain_original(entry, target)
                self._recalled += _strings(event.value)
                return None
            case ev.NotesWritten():  # the call that wrote it has the same words
                return None
        return plain_original(entry, "")


def _recalls(target: str) -> bool:
    return target.startswith("history.")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from itertools.chain.from_iterable(map(_strings, value.values()))
    elif isinstance(value, tuple):
        yield from itertools.chain.from_iterable(map(_strings, value))


def _without(text: str, recalled: Sequence[str]) -> str:
    """Return ``text`` without the lines that repeat what recall gave to its cell, as they are or inside a ``repr``."""
    if not recalled:
        return text
    whole = "\n".join(recalled)
    telling = [line for line in map(str.strip, whole.splitlines()) if len(line) >= _TELLING]
    lines = text.splitlines()
    if len(telling) > _COMPARED or len(lines) > _COMPARED:
        return ""
    own = [line for line in lines if line.strip() not in whole and not any(part in line for part in telling)]
    return "\n".join(own)
