"""How much output one cell may publish: its beginning as it comes, its end when the cell is over."""

from __future__ import annotations

import threading
from collections import deque

#: Bytes of a cell's limit that are kept for the end of its output, at most.
TAIL = 65_536

#: Bytes of that share for the line that says what is missing.
_GAP = 128


class Meter:
    """Counts the bytes of output that a cell publishes, up to ``limit``. Of what is beyond it the last part is kept for
    :meth:`rest`; what lies between is counted in ``dropped``.

    Threads of one cell may overrun the limit by what they write at the same instant; the host caps again.

    Attributes:
        left: bytes that may still be published at once.
        dropped: bytes that are published nowhere.
        full: whether something was cut; nothing is published at once from then on.
    """

    def __init__(self, limit: int) -> None:
        share = min(TAIL, limit // 4)
        self.left = limit - share
        self.dropped = 0
        self._room = max(share - _GAP, 0)
        self._tail: deque[tuple[str, bytearray]] = deque()
        self._kept = 0
        self.full = self._over = False
        self._lock = threading.RLock()  # a finaliser that prints may come in between

    def admit(self, text: str, stream: str = "stdout") -> str:
        """Return the part of ``text`` that may be published now. Lone surrogates, which no channel can carry, become
        backslash escapes. ``stream`` is where the rest belongs, should it be published at the end."""
        ascii_only = text.isascii()
        if ascii_only and len(text) <= self.left and not self.full:
            self.left -= len(text)
            return text
        data = text.encode("utf-8", "backslashreplace")
        if len(data) <= self.left and not self.full:
            self.left -= len(data)
            return data.decode()
        # errors="ignore" drops the character that the cut goes through
        admitted = "" if self.full else data[: self.left].decode("utf-8", "ignore")
        # nothing is published after a cut until the end: output with a hole that nothing tells of would mislead
        self.full = True
        self._keep(memoryview(data)[len(admitted.encode()) :], stream)
        return admitted

    def take(self, size: int) -> bool:
        """Account for ``size`` bytes that are published whole or not at all. What is small may still find room after
        something large did not."""
        if self.full or size > self.left:
            self.dropped += size
            return False
        self.left -= size
        return True

    def rest(self) -> list[tuple[str, str]]:
        """Return what is still to be published at the cell's end, by stream and in order: how much is missing, and the
        last part of what was beyond the limit. What comes later than this is dropped."""
        with self._lock:
            self._over = True
            tail, self._tail = self._tail, deque()
            kept, self._kept = self._kept, 0
        if not self.full:
            return []
        pieces = [(stream, data.decode("utf-8", "ignore")) for stream, data in tail]
        self.dropped += kept - sum(len(text.encode()) for _, text in pieces)  # parts of a character at the cut
        if self.dropped:
            gap = f"\n[... {self.dropped:,} bytes were dropped here: over the output limit of a cell ...]\n"
            pieces.insert(0, (pieces[0][0] if pieces else "stdout", gap))
        return pieces

    def _keep(self, data: memoryview, stream: str) -> None:
        with self._lock:
            if self._over:
                self.dropped += len(data)
                return
            self._kept += min(len(data), self._room)
            self.dropped += max(len(data) - self._room, 0)
            data = data[max(len(data) - self._room, 0) :]
            if self._tail and self._tail[-1][0] == stream:
                self._tail[-1][1].extend(data)
            elif data:
                self._tail.append((stream, bytearray(data)))
            while (excess := self._kept - self._room) > 0:
                first = self._tail[0][1]
                gone = min(excess, len(first))
                del first[:gone]
                if not first:
                    self._tail.popleft()
                self._kept -= gone
                self.dropped += gone
