"""One output stream of a process, kept within bounds while the process writes as much as it likes."""

from __future__ import annotations

import asyncio
import os

#: Bytes kept of the beginning and of the end of a stream, each.
HALF = 128 * 1024
_CHUNK = 64 * 1024


class Capture:
    """Reads a pipe on the event loop: the beginning and the end are kept, the middle is counted.

    It goes on emptying the pipe until every writer has closed it, wanted or not: a program left in the background must
    not fail or block because it writes.

    Attributes:
        writer: the descriptor to give to the process; close it here with :meth:`started` once the process has it.
        ended: set when every process has closed its end.
    """

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self._reader, self.writer = os.pipe()
        self._head, self._tail = bytearray(), bytearray()
        self._left_out = 0
        asyncio.get_running_loop().add_reader(self._reader, self._read)

    def started(self) -> None:
        """Close our copy of the writing end."""
        os.close(self.writer)

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

    def _read(self) -> None:
        data = os.read(self._reader, _CHUNK)  # the loop calls this when there is something to read
        if not data:
            asyncio.get_running_loop().remove_reader(self._reader)
            os.close(self._reader)
            self.ended.set()
        room = HALF - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        excess = len(self._tail) - HALF
        if excess > 0:
            self._left_out += excess
            del self._tail[:excess]
