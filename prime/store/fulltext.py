"""The full-text index of a session's file: FTS5, beside the entries and never a part of them.

It is derived and may be dropped at any time: the digests of the log do not cover it, a file without it is whole. It is
filled by whoever searches, up to where the log was quiet, so that appending costs nothing more. A reader that may not
write keeps what is missing in a table of its own connection.

An index holds words and places, not texts. A document's number is its entry's seq and its kind in one, because FTS5
gives numbers in order at no cost and knows no other order.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Collection, Sequence

from prime.errors import LogError
from prime.store.base import Document, Match
from prime.store.words import cut, unspaced

#: Kinds that a document's number has room for.
KINDS = 16
#: Most terms of a query that may also be looked for with one of them left out: that takes a query for each.
_ONE_LESS = 8
#: Newest entries with a term that are counted when too few have all terms, or all but one.
_COUNTED = 512
#: Words of the index that a part of a word may stand for.
_PARTS = 64

_SCHEMAS = ("main", "temp")
#: Name of the index, with which the names of all its tables begin.
WORDS = "entry_words"
_TABLES = (
    "CREATE VIRTUAL TABLE {schema}.entry_words USING fts5(text, content='', tokenize='unicode61 remove_diacritics 0')",
    "CREATE TABLE {schema}.entry_words_until (version INTEGER NOT NULL, until INTEGER NOT NULL)",
)


class FullText:
    """The index behind one connection."""

    def __init__(self, connection: sqlite3.Connection, *, writable: bool) -> None:
        self._db = connection
        self._schema = "main" if writable else "temp"

    def until(self, version: int) -> int:
        """Return the seq up to which entries are indexed under ``version`` of the rules; an index of another version is
        not used, and dropped when it may be."""
        stored = self._state(self._schema)
        if stored is not None and stored[0] != version:
            self.drop()
        states = [self._state(schema) for schema in _SCHEMAS]
        return max((state[1] for state in states if state is not None and state[0] == version), default=0)

    def add(self, documents: Sequence[Document], until: int, version: int) -> None:
        """Index documents, and remember that everything before ``until`` is indexed. All or nothing."""
        self._db.execute("BEGIN IMMEDIATE" if self._schema == "main" else "BEGIN")
        try:
            if self._state(self._schema) is None:
                self._create(version)
            rows = ((document.seq * KINDS + document.kind, cut(document.text)) for document in documents)
            self._db.executemany(f"INSERT INTO {self._schema}.{WORDS} (rowid, text) VALUES (?, ?)", rows)
            self._db.execute(f"UPDATE {self._schema}.entry_words_until SET until = ?", (until,))
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def find(self, terms: Sequence[str], kinds: Collection[int], limit: int, version: int) -> list[Match]:
        """Return at most ``limit`` documents of these kinds, those with more of the terms first, then newer ones."""
        found: dict[int, int] = {}
        try:
            states = [(schema, self._state(schema)) for schema in _SCHEMAS]
            used = [schema for schema, state in states if state is not None and state[0] == version]
            known = {schema: self._ways(schema, terms, parts=False) for schema in used}
            if not any(known.values()):
                known = {schema: self._ways(schema, terms, parts=True) for schema in used}
            for schema, ways in known.items():
                if ways:
                    found |= self._found(schema, ways, kinds, limit)
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_CORRUPT:
                raise
            self.drop()  # of a reader, what it keeps for itself
            raise LogError(
                "the index for searching is damaged, the log is not; search again to make it anew"
            ) from error
        ordered = sorted(found, key=lambda number: (-found[number], -number))[:limit]
        return [Match(number // KINDS, number % KINDS) for number in ordered]

    def drop(self) -> None:
        """Drop the index that this connection writes to; the next search makes it anew."""
        self._db.execute(f"DROP TABLE IF EXISTS temp.entry_words_of_{self._schema}")
        self._db.execute(f"DROP TABLE IF EXISTS {self._schema}.{WORDS}")
        self._db.execute(f"DROP TABLE IF EXISTS {self._schema}.entry_words_until")

    def _found(self, schema: str, ways: Sequence[str], kinds: Collection[int], limit: int) -> dict[int, int]:
        """Return the numbers of documents, with how many of the terms each has: all that have every term or all but
        one, and of the others those among the newest with any."""
        chosen = f"rowid % {KINDS} IN ({','.join(str(kind) for kind in sorted(kinds))})"
        one = (
            f"SELECT rowid FROM (SELECT rowid FROM {schema}.{WORDS} "
            f"WHERE {WORDS} MATCH ? AND {chosen} ORDER BY rowid DESC LIMIT {{}})"
        )
        found: dict[int, int] = {}
        levels = [[tuple(ways)], list(itertools.combinations(ways, len(ways) - 1))]
        for level in levels[: 2 if 1 < len(ways) <= _ONE_LESS else 1]:
            for together in level:
                for (number,) in self._db.execute(one.format(limit), (" AND ".join(together),)):
                    found.setdefault(number, len(together))
            if len(found) >= limit:
                return found
        every = " UNION ALL ".join([one.format(_COUNTED)] * len(ways))
        counted = f"SELECT rowid, count(*) FROM ({every}) GROUP BY rowid ORDER BY 2 DESC, 1 DESC LIMIT ?"
        for number, count in self._db.execute(counted, (*ways, limit)):
            found[number] = max(found.get(number, 0), count)
        return found

    def _ways(self, schema: str, terms: Sequence[str], *, parts: bool) -> list[str]:
        return [way for term in terms if (way := self._way(schema, term, parts=parts)) is not None]

    def _way(self, schema: str, term: str, *, parts: bool) -> str | None:
        """Return the query for a term, None when there is nothing for it: the word, or what begins with it. With
        ``parts`` the words that have it inside, for which the whole vocabulary is read.

        ``term`` is of :func:`prime.store.words.terms`, so it has no quote in it.
        """
        word = f'"{term}"'
        if not parts:
            ways = [f"{word} *"] if unspaced(term) and len(term) == 1 else [word, f"{word} *"]
            exists = f"SELECT 1 FROM {schema}.{WORDS} WHERE {WORDS} MATCH ? LIMIT 1"
            return next((way for way in ways if self._db.execute(exists, (way,)).fetchone()), None)
        if unspaced(term):  # a pair is no part of anything
            return None
        self._db.execute(
            f"CREATE VIRTUAL TABLE IF NOT EXISTS temp.entry_words_of_{schema} USING fts5vocab({schema}, {WORDS}, row)"
        )
        inside = f"SELECT term FROM temp.entry_words_of_{schema} WHERE instr(term, ?) LIMIT {_PARTS}"
        words = [f'"{found}"' for (found,) in self._db.execute(inside, (term,))]
        return f"({' OR '.join(words)})" if words else None

    def _create(self, version: int) -> None:
        try:
            for statement in _TABLES:
                self._db.execute(statement.format(schema=self._schema))
        except sqlite3.OperationalError as error:
            raise LogError(f"the index for searching cannot be made: {error}; an SQLite with FTS5 is needed") from error
        self._db.execute(f"INSERT INTO {self._schema}.entry_words_until VALUES (?, 0)", (version,))

    def _state(self, schema: str) -> tuple[int, int] | None:
        master = "sqlite_temp_master" if schema == "temp" else "sqlite_master"
        if not self._db.execute(f"SELECT 1 FROM {master} WHERE name = 'entry_words_until'").fetchone():
            return None
        state: tuple[int, int] = self._db.execute(f"SELECT version, until FROM {schema}.entry_words_until").fetchone()
        return state
