"""A part of a text, chosen by line numbers or by a pattern. Pure, and bounded in time."""

from __future__ import annotations

import time
from collections.abc import Sequence

import regex

from prime.errors import ToolFailed

#: Seconds that a pattern of the model may take over one text.
PATTERN_SECONDS = 2.0
#: Matching lines that are shown, and lines around each.
MATCHES, AROUND = 200, 2


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, without their ends; the empty text has none."""
    return text.removesuffix("\n").split("\n") if text else []


def filtered(text: str, lines: str | None, grep: str | None) -> str:
    """Return the whole of ``text``, or its lines ``"a-b"`` (from 1, inclusive), or those that match a pattern.

    Raises:
        ToolFailed: ``bad_arguments`` or ``bad_pattern``, saying what to write.
    """
    if lines is None and grep is None:
        return text
    every = lines_of(text)
    first, last = _range(lines, len(every)) if lines is not None else (1, len(every))
    if grep is None:
        return "\n".join(every[first - 1 : last])
    return _matching(every[first - 1 : last], first, grep)


def _range(lines: str, count: int) -> tuple[int, int]:
    if (found := regex.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", lines)) is None:
        raise ToolFailed("bad_arguments", f'lines={lines!r} is not a range; write lines="10-40" or lines="7"')
    first, last = int(found[1]), int(found[2] or found[1])
    if not 1 <= first <= min(last, count):
        raise ToolFailed("bad_arguments", f"lines={lines!r} holds no line; the text has {count:,}, counted from 1")
    return first, min(last, count)


def _matching(lines: Sequence[str], first: int, grep: str) -> str:
    if not grep.strip():
        raise ToolFailed("bad_arguments", "grep is blank; give a regular expression, or leave it out for the whole")
    matching = _matches(lines, grep)
    if not matching:
        return f"0 of {len(lines):,} lines match {grep!r}"
    shown = matching[:MATCHES]
    more = f", the first {MATCHES} are shown" if len(matching) > MATCHES else ""
    found = [f"{len(matching):,} of {len(lines):,} lines match {grep!r}{more}"]
    hit, wanted = set(shown), sorted({near for place in shown for near in range(place - AROUND, place + AROUND + 1)})
    before = -1
    for place in wanted:
        if 0 <= place < len(lines):
            if before >= 0 and place > before + 1:
                found.append("...")
            found.append(f"{first + place}{':' if place in hit else '-'} {lines[place]}")
            before = place
    return "\n".join(found)


def _matches(lines: Sequence[str], grep: str) -> list[int]:
    try:
        pattern = regex.compile(grep, regex.IGNORECASE)
        until = time.monotonic() + PATTERN_SECONDS
        return [
            place
            for place, line in enumerate(lines)
            if pattern.search(line, timeout=max(until - time.monotonic(), 0.001))
        ]
    except regex.error as error:
        raise ToolFailed("bad_pattern", f"grep={grep!r} is not a regular expression: {error}") from None
    except TimeoutError:
        raise ToolFailed("bad_pattern", f"grep={grep!r} takes too long; write a simpler pattern") from None
