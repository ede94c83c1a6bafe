"""The texts that a turn began with, in one text: the words of persons and the files that were read. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prime import events as ev
from prime import locators
from prime.messages import text_of

#: Characters of pinned texts at most, however large the window.
PINNED_CHARS = 48_000


def pinned(entries: Iterable[ev.Entry], most: int) -> str:
    """Return the words and reads ``entries`` under headings, at most ``most`` characters of them. What comes first is
    whole; where it ends, a line says what is missing and which call gives it."""
    sections, left = [], most
    for entry in entries:
        heading, text = _section(entry.event)
        text = text.removesuffix("\n")
        shown = text[:left]
        left -= len(shown)
        sections.append(f"## {heading}\n{shown}")
        if missing := len(text) - len(shown):
            call = locators.expand(entry.seq)
            sections[-1] += f"\n[{missing:,} more characters are left out; `await {call}` gives them]"
    return "\n\n".join(sections)


def _section(event: Any) -> tuple[str, str]:
    if isinstance(event, ev.UserSaid):
        return "Request", text_of(event.parts)
    value = event.value
    first, count = value.get("offset", 1), value["line_count"]
    total = value.get("total_lines", count)
    part = f", lines {first}-{first + count - 1} of {total}" if count < total else ""
    return f"File {value['path']}{part}", value["text"]
