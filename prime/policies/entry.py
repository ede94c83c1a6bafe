"""The text of an entry of the tape. Pure. Sizes are code points.

An entry says what a person was told, word for word, what was read, and which results there were, each with the call
that returns it. A limit on its size takes the least useful away first and never cuts a call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from prime import events as ev
from prime import locators
from prime.policies.base import Read, TapeOptions

#: Result lines of a turn; more are counted.
MAX_RESULTS = 6
#: Reads that an index names, and code points of an index and of a path in it.
MAX_READS, INDEX_CHARS, PATH_CHARS = 10, 2_000, 160
#: Code points of a reply from which an excerpt is taken, and those of its head and tail.
REPLY_CHARS, REPLY_HEAD, REPLY_TAIL = 2_000, 1_400, 500
#: The same for a person's words under ``profile = "v3"``.
USER_CHARS, USER_HEAD, USER_TAIL = 1_200, 600, 300
#: Head and tail of a reply in one line.
LINE_HEAD, LINE_TAIL = 32, 16
#: The limit of an entry under ``profile = "v3"`` when none is set.
V3_ENTRY_CHARS = 8_000
#: Hex digits of the fingerprint in the marks around a reply: a forged end mark would have to guess them.
MARK_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Said:
    """A reply of the model."""

    step: int
    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a cell: ``size`` is that of its whole output, ``names`` are the calls that the cell made."""

    step: int
    seq: int
    names: str
    size: int


@dataclass(frozen=True, slots=True)
class SealedTurn:
    """What an entry tells of a turn. ``silent`` replies had neither words nor calls; each read comes with the newest
    one of an earlier turn of the same lines."""

    number: int
    users: tuple[str, ...]
    replies: tuple[Said, ...]
    silent: int
    reads: tuple[tuple[Read, Read | None], ...]
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class _Level:
    """How much an entry tells. ``share`` divides the size of excerpts; None keeps replies whole."""

    results: bool = True
    share: int | None = None
    index: int = INDEX_CHARS
    lines: bool = False


#: From everything to as good as nothing; the first one that fits is taken.
_LEVELS = (
    _Level(),
    _Level(results=False),
    _Level(results=False, share=1),
    *(_Level(results=False, share=share, index=INDEX_CHARS // share) for share in (2, 4, 8, 16)),
    _Level(results=False, share=16, index=128, lines=True),
    _Level(results=False, share=16, index=0, lines=True),
)


def rendered(turns: Sequence[SealedTurn], options: TapeOptions) -> str:
    """Return the entry of these turns, at most ``entry_max_chars`` long."""
    limit = options.entry_max_chars
    levels: Sequence[_Level] = _LEVELS
    if options.profile == "v3":
        limit = V3_ENTRY_CHARS if limit is None else limit
        levels = [replace(level, share=level.share or 1) for level in _LEVELS]
        turns = [replace(turn, replies=turn.replies[-1:]) for turn in turns]
    for level in levels:
        text = "\n".join(_entry(turns, level, options))
        if limit is None or len(text) <= limit:
            return text
    first, last = turns[0].number, turns[-1].number
    return f"{_title(turns)}]\n[{locators.turn(first)} returns turn {first}; repeat through turn {last}]"


def _title(turns: Sequence[SealedTurn]) -> str:
    return f"[slice tape v1 · turns {turns[0].number}-{turns[-1].number} · {len(turns)} turn(s) sealed"


def _entry(turns: Sequence[SealedTurn], level: _Level, options: TapeOptions) -> Iterator[str]:
    calls = f"{locators.turn('n')} returns a turn · {locators.expand('n')} returns a result"
    short = "history.turn / history.expand"
    yield f"{_title(turns)} · {calls if options.locators == 'long' else short}]"
    for turn in turns:
        yield f"[turn {turn.number}]"
        yield from _said(turn, level)
        if turn.silent:
            yield f"[{turn.silent} assistant message(s) contained no visible text or tool calls]"
        if index := _index(turn, level.index):
            yield index
        if level.results:
            yield from _results(turn, options)


def _said(turn: SealedTurn, level: _Level) -> Iterator[str]:
    for text in turn.users:
        if level.lines:
            yield f"[user: {_line(text)}]"
            continue
        yield "[user]"
        yield _excerpt(text, turn.number, level.share or 1, (USER_CHARS, USER_HEAD, USER_TAIL))
    for reply in turn.replies:
        name = f"slice-turn-{turn.number}-step-{reply.step}-seq-{reply.seq}"
        if level.lines:
            yield f"[reply {name}: {_line(reply.text)}]"
            continue
        text = reply.text
        if level.share is not None:
            text = _excerpt(text, turn.number, level.share, (REPLY_CHARS, REPLY_HEAD, REPLY_TAIL))
        mark = f"@sha256:{hashlib.sha256(text.encode()).hexdigest()[:MARK_DIGITS]}"
        yield f"[reply {name} {mark}]"
        yield text
        yield f"[end reply {mark}]"


def _excerpt(text: str, turn: int, share: int, sizes: tuple[int, int, int]) -> str:
    most, head, tail = (size // share for size in sizes)
    if len(text) <= most:
        return text
    return f"{text[:head]}…[+{len(text) - head - tail} chars, {locators.turn(turn)}]…{text[-tail:]}"


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LINE_HEAD + LINE_TAIL else f"{text[:LINE_HEAD]}…{text[-LINE_TAIL:]}"


def _index(turn: SealedTurn, budget: int) -> str:
    """Return the line of what the turn's cells read, as it was then; empty when there is nothing to tell."""
    if not turn.reads or not budget:
        return ""
    listed: list[str] = []
    for read, earlier in turn.reads[:MAX_READS]:
        label = _label(read, earlier)
        if sum(map(len, listed)) + 2 * len(listed) + len(label) > budget:
            break
        listed.append(label)
    if more := len(turn.reads) - len(listed):
        listed.append(f"+{more} more" if listed else f"{more} files or parts of files")
    return f"[read by cells of this turn, as it was then: {', '.join(listed)}]"


def _label(read: Read, earlier: Read | None) -> str:
    path = read.path if len(read.path) <= PATH_CHARS else f"…{read.path[-PATH_CHARS:]}"
    window = read.window if len(read.window) <= PATH_CHARS else f"{read.window[:PATH_CHARS]}…"
    compared = ""
    if earlier is not None:
        compared = f", {'=' if earlier.fingerprint == read.fingerprint else '≠'} turn {earlier.turn}"
    return (
        f"{path} ({read.lines} lines, {read.fingerprint}, step {read.step}, seq {read.seq}, window {window}{compared})"
    )


def _results(turn: SealedTurn, options: TapeOptions) -> Iterator[str]:
    for result in turn.results[:MAX_RESULTS]:
        how = locators.expand(result.seq) if options.locators == "long" else f"v{ev.FORMAT}"
        where = f"turn {turn.number} step {result.step} seq {result.seq}"
        yield f"[result {where} · {result.names} · {result.size} chars · {how}]"
    if len(turn.results) > MAX_RESULTS:
        yield f"[+{len(turn.results) - MAX_RESULTS} more results]"
