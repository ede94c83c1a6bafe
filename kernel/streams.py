"""Standard output and error of the kernel, capped per cell at the source."""

from __future__ import annotations

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
