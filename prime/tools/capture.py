"""One output stream of a process, kept within bounds while the process writes as much as it likes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

#: Bytes kept of the beginning and of the end of a stream, each.
HALF = 128 * 1024
_CHUNK = 64 * 1024


class Pipe:
    """Reads a pipe on the event loop, until every writer has closed it, wanted or not: a program left in the background
    must not fail or block because it writes.

    Attributes:
        writer: the descriptor to give to the process; close it here with :meth:`started` once the process has it.
        ended: set when every process has closed its end.
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        """``take`` gets what is read, piece by piece."""
        self.ended = asyncio.Event()
        self._take = take
        self._reader, self.writer = os.pipe()
        asyncio.get_running_loop().add_reader(self._reader, self._read)

    def started(self) -> None:
        """Close our copy of the writing end."""
        os.close(self.writer)

    def close(self) -> None:
        """Read no more, whoever still writes: that process gets SIGPIPE. Idempotent."""
        if not self.ended.is_set():
            asyncio.get_running_loop().remove_reader(self._reader)
            os.close(self._reader)
            self.ended.set()

    def _read(self) -> None:
        data = os.read(self._reader, _CHUNK)  # the loop calls this when there is something to read
        if data:
            self._take(data)
        else:
            self.close()


class Capture(Pipe):
    """Keeps the beginning and the end of what comes out of a pipe, and counts the middle."""

    def __init__(self) -> None:
        super().__init__(self._keep)
        self._head, self._tail = bytearray(), bytearray()
        self._left_out = 0

    @property
    def truncated(self) -> bool:
        """Whether a part in the middle was left out."""
        return self._left_out > 0

    def text(self) -> str:
        """Return what was kept as text, with a line in place of what was not."""
        if not self._left_out:
            return (self._head + self._tail).decode(errors="replace")
        head, tail = (part.decode(errors="replace") for part in (self._head, self._tail))
        return f"{head}\n[{self._left_out:,} bytes left out]\n{tail}"

    def _keep(self, data: bytes) -> None:
        room = HALF - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        excess = len(self._tail) - HALF
        if excess > 0:
            self._left_out += excess
            del self._tail[:excess]
