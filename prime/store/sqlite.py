"""The default store: one SQLite file per session, write-ahead log, one writer connection.

Frozen by the database: triggers refuse UPDATE, DELETE and any INSERT that does not continue the sequence. Every row
carries a digest over itself and the row before it, so a changed byte anywhere shows (``check``). This guards against
faults and accidents; somebody who may rewrite the whole file can recompute it.

Durability has two grades. With ``synchronous=NORMAL`` a commit is in the operating system's hands when it returns and
survives the death of the process (0.01 ms); with ``FULL`` it is on the disk (0.2 ms on a quick one, up to 10 ms on a
slow one), and so is everything committed before, because the write-ahead log is one file. The writer switches per
commit.

One writer connection and read-only readers are a rule, not a habit: SQLite before 3.51.3 can corrupt a WAL file when
two connections write or checkpoint at the same moment, and distributions ship older ones.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from prime.errors import AppendRefused, CorruptLog, LogError, UnsupportedLog
from prime.store.base import Document, Match, Row
from prime.store.fulltext import WORDS, FullText

_SCHEMA = """
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, turn INTEGER, step INTEGER, type TEXT NOT NULL, body TEXT NOT NULL,
    blobs TEXT NOT NULL, ignorable INTEGER NOT NULL, chain BLOB NOT NULL
) STRICT;
CREATE INDEX entries_by_type ON entries (type, seq);
CREATE TABLE blobs (digest TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TRIGGER entries_continue BEFORE INSERT ON entries
    WHEN NEW.seq <> (SELECT coalesce(max(seq) + 1, 0) FROM entries)
    BEGIN SELECT raise(ABORT, 'entries are appended in sequence'); END;
CREATE TRIGGER entries_keep BEFORE UPDATE ON entries BEGIN SELECT raise(ABORT, 'entries are frozen'); END;
CREATE TRIGGER entries_stay BEFORE DELETE ON entries BEGIN SELECT raise(ABORT, 'entries are frozen'); END;
CREATE TRIGGER blobs_agree BEFORE INSERT ON blobs
    WHEN EXISTS (SELECT 1 FROM blobs WHERE digest = NEW.digest AND text <> NEW.text)
    BEGIN SELECT raise(ABORT, 'blobs are frozen'); END;
CREATE TRIGGER blobs_keep BEFORE UPDATE ON blobs BEGIN SELECT raise(ABORT, 'blobs are frozen'); END;
CREATE TRIGGER blobs_stay BEFORE DELETE ON blobs BEGIN SELECT raise(ABORT, 'blobs are frozen'); END;
"""
_APPLICATION_ID = 0x5052504C  # "PRPL": tells our files from other SQLite files
_COLUMNS = "seq, at, turn, step, type, body, blobs, ignorable"
_INSERT = f"INSERT INTO entries ({_COLUMNS}, chain) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_START = b"prime-repl"
#: Complaints of SQLite that say nothing about the bytes of the file.
_NOT_DAMAGE = {
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}


class SqliteStore:
    """A session's file. Use :meth:`create`, :meth:`open` or :meth:`read`."""

    def __init__(self, connection: sqlite3.Connection, path: Path, format: int, *, writable: bool) -> None:
        self._db = connection
        self._index = FullText(connection, writable=writable)
        self._path = path
        self._durable = False
        with self._reporting():
            if self._pragma("application_id") != _APPLICATION_ID:
                raise CorruptLog(f"{path} is not a session log")
            self.format = self._pragma("user_version")
            if self.format > format:  # before anything that a newer format may have changed is read
                raise UnsupportedLog(
                    f"{path} has log format {self.format}, this version reads up to {format}: upgrade prime-repl"
                )
            found = self._db.execute("SELECT seq, chain FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
        self._next = found[0] + 1 if found else 0
        self._chain = found[1] if found else _START

    @classmethod
    def create(cls, path: Path, format: int) -> SqliteStore:
        """Create an empty file for writing; ``format`` is the log's format version.

        Raises:
            FileExistsError: there is one.
        """
        path.touch(mode=0o600, exist_ok=False)
        db = _connect(path, "rw")
        db.execute("PRAGMA journal_mode=WAL")
        db.executescript(
            f"BEGIN; PRAGMA application_id={_APPLICATION_ID}; PRAGMA user_version={format};{_SCHEMA}COMMIT;"
        )
        db.execute("PRAGMA synchronous=NORMAL")
        return cls(db, path, format, writable=True)

    @classmethod
    def open(cls, path: Path, format: int) -> SqliteStore:
        """Open for writing. The caller holds the session's lock.

        Raises:
            UnsupportedLog: the file is of a newer format than ``format``.
            CorruptLog: it is no session log.
        """
        return cls._opened(path, format, "rw")

    @classmethod
    def read(cls, path: Path, format: int) -> SqliteStore:
        """Open read-only, while another process may write. Raises as :meth:`open`."""
        return cls._opened(path, format, "ro")

    @classmethod
    def _opened(cls, path: Path, format: int, mode: str) -> SqliteStore:
        db = _connect(path, mode)
        try:
            store = cls(db, path, format, writable=mode == "rw")
            if mode == "rw":
                db.execute("PRAGMA synchronous=NORMAL")
        except BaseException:
            db.close()
            raise
        return store

    @property
    def version(self) -> int:
        """See :class:`prime.store.base.Store`."""
        with self._reporting():
            return self._pragma("data_version")

    def append(self, rows: Sequence[Row], blobs: Mapping[str, str], *, durable: bool) -> None:
        """See :class:`prime.store.base.Store`."""
        chain, stored = self._chain, []
        for row in rows:
            values = (*row[:6], json.dumps(dict(row.blobs)) if row.blobs else "{}", int(row.ignorable))
            chain = _link(chain, values)
            stored.append((*values, chain))
        if durable != self._durable:
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._durable = durable
        try:
            if len(stored) == 1 and not blobs:
                self._db.execute(_INSERT, stored[0])  # commits by itself: half the cost of a transaction around it
            else:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.executemany("INSERT OR IGNORE INTO blobs VALUES (?, ?)", blobs.items())
                self._db.executemany(_INSERT, stored)
                self._db.execute("COMMIT")
        except BaseException as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if isinstance(error, sqlite3.IntegrityError):
                raise AppendRefused(str(error)) from error
            if isinstance(error, sqlite3.Error):
                raise LogError(f"the log could not be written ({error}); nothing was stored: {self._path}") from error
            raise
        self._chain = chain
        self._next += len(stored)

    def rows(self, start: int = 0, end: int | None = None, types: Sequence[str] | None = None) -> Iterator[Row]:
        """See :class:`prime.store.base.Store`. Rows are fetched in pages, so appending meanwhile is allowed."""
        end = end if end is not None else 2**62
        where = f"AND type IN ({','.join('?' * len(types))})" if types is not None else ""
        query = f"SELECT {_COLUMNS} FROM entries WHERE seq >= ? AND seq < ? {where} ORDER BY seq LIMIT 1000"
        while True:
            with self._reporting():
                page = [_row(found) for found in self._db.execute(query, (start, end, *(types or ())))]
            yield from page
            if len(page) < 1000:
                return
            start = page[-1].seq + 1

    def pick(self, seqs: Sequence[int]) -> dict[int, Row]:
        """See :class:`prime.store.base.Store`."""
        query = f"SELECT {_COLUMNS} FROM entries WHERE seq IN (SELECT value FROM json_each(?))"
        with self._reporting():
            return {found[0]: _row(found) for found in self._db.execute(query, (json.dumps(list(seqs)),))}

    def types(self) -> set[str]:
        """See :class:`prime.store.base.Store`."""
        with self._reporting():
            return {name for (name,) in self._db.execute("SELECT DISTINCT type FROM entries")}

    def last(self, types: Sequence[str] | None = None, before: int | None = None) -> Row | None:
        """See :class:`prime.store.base.Store`."""
        before = before if before is not None else 2**62
        query = f"SELECT {_COLUMNS} FROM entries WHERE seq < ? ORDER BY seq DESC LIMIT 1"
        of_type = query.replace("ORDER", "AND type = ? ORDER")  # one look into the index for each type
        with self._reporting():
            if types is None:
                found = [self._db.execute(query, (before,)).fetchone()]
            else:
                found = [self._db.execute(of_type, (before, name)).fetchone() for name in types]
            return max((_row(each) for each in found if each is not None), default=None)

    def turn_start(self, turn: int) -> int | None:
        """See :class:`prime.store.base.Store`."""
        query = "SELECT seq FROM entries WHERE type = 'turn_started' AND turn = ?"
        with self._reporting():
            found = self._db.execute(query, (turn,)).fetchone()
        return found[0] if found else None

    def indexed(self, version: int) -> int:
        """See :class:`prime.store.base.Store`."""
        with self._reporting():
            return self._index.until(version)

    def index(self, documents: Sequence[Document], until: int, version: int) -> None:
        """See :class:`prime.store.base.Store`."""
        with self._reporting():
            self._index.add(documents, until, version)

    def find(self, terms: Sequence[str], kinds: Collection[int], limit: int, version: int) -> list[Match]:
        """See :class:`prime.store.base.Store`."""
        with self._reporting():
            return self._index.find(terms, kinds, limit, version)

    def blob(self, digest: str) -> str:
        """See :class:`prime.store.base.Store`."""
        with self._reporting():
            found = self._db.execute("SELECT text FROM blobs WHERE digest = ?", (digest,)).fetchone()
        if found is None:
            raise CorruptLog(f"the value {digest[:12]} is missing from {self._path}")
        text: str = found[0]
        if hashlib.sha256(text.encode()).hexdigest() != digest:
            raise CorruptLog(f"the value {digest[:12]} in {self._path} is not what was stored")
        return text

    def check(self) -> None:
        """See :class:`prime.store.base.Store`."""
        with self._reporting():
            for (problem,) in self._db.execute("PRAGMA integrity_check"):
                if problem != "ok" and WORDS not in problem:  # the text index is no part of the log
                    raise CorruptLog(f"{self._path} is damaged: {problem}")
            chain = _START
            entries = self._db.execute(f"SELECT {_COLUMNS}, chain FROM entries ORDER BY seq")
            for expected, (*values, stored) in enumerate(entries):
                chain = _link(chain, values)
                if values[0] != expected or stored != chain:
                    raise CorruptLog(f"entry {expected} of {self._path} is not what was written", seq=expected)
                for digest in _blobs(values[6]).values():
                    try:
                        self.blob(digest)
                    except CorruptLog as error:
                        raise CorruptLog(f"entry {expected}: {error}", seq=expected) from error

    def close(self) -> None:
        """See :class:`prime.store.base.Store`."""
        self._db.close()

    def _pragma(self, name: str) -> int:
        value: int = self._db.execute(f"PRAGMA {name}").fetchone()[0]
        return value

    def _reporting(self) -> _Reporting:
        return _Reporting(self._path)


class _Reporting:
    """Turns complaints about a file that cannot be read into ours: damage is told from what may pass."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in _NOT_DAMAGE:
            raise LogError(f"{self._path} cannot be read now: {error}") from error
        if isinstance(error, (sqlite3.Error, ValueError)):
            raise CorruptLog(f"{self._path} cannot be read as a session log: {error}") from error


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    if not path.is_file():
        raise LogError(f"no session log at {path}")
    # The host appends from its event loop's thread and reads from worker threads of tools, never at the same time
    # as a write on the same cursor: Python's sqlite3 serialises calls on one connection.
    return sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
    )


def _link(chain: bytes, values: Sequence[object]) -> bytes:
    # ascii, not repr: what repr escapes depends on the Unicode tables of the Python that runs
    return hashlib.sha256(chain + ascii(tuple(values)).encode()).digest()


def _row(found: tuple[object, ...]) -> Row:
    seq, at, turn, step, type_, body, blobs, ignorable = found
    return Row(seq, at, turn, step, type_, body, _blobs(blobs), bool(ignorable))  # type: ignore[arg-type]


def _blobs(column: object) -> dict[str, str]:
    if column == "{}":
        return {}
    blobs: object = json.loads(str(column))
    if not isinstance(blobs, dict) or not all(isinstance(digest, str) for digest in blobs.values()):
        raise ValueError("an entry's blobs are not digests")
    return blobs
