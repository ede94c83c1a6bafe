"""Lines of a job that the model wants to hear of: found off the event loop, within a time for each, and bounded."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from functools import partial

import regex

from prime.errors import ToolFailed
from prime.jobs.output import Output
from prime.tools.threads import in_thread

#: Seconds that a pattern may take over one line, and over :data:`CHUNK` bytes of them.
LINE_TIME_S, CHUNK_TIME_S = 0.1, 2.0
#: Bytes of a line that a pattern is tried on, and characters of one that are told.
LINE_BYTES, LINE_CHARS = 8_192, 300
#: Lines that are told from the beginning and from the end of those found at a time, each.
EDGE = 5
#: Bytes that are looked through at a time.
CHUNK = 256 * 1024


class Watch:
    """Looks for lines in what a job writes from ``start`` on, which is the beginning of a line or taken for one.

    Attributes:
        at: how far it has looked.
        count: lines found since they were last told.
        failed: why it looks no further, empty while it does.
    """

    def __init__(self, output: Output, pattern: str | None, *, case_sensitive: bool, start: int) -> None:
        """Raises:
        ToolFailed: ``bad_arguments`` for what is no regular expression.
        """
        try:
            self._pattern = regex.compile(pattern or "", 0 if case_sensitive else regex.IGNORECASE)
        except regex.error as error:
            raise ToolFailed("bad_arguments", f"pattern={pattern!r} is no regular expression: {error}") from None
        self._output = output
        self.at = start
        self.count = 0
        self.failed = ""
        self._first: list[str] = []
        self._last: deque[str] = deque(maxlen=EDGE)

    async def look(self, *, final: bool = False) -> None:
        """Look through the complete lines that are there; ``final``: no more will come, and the last line is one."""
        while not self.failed:
            start = self.at
            piece = self._output.read(start, CHUNK)
            data, complete = piece.data, piece.data.rfind(b"\n") + 1
            more = piece.offset + len(data) < self._output.total
            if more or not final:
                # a line that has no end here, and never gets one: it fills a chunk, or what follows is gone
                data = data[:complete] or (data if more else b"")
            if not data:
                return
            try:
                found = await in_thread(partial(_found, self._pattern, data.splitlines()))
            except TimeoutError:
                self.failed = "the pattern takes too long"
                return
            if self.at == start:  # else it was told meanwhile to skip this
                self.at = piece.offset + len(data)
                self._take(found)

    def skip(self) -> None:
        """Forget what was found, and look from the present end on: the model has read what is there."""
        self.at = self._output.total
        self.told()

    def told(self) -> str:
        """Return what was found since this was last called, for the model; empty for nothing."""
        lines = [*self._first, *self._last]
        if (hidden := self.count - len(lines)) > 0:
            lines.insert(len(self._first), f"[... {hidden:,} more ...]")
        self.count, self._first = 0, []
        self._last.clear()
        return "\n".join(lines)

    def _take(self, found: Iterable[str]) -> None:
        for line in found:
            self.count += 1
            if len(self._first) < EDGE:
                self._first.append(line)
            else:
                self._last.append(line)


def _found(pattern: regex.Pattern[str], lines: Iterable[bytes]) -> list[str]:
    """Return the lines in which the pattern is found.

    Raises:
        TimeoutError: it took too long over one, or over all.
    """
    deadline = time.monotonic() + CHUNK_TIME_S
    found = []
    for line in lines:
        text = line[:LINE_BYTES].decode(errors="replace")
        # concurrent: the event loop runs on while a long line is looked through
        if pattern.search(text, timeout=LINE_TIME_S, concurrent=True):
            found.append(text[:LINE_CHARS])
        if time.monotonic() > deadline:
            raise TimeoutError
    return found
