"""The session log: append with one writer, read, observe.

An append is synchronous and all-or-nothing. The order of its checks: the event is a validated model (which holds only
lossless JSON); its stored form reads back as the same event; the trace and the surface take what was read back, so
nobody else holds a part of it; the store commits; observers are told. A refused append changes nothing; an observer
that raises undoes nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from pydantic import ValidationError

from prime import events as ev
from prime.errors import AppendRefused, CorruptLog, LogError, UnsupportedLog
from prime.state import State
from prime.store.base import Row, Store

_logger = logging.getLogger(__name__)

#: A field of an event whose JSON text is longer than this many characters is stored once, by its digest.
BLOB_LIMIT = 64 * 1024

Observer = Callable[[ev.Entry], None]

#: What a fold of the state needs; the rest is output and the inner life of cells that have ended.
_INNER = (
    *("cell_output", "dispatch_started", "dispatch_ended"),
    *("dispatch_refused", "approval_requested", "approval_given"),
)
_STATEFUL = tuple(name for name in ev.TYPES if name not in _INNER)


class Log:
    """One session's log, open for writing. :attr:`state` is its fold, always current."""

    def __init__(self, store: Store) -> None:
        """Fold what is stored.

        Raises:
            CorruptLog: the stored entries do not make sense.
            UnsupportedLog: they hold an event of a newer version.
        """
        self._store = store
        self._observers: list[Observer] = []
        self._publishing = False
        self.state = State()
        last = store.last()
        self._next = last.seq + 1 if last else 0
        self._fold()

    @property
    def store(self) -> Store:
        """Where the entries are, for those who read and search; only the log appends to it."""
        return self._store

    @property
    def session(self) -> str:
        """The session's id."""
        return self.state.session

    def __len__(self) -> int:
        return self._next

    def append(self, *events: Any, durable: bool = False, at: int | None = None) -> tuple[ev.Entry, ...]:
        """Append events in one commit and return their entries.

        What is appended survives the death of this process. With ``durable`` it also survives a loss of power when this
        returns, together with everything appended before: the barrier to put before a model request, before a side
        effect and at the end of a turn. ``at`` is milliseconds since the epoch, now by default.

        Raises:
            AppendRefused: nothing was appended.
            LogError: the disk refused; nothing was appended.
        """
        if self._publishing:
            raise AppendRefused("an observer of the log may not append to it")
        at = at if at is not None else time.time_ns() // 1_000_000
        entries: list[ev.Entry] = []
        rows: list[Row] = []
        undo: list[Callable[[], None]] = []
        blobs: dict[str, str] = {}
        try:
            for event in events:
                entry, row, undone = self._plan(event, self._next + len(entries), at, blobs)
                entries.append(entry)
                rows.append(row)
                undo.append(undone)
            if self.state.inbox.claimed is not None:
                raise AppendRefused("a claimed input and its words enter the log in one commit")
            self._store.append(rows, blobs, durable=durable)
        except BaseException:
            for undone in reversed(undo):
                undone()
            raise
        self._next += len(entries)
        self._publish(entries)
        return tuple(entries)

    def entries(
        self, start: int = 0, end: int | None = None, *, types: Sequence[str] | None = None
    ) -> Iterator[ev.Entry]:
        """Yield the stored entries with ``start <= seq < end`` in order, of the given types only.

        Raises:
            CorruptLog, UnsupportedLog: as far as reading gets there.
        """
        return read(self._store, start, end, types=types, session=self.session)

    def pick(self, seqs: Sequence[int]) -> tuple[ev.Entry, ...]:
        """Return the stored entries of these seqs, in the given order."""
        return pick(self._store, self.session, seqs)

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Have ``observer`` called with every entry after its commit; return how to stop that."""
        self._observers.append(observer)
        return lambda: self._observers.remove(observer)

    def close(self) -> None:
        """Close the store. Idempotent."""
        self._store.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _plan(self, event: Any, seq: int, at: int, blobs: dict[str, str]) -> tuple[ev.Entry, Row, Callable[[], None]]:
        if type(event) not in ev.TYPES.values():
            raise AppendRefused(f"{type(event).__name__} is not an event of the log")
        try:
            body, refs = _encode(event, blobs)
            row = Row(seq, at, None, None, event.type, body, refs)
            stored = decode(row, self.session, blobs.__getitem__).event
        except (ValueError, LogError) as error:
            raise AppendRefused(f"{event.type} cannot be stored: {error}") from error
        if stored != event:
            raise AppendRefused(f"{event.type} does not read back as what was written")
        before = self.state.trace.numbers
        undo = self.state.apply(seq, stored)
        # a closing event still belongs to the bracket that it closes
        turn, step = (
            new if new is not None else old for new, old in zip(self.state.trace.numbers, before, strict=True)
        )
        return ev.Entry(self.session, seq, at, turn, step, stored), row._replace(turn=turn, step=step), undo

    def _publish(self, entries: Sequence[ev.Entry]) -> None:
        self._publishing = True
        try:
            for entry in entries:
                for observer in tuple(self._observers):
                    try:
                        observer(entry)
                    except Exception:
                        # the commit stands whatever a listener makes of it; the next listener still hears
                        _logger.exception("an observer of session %s failed at entry %d", self.session, entry.seq)
        finally:
            self._publishing = False

    def _fold(self) -> None:
        for row in self._store.rows(types=[name for name in self._store.types() if name not in ev.TYPES]):
            decode(row, self.session, self._store.blob)  # refuses what a fold may not skip
        opened = 0
        for row in self._store.rows(types=_STATEFUL):
            self._take(row)
            opened = row.seq if row.type == "cell_started" else opened
        if self.state.trace.cell is not None:
            for row in self._store.rows(opened, types=_INNER):
                self._take(row)

    def _take(self, row: Row) -> None:
        try:
            self.state.apply(row.seq, decode(row, self.session, self._store.blob).event)
        except AppendRefused as error:
            raise CorruptLog(f"entry {row.seq} does not follow from those before it: {error}", seq=row.seq) from error


def read(
    store: Store,
    start: int = 0,
    end: int | None = None,
    *,
    types: Sequence[str] | None = None,
    session: str | None = None,
) -> Iterator[ev.Entry]:
    """Yield the entries of a stored log in order, as :meth:`Log.entries` does. The session's name in each entry is that
    of the file's newest owner, which is looked up unless it is given."""
    session = owner(store) if session is None else session
    for row in store.rows(start, end, types):
        yield decode(row, session, store.blob)


