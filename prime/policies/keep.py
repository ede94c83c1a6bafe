"""The one mechanism of every rule of the fold: which lines of a text stay, and what is said of the others. Pure.

A rule marks lines to keep and may say what a gap holds. Every gap is marked with the numbers of its lines, by which
they can be asked back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: Code points of a kept line; a longer one is cut to its head and tail.
LINE, LINE_HEAD, LINE_TAIL = 1_500, 700, 300


class Kept:
    """A selection of the lines of a text."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self._kept = bytearray(len(lines))
        self._notes: dict[int, str] = {}
        self._closing: list[str] = []

    @property
    def count(self) -> int:
        """How many lines are kept."""
        return sum(self._kept)

    def __contains__(self, place: int) -> bool:
        return bool(self._kept[place])

    def keep(self, places: Iterable[int]) -> None:
        """Keep these lines; places outside the text are ignored."""
        for place in places:
            if 0 <= place < len(self._kept):
                self._kept[place] = 1

    def note(self, place: int, words: str) -> None:
        """Say ``words`` of the gap that the line at ``place`` falls into, if it does; a gap ends with that line."""
        self._notes[place] = words

    def close(self, words: str) -> None:
        """Say ``words`` below everything."""
        self._closing.append(words)

    def rendered(self) -> list[str]:
        """Return the kept lines, the markers of the gaps, and the closing words. Blank lines alone are no gap."""
        shown: list[str] = []
        start = 0
        for place, line in enumerate(self.lines):
            if self._kept[place]:
                shown += self._gap(start, place, "")
                shown.append(cut(line))
                start = place + 1
            elif place in self._notes:
                shown += self._gap(start, place + 1, f": {self._notes[place]}")
                start = place + 1
        return [*shown, *self._gap(start, len(self.lines), ""), *self._closing]

    def _gap(self, start: int, stop: int, words: str) -> list[str]:
        if start == stop:
            return []
        size = sum(len(line) + 1 for line in self.lines[start:stop])
        if not any(line.strip() for line in self.lines[start:stop]):
            return [""]
        numbers = f"line {start + 1}" if stop == start + 1 else f"lines {start + 1}-{stop}"
        return [f"[... {numbers}, {size:,} characters{words} ...]"]


def cut(line: str) -> str:
    """Return a line, its middle left out when it is very long."""
    if len(line) <= LINE:
        return line
    return f"{line[:LINE_HEAD]} [... {len(line) - LINE_HEAD - LINE_TAIL:,} characters ...] {line[-LINE_TAIL:]}"


def around(places: Iterable[int], before: int, after: int) -> set[int]:
    """Return the places with their neighbours."""
    return {near for place in places for near in range(place - before, place + after + 1)}


def ends(places: Sequence[int], head: int, tail: int) -> list[int]:
    """Return the first ``head`` and the last ``tail`` of the places, each once."""
    if len(places) <= head + tail:
        return list(places)
    return [*places[:head], *places[len(places) - tail :]]
