"""What the log needs from a store: frozen rows, content-addressed values, and a text index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol


class Row(NamedTuple):
    """One stored entry.

    Attributes:
        body: the event as JSON text, without the fields that became blobs.
        blobs: field name -> digest, for the fields of the event whose JSON text is too large to sit in the row.
        ignorable: whether a reader that does not know ``type`` may skip the entry.
    """

    seq: int
    at: int
    turn: int | None
    step: int | None
    type: str
    body: str
    blobs: Mapping[str, str]
    ignorable: bool = False


class Store(Protocol):
    """One session's rows. Nothing outside ``store/`` knows SQL; there is one writer, and readers open read-only."""

    @property
    def format(self) -> int:
        """The format version of the log."""
        ...

    def append(self, rows: Sequence[Row], blobs: Mapping[str, str], *, durable: bool) -> None:
        """Store all or nothing. What is stored survives the death of the process at once, and the loss of power when
        ``durable`` (together with everything stored before).

        Raises:
            AppendRefused: a seq that does not continue the rows; nothing is stored.
        """
        ...

    def rows(self, start: int = 0, end: int | None = None, types: Sequence[str] | None = None) -> Iterator[Row]:
        """Yield rows with ``start <= seq < end`` in order, of the given types only."""
        ...

    def pick(self, seqs: Sequence[int]) -> dict[int, Row]:
        """Return the rows of these seqs."""
        ...

    def types(self) -> set[str]:
        """Return the types of all rows."""
        ...

    def last(self) -> Row | None:
        """Return the newest row."""
        ...

    def blob(self, digest: str) -> str:
        """Return a blob's text.

        Raises:
            CorruptLog: it is missing, or its bytes do not match its digest.
        """
        ...

    def check(self) -> None:
        """Check that every stored byte is what was written.

        Raises:
            CorruptLog: naming the first entry that cannot be trusted.
        """
        ...

    def close(self) -> None:
        """Close. Idempotent."""
        ...
