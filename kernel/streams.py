"""Standard output and error of the kernel, capped per cell at the source."""

from __future__ import annotations

import codecs
import io
import os
from typing import Any

from ipykernel.iostream import OutStream

from . import lease

#: Characters that are sent in one message, about, and bytes that are decoded at once.
_SLICE = 1 << 20


class CappedStream(OutStream):
    """A stream that publishes at most what the cell's meter admits, and skips flushes that have nothing to send (each
    costs a turn of the publishing thread, and ipykernel makes about ten a cell)."""

    #: Seconds until written text is published without a flush.
    flush_interval = 0.05
    _dirty = False
    _waiting = 0
    _buffer: io.BufferedIOBase | None = None

    def write(self, string: str) -> int:
        if not isinstance(string, str):
            raise TypeError(f"write() argument must be str, not {type(string).__name__}")
        meter = lease.meter()
        self.publish(string if meter is None else meter.admit(string, self.name))
        return len(string)

    def publish(self, text: str) -> None:
        """Send text that was admitted."""
        for start in range(0, len(text), _SLICE):
            piece = text[start : start + _SLICE]
            super().write(piece)
            self._dirty = True
            self._waiting += len(piece)
            if self._waiting >= _SLICE:  # what waits becomes one message, which both ends hold several times over
                self.flush()

    @property
    def buffer(self) -> io.BufferedIOBase:
        """Where bytes can be written, as to any standard stream; those that are no UTF-8 become backslash escapes."""
        if self._buffer is None:
            self._buffer = _Bytes(self)
        return self._buffer

    def close(self) -> None:
        """Flush only: a cell that closes its standard output would silence all later ones."""
        self.flush()

    def flush(self) -> None:
        if self._dirty:
            self._dirty, self._waiting = False, 0
            super().flush()


class _Bytes(io.BufferedIOBase):
    """The bytes below a text stream."""

    def __init__(self, stream: CappedStream) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._stream.fileno())

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _SLICE):
            self._stream.write(self._decoder.decode(view[start : start + _SLICE]))
        return len(view)

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self.flush()


class Descriptors:
    """The process's standard descriptors as they were at first.

    Where a cell has closed one, whatever is opened next gets its number, a socket of ZeroMQ's too; the next cell to
    close it would end the kernel.
    """

    def __init__(self) -> None:
        self._kept = [os.dup(number) for number in range(3)]

    def restore(self) -> None:
        """Open again those that are closed."""
        for number, kept in enumerate(self._kept):
            try:
                os.fstat(number)
            except OSError:
                os.dup2(kept, number)
