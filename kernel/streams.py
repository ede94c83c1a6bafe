"""Standard output and error of the kernel, capped per cell at the source."""

from __future__ import annotations

import os

from ipykernel.iostream import OutStream

from . import lease


class CappedStream(OutStream):
    """A stream that publishes at most what the cell's meter admits, and skips flushes that have nothing to send (each
    costs a turn of the publishing thread, and ipykernel makes about ten a cell)."""

    #: Seconds until written text is published without a flush.
    flush_interval = 0.05
    _dirty = False

    def write(self, string: str) -> int:
        if not isinstance(string, str):
            raise TypeError(f"write() argument must be str, not {type(string).__name__}")
        meter = lease.meter()
        admitted = string if meter is None else meter.admit(string)
        if admitted:
            super().write(admitted)
            self._dirty = True
        return len(string)

    def close(self) -> None:
        """Flush only: a cell that closes its standard output would silence all later ones."""
        self.flush()

    def flush(self) -> None:
        if self._dirty:
            self._dirty = False
            super().flush()


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
