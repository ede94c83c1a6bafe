"""What the log needs from a store: frozen rows, content-addressed values, and a text index."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
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


class Document(NamedTuple):
    """What can be searched of an entry. ``kind`` is a number from 0 to 15 that the caller gives a meaning."""

    seq: int
    kind: int
    text: str


class Match(NamedTuple):
    """A document that a search found."""

    seq: int
    kind: int


class Store(Protocol):
    """One session's rows. Nothing outside ``store/`` knows SQL; there is one writer, and readers open read-only."""

    @property
    def format(self) -> int:
        """The format version of the log."""
        ...

    @property
    def version(self) -> int:
        """A number that changes when somebody else, on another connection, has written to the file."""
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

    def last(self, types: Sequence[str] | None = None, before: int | None = None) -> Row | None:
        """Return the newest row, of the given types only and with ``seq < before``."""
        ...

    def turn_start(self, turn: int) -> int | None:
        """Return the seq of the row of type ``turn_started`` with this turn's number."""
        ...

    def blob(self, digest: str) -> str:
        """Return a blob's text.

        Raises:
            CorruptLog: it is missing, or its bytes do not match its digest.
        """
        ...

    def indexed(self, version: int) -> int:
        """Return the seq before which every entry is in the text index. ``version`` is that of the caller's rules for
        what is indexed; what was indexed under another one does not count."""
        ...

    def index(self, documents: Sequence[Document], until: int, version: int) -> None:
        """Add to the text index, all or nothing; ``until`` is what :meth:`indexed` returns then.

        The index is no part of the log: it can always be made anew. A store opened read-only keeps it for itself.
        """
        ...

    def find(self, terms: Sequence[str], kinds: Collection[int], limit: int, version: int) -> list[Match]:
        """Return at most ``limit`` indexed documents of these kinds, those with more of the terms first, then newer
        ones.
        A term (of :func:`prime.store.words.terms`) is a word; when no entry has that, the beginning of words; when no
        entry has any of the terms, a part of words."""
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
