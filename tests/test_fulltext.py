"""The text index of a session's file: derived, never a part of the log."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_store import row

from prime.errors import LogError
from prime.store.base import Document, Match
from prime.store.fulltext import FullText
from prime.store.sqlite import SqliteStore
from prime.store.words import cut, terms

FORMAT, RULES = 1, 1
KINDS = (0, 1)
TEXTS = ("the first needle", "a needle and a pin", "数据库 of pins", "nothing")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of four entries without an index, as an older version has left it."""
    path = tmp_path / "log.sqlite3"
    with contextlib.closing(SqliteStore.create(path, FORMAT)) as store:
        store.append([row(seq) for seq in range(len(TEXTS))], {}, durable=True)
    return path


def documents(start: int = 0, end: int = len(TEXTS)) -> list[Document]:
    return [Document(seq, seq % 2, TEXTS[seq]) for seq in range(start, end)]


@contextlib.contextmanager
def opened(path: Path, *, writable: bool = True) -> Iterator[SqliteStore]:
    how = SqliteStore.open if writable else SqliteStore.read
    with contextlib.closing(how(path, FORMAT)) as store:
        yield store


def found(store: SqliteStore, query: str, version: int = RULES) -> list[int]:
    return [match.seq for match in store.find(terms(query), KINDS, 10, version)]


@pytest.mark.parametrize("writable", [True, False])
def test_an_older_file_is_indexed_in_parts(path: Path, writable: bool) -> None:
    before = path.read_bytes()
    with opened(path, writable=writable) as store:
        assert store.indexed(RULES) == 0
        assert found(store, "needle") == []
        store.index(documents(0, 2), 3, RULES)
        assert store.indexed(RULES) == 3
        assert found(store, "needle pin") == [1, 0]
        store.index(documents(2), 4, RULES)
        assert found(store, "pin 数据") == [2, 1]
        assert store.find(terms("needle"), [1], 10, RULES) == [Match(1, 1)]
        assert store.find(terms("needle"), KINDS, 1, RULES) == [Match(1, 1)]
        store.check()
    if not writable:
        assert path.read_bytes() == before


def test_a_reader_adds_what_is_missing_for_itself(path: Path) -> None:
    with opened(path) as store:
        store.index(documents(0, 2), 2, RULES)
    with opened(path) as writer, opened(path, writable=False) as reader:
        assert reader.indexed(RULES) == 2
        reader.index(documents(2), 4, RULES)
        assert found(reader, "needle pins") == [2, 1, 0]
        assert writer.indexed(RULES) == 2
        writer.append([row(4)], {}, durable=False)
        assert reader.last() == row(4)


def test_other_rules_make_an_index_anew(path: Path) -> None:
    with opened(path) as store:
        store.index(documents(), 4, RULES)
        assert found(store, "needle", version=2) == []
    with opened(path, writable=False) as reader:
        assert reader.indexed(2) == 0
        assert found(reader, "needle") == [1, 0]
    with opened(path) as store:
        assert store.indexed(2) == 0
        store.index(documents(), 4, 2)
        assert found(store, "needle", version=2) == [1, 0]


def test_a_damaged_index_is_dropped_and_the_log_is_whole(path: Path) -> None:
    with opened(path) as store:
        store.index(documents(), 4, RULES)
    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE entry_words_data SET block = zeroblob(3) WHERE id > 10")
    with opened(path) as store:
        with pytest.raises(LogError, match="the log is not; search again"):
            found(store, "needle")
        store.check()
        assert store.indexed(RULES) == 0
        store.index(documents(), 4, RULES)
        assert found(store, "needle") == [1, 0]


def test_a_lot_is_indexed_whole_or_not_at_all(path: Path) -> None:
    with opened(path) as store:
        store.index(documents(0, 1), 1, RULES)
        with pytest.raises(LogError):
            store.index([*documents(1), Document(9, 0, "\ud800")], 4, RULES)
        assert store.indexed(RULES) == 1
        assert found(store, "pin") == []
        store.append([row(4)], {}, durable=False)


@given(
    st.lists(st.text(st.sampled_from("ab数据库 ._-"), max_size=12), min_size=1, max_size=8),
    st.text(st.sampled_from("ab数据库 ._-"), max_size=8),
)
def test_what_has_every_term_as_words_is_found_first(texts: list[str], query: str) -> None:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        index = FullText(db, writable=True)
        index.add([Document(seq, 0, text) for seq, text in enumerate(texts)], len(texts), RULES)
        asked = terms(query)
        if not asked:
            return
        matches = [match.seq for match in index.find(asked, [0], 100, RULES)]
        whole = [seq for seq, text in enumerate(texts) if set(asked) <= set(cut(text).split())]
        assert set(whole) <= set(matches)