def pick(store: Store, session: str, seqs: Sequence[int]) -> tuple[ev.Entry, ...]:
    """Return the stored entries of these seqs, in the given order.

    Raises:
        CorruptLog: one of them is not there.
    """
    rows = store.pick(seqs)
    if missing := set(seqs) - rows.keys():
        raise CorruptLog(f"entry {min(missing)} is missing", seq=min(missing))
    return tuple(decode(rows[seq], session, store.blob) for seq in seqs)


def owner(store: Store) -> str:
    """Return the session whose log this is: the newest of its session_created and session_forked."""
    session = ""
    for row in store.rows(types=("session_created", "session_forked")):
        session = decode(row, session, store.blob).event.session
    return session


def decode(row: Row, session: str, blob: Callable[[str], str]) -> ev.Entry:
    """Return the entry of a stored row. Pure but for ``blob``, which gives the text of a digest.

    Raises:
        UnsupportedLog: an event of a type or shape that this version does not know.
        CorruptLog: the row is not what was written.
    """
    kind = ev.TYPES.get(row.type)
    if kind is None:
        if not row.ignorable:
            raise UnsupportedLog(f"entry {row.seq} is a {row.type}, written by a newer version: upgrade prime-repl")
        event: Any = ev.Ignored(name=row.type)
    else:
        try:
            event = kind.model_validate_json(_joined(row, blob) if row.blobs else row.body)
        except ValidationError as error:
            raise CorruptLog(f"entry {row.seq} is not a {row.type}: {_first(error)}", seq=row.seq) from error
        except (ValueError, TypeError, CorruptLog) as error:
            raise CorruptLog(f"entry {row.seq} is not a {row.type}: {error}", seq=row.seq) from error
    return ev.Entry(session, row.seq, row.at, row.turn, row.step, event)


def _joined(row: Row, blob: Callable[[str], str]) -> str:
    fields = json.loads(row.body)
    fields |= {name: json.loads(blob(digest)) for name, digest in row.blobs.items()}
    return json.dumps(fields)


def _encode(event: Any, blobs: dict[str, str]) -> tuple[str, Mapping[str, str]]:
    body = event.model_dump_json(warnings="error")
    if len(body) <= BLOB_LIMIT:
        return body, {}
    refs = {}
    fields = json.loads(body)
    for name, value in fields.items():
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if len(text) > BLOB_LIMIT:
            digest = hashlib.sha256(text.encode()).hexdigest()
            blobs[digest] = text
            refs[name] = digest
    return json.dumps({name: value for name, value in fields.items() if name not in refs}), refs


def _first(error: ValidationError) -> str:
    found = error.errors()[0]
    return f"{'.'.join(map(str, found['loc']))}: {found['msg']}"
