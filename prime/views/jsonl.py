"""A log as JSON lines: one entry a line, nothing left out. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from prime import events as ev


def line(entry: ev.Entry) -> str:
    """Return an entry as one line of JSON, without its end."""
    return json.dumps(entry.as_json(), ensure_ascii=False, separators=(",", ":"))


def lines(entries: Iterable[ev.Entry]) -> Iterator[str]:
    """Yield every entry as one line of JSON, with its end."""
    for entry in entries:
        yield line(entry) + "\n"
