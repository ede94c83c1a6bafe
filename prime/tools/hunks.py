"""Hunks in a text: where they belong, and the text after them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prime.errors import ToolFailed
from prime.tools.patch import Hunk
from prime.tools.text import whereabouts

#: Characters that models write for others: dashes, quotes, spaces.
_PLAIN = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    | dict.fromkeys("\u2018\u2019\u201a\u201b", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f", '"')
    | dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " ")
)
#: What two lines are compared by, strictest first: a match of a stricter pass anywhere wins over a looser one.
_PASSES: tuple[Callable[[str], str], ...] = (str, str.rstrip, str.strip, lambda line: line.translate(_PLAIN).strip())

#: A line and its newline, which the last one may lack. A lone carriage return is part of its line.
_LINE = re.compile(r"([^\n]*?)(\r?\n|\Z)")

#: What a unified diff has after "@@".
_NUMBERS = re.compile(r"-\d+(,\d+)? \+\d+")

_Lines = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Change:
    """``lines`` of a hunk, whose old ones stand at ``start`` in the file."""

    start: int
    lines: _Lines

    @property
    def end(self) -> int:
        return self.start + len(_old(self.lines))


def patched(raw: str, newline: str, hunks: Sequence[Hunk], name: str) -> str:
    """Return the text ``raw`` after ``hunks``. New lines end with ``newline``.

    Lines that a hunk does not change keep their own text and newline, also where they matched loosely. A text without
    a newline at its end stays without.

    Raises:
        ToolFailed: ``no_match`` or ``overlap``, naming the file, the hunk, and the nearest line.
    """
    whole = [(line[1], line[2] or newline) for line in _LINE.finditer(raw) if line[0]]
    texts = [text for text, _ in whole]
    # the last first, so that places before it stay where they are; of insertions at one place, the last in the patch
    for change in reversed(_Places(texts, name).of(hunks)):
        kept, at = [], change.start
        for sign, text in change.lines:
            if sign != "-":
                kept.append((text, newline) if sign == "+" else whole[at])
            at += sign != "+"
        whole[change.start : change.end] = kept
    result = "".join(text + end for text, end in whole)
    return result.removesuffix(whole[-1][1]) if whole and raw and not raw.endswith("\n") else result


class _Places:
    """Where the hunks of one section belong in the lines of a file."""

    def __init__(self, texts: Sequence[str], name: str) -> None:
        self._texts = texts
        self._name = name
        self._keyed: dict[int, list[str]] = {}

    def of(self, hunks: Sequence[Hunk]) -> list[_Change]:
        """Return the changes in the order of the file."""
        changes: list[_Change] = []
        cursor = 0
        for hunk in hunks:
            if hunk.context is not None:
                found = self._find([hunk.context], cursor)
                if found is None:
                    raise self._missing(hunk, "the line after '@@'", [hunk.context], cursor)
                cursor = found + 1
            change = self._place(hunk, cursor)
            for other in changes:
                if change.start < other.end and other.start < change.end:
                    where = f"lines {change.start + 1} to {change.end} of {self._name}"
                    raise ToolFailed("overlap", f"hunk {hunk.number} changes {where}, which an earlier hunk has too")
            changes.append(change)
            if _old(hunk.lines):
                cursor = change.end
        return sorted(changes, key=lambda change: change.start)  # stable: insertions at the end keep their order

    def _place(self, hunk: Hunk, cursor: int) -> _Change:
        old = _old(hunk.lines)
        if not old:
            return _Change(len(self._texts), hunk.lines)
        for lines in (hunk.lines, _without_last_blank(hunk.lines)):
            wanted = _old(lines)
            if wanted:
                last = len(self._texts) - len(wanted)
                found = self._find(wanted, last if hunk.at_end else cursor)
                if found is not None:
                    return _Change(found, lines)
        raise self._missing(hunk, "its lines at the end of the file" if hunk.at_end else "its lines", old, cursor)

    def _find(self, wanted: Sequence[str], start: int) -> int | None:
        if start < 0:
            return None
        for number, key in enumerate(_PASSES):
            keyed = self._keyed.setdefault(number, [])
            if len(keyed) < len(self._texts):
                keyed.extend(map(key, self._texts))
            piece = [key(line) for line in wanted]
            stop = len(keyed) - len(piece) + 1
            at = start
            while at < stop:
                try:
                    at = keyed.index(piece[0], at, stop)
                except ValueError:
                    break
                if keyed[at : at + len(piece)] == piece:
                    return at
                at += 1
        return None

    def _missing(self, hunk: Hunk, what: str, wanted: Sequence[str], cursor: int) -> ToolFailed:
        place = f"hunk {hunk.number}: {self._name} does not have {what}"
        if _NUMBERS.match(wanted[0]) and hunk.context is not None:
            return ToolFailed(
                "no_match", f"{place}; leave line numbers out, '@@' alone or with a line of the file will do"
            )
        above = self._find(wanted, 0)
        if above is not None and not hunk.at_end:
            found = f"they are at line {above + 1}, but line {cursor} belongs to what comes before in the patch"
            return ToolFailed("no_match", f"{place} below line {cursor}: {found}; order hunks as the file is")
        return ToolFailed("no_match", f"{place}{self._nearest(wanted)}")

    def _nearest(self, wanted: Sequence[str]) -> str:
        """Return where most of the first lines stand together, in words."""
        loose = _PASSES[-1]
        lines, piece = [loose(line) for line in self._texts], [loose(line) for line in wanted]
        best, length = 0, 0
        for at, line in enumerate(lines):
            if line == piece[0]:
                same = next((n for n, (a, b) in enumerate(zip(lines[at:], piece, strict=False)) if a != b), None)
                same = min(len(lines) - at, len(piece)) if same is None else same
                best, length = (at, same) if same > length else (best, length)
        if 0 < length < len(piece):
            differing = best + length
            has = f"has {self._texts[differing]!r:.120}" if differing < len(lines) else "has ended"
            return f"; line {differing + 1} {has} where the patch has {wanted[length]!r:.120}"
        return whereabouts("\n".join(self._texts), "\n".join(wanted))


def _old(lines: _Lines) -> list[str]:
    return [text for sign, text in lines if sign != "+"]


def _without_last_blank(lines: _Lines) -> _Lines:
    """Return the lines of a hunk whose old ones end with an empty line without it, and without an empty last new one;
    empty when there is no such line."""
    last_old = max(index for index, (sign, _) in enumerate(lines) if sign != "+")
    if lines[last_old][1]:
        return ()
    last_new = max((index for index, (sign, _) in enumerate(lines) if sign != "-"), default=-1)
    rest = []
    for index, (sign, text) in enumerate(lines):
        old = sign != "+" and index != last_old
        new = sign != "-" and (index != last_new or text != "")
        if old or new:
            rest.append((" " if old and new else "-" if old else "+", text))
    return tuple(rest)
