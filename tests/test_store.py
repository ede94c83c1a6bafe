"""What every store promises, and what the SQLite file promises beside that.

Another back end joins by one class beside :class:`SqliteFile` and one row in ``BACKENDS``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from logs import full_disk

from prime.errors import AppendRefused, CorruptLog, LogError, UnsupportedLog
from prime.store.base import Row, Store
from prime.store.sqlite import SqliteStore

FORMAT = 1
TEXT = "a value 👩‍🚀 \U0001fae8 of some size " * 100
DIGEST = hashlib.sha256(TEXT.encode()).hexdigest()


class Backend(Protocol):
    """One place for one session's rows, and a way around the store to it."""

    def create(self, format: int = FORMAT) -> Store: ...
    def open(self, format: int = FORMAT) -> Store: ...
    def read(self, format: int = FORMAT) -> Store: ...
    def execute(self, *statements: str) -> None:
        """Run SQL as somebody who goes around the store, in one transaction."""

    def unfreeze(self) -> None:
        """Take away what keeps the stored rows frozen."""


class SqliteFile:
    """The default store."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.sqlite3"

    def create(self, format: int = FORMAT) -> Store:
        return SqliteStore.create(self.path, format)

    def open(self, format: int = FORMAT) -> Store:
        return SqliteStore.open(self.path, format)

    def read(self, format: int = FORMAT) -> Store:
        return SqliteStore.read(self.path, format)

    def execute(self, *statements: str) -> None:
        with contextlib.closing(sqlite3.connect(self.path)) as raw, raw:
            for statement in statements:
                raw.execute(statement)

    def unfreeze(self) -> None:
        with contextlib.closing(sqlite3.connect(self.path)) as raw:
            names = [name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
            for name in names:
                raw.execute(f"DROP TRIGGER {name}")


BACKENDS = [SqliteFile]


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.__name__)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    made: Backend = request.param(tmp_path)
    return made


@pytest.fixture
def store(backend: Backend) -> Iterator[Store]:
    """An empty store, open for writing."""
    with contextlib.closing(backend.create()) as made:
        yield made


def row(seq: int, **fields: Any) -> Row:
    usual = {"at": 1_000 + seq, "turn": 1, "step": None, "type": f"kind_{seq % 3}", "body": f'{{"n": {seq}}}'}
    return Row(seq, **{**usual, "blobs": {}, **fields})


def fill(store: Store, count: int = 6) -> list[Row]:
    """Append ``count`` rows, the fourth with a blob."""
    rows = [row(seq, blobs={"value": DIGEST}) if seq == 3 else row(seq) for seq in range(count)]
    for each in rows:
        store.append([each], {DIGEST: TEXT} if each.blobs else {}, durable=False)
    return rows


def content(store: Store) -> tuple[list[Row], list[str]]:
    """Return everything that is stored."""
    rows = list(store.rows())
    return rows, [store.blob(digest) for each in rows for digest in each.blobs.values()]


# What every store promises


def test_rows_come_back_as_they_were(backend: Backend, store: Store) -> None:
    rows = [
        row(0, turn=None, body='{"text": "\U0001fae8 \\u0000 ü"}'),
        row(1, step=2, ignorable=True),
        row(2, blobs={"value": DIGEST}, at=2**53),
    ]
    store.append(rows[:2], {}, durable=True)
    store.append(rows[2:], {DIGEST: TEXT}, durable=False)
    for each in (store, backend.open()):
        with contextlib.closing(each):
            assert content(each) == (rows, [TEXT])
            assert each.last() == rows[2]
            assert each.types() == {"kind_0", "kind_1", "kind_2"}
            assert each.format == FORMAT
            each.check()


def test_an_empty_store_has_nothing(store: Store) -> None:
    assert content(store) == ([], [])
    assert store.last() is None
    assert store.types() == set()
    assert store.pick([0]) == {}
    store.append([], {}, durable=True)
    store.check()


def test_rows_are_chosen_by_range_and_type(store: Store) -> None:
    rows = fill(store, 9)
    assert list(store.rows(2, 5)) == rows[2:5]
    assert list(store.rows(7)) == rows[7:]
    assert list(store.rows(5, 5)) == []
    assert list(store.rows(types=["kind_0", "kind_2"])) == [each for each in rows if each.type != "kind_1"]
    assert list(store.rows(4, types=["kind_0"])) == [rows[6]]
    assert list(store.rows(types=[])) == []
    assert store.pick([8, 0, 99]) == {0: rows[0], 8: rows[8]}


def test_rows_may_be_appended_while_they_are_read(store: Store) -> None:
    store.append([row(seq) for seq in range(2_500)], {}, durable=False)
    reading = store.rows()
    first = next(reading)
    store.append([row(2_500)], {}, durable=False)
    assert [first.seq, *(each.seq for each in reading)] == list(range(2_501))


@pytest.mark.parametrize("seqs", [[7], [5], [0], [6, 8], [6, 6], [-1]])
def test_what_does_not_continue_the_rows_is_refused_whole(store: Store, seqs: list[int]) -> None:
    fill(store)
    before = content(store)
    text = "another"
    digest = hashlib.sha256(text.encode()).hexdigest()
    with pytest.raises(AppendRefused, match="in sequence"):
        store.append([row(seq) for seq in seqs], {digest: text}, durable=False)
    assert content(store) == before
    with pytest.raises(CorruptLog):
        store.blob(digest)
    store.append([row(6)], {}, durable=True)
    store.check()


def test_a_reopened_store_continues(backend: Backend, store: Store) -> None:
    rows = fill(store)
    store.close()
    store.close()
    with contextlib.closing(backend.open()) as again:
        again.append([row(6)], {}, durable=False)
        assert content(again) == ([*rows, row(6)], [TEXT])
        again.check()


def test_a_reader_beside_the_writer_sees_what_is_committed(backend: Backend, store: Store) -> None:
    rows = fill(store)
    with contextlib.closing(backend.read()) as reader:
        assert content(reader) == (rows, [TEXT])
        store.append([row(6)], {}, durable=False)
        assert reader.last() == row(6)
        reader.check()
        with pytest.raises(LogError, match="nothing was stored"):
            reader.append([row(7)], {}, durable=False)
    store.append([row(7)], {}, durable=False)
    assert store.last() == row(7)


def test_a_value_that_two_entries_share_is_stored_once(store: Store) -> None:
    for seq in (0, 1):
        store.append([row(seq, blobs={"value": DIGEST})], {DIGEST: TEXT}, durable=False)
    assert content(store)[1] == [TEXT, TEXT]
    store.check()


def test_a_newer_format_is_named_as_such(backend: Backend) -> None:
    backend.create(FORMAT + 1).close()
    for opening in (backend.open, backend.read):
        with pytest.raises(UnsupportedLog, match="format 2, this version reads up to 1: upgrade"):
            opening()


_COPY = "INTO entries SELECT {}, at, turn, step, type, body, blobs, ignorable, chain FROM entries LIMIT 1"
FORBIDDEN = {
    "update": "UPDATE entries SET body = '{}' WHERE seq = 2",
    "update or replace": "UPDATE OR REPLACE entries SET seq = 1 WHERE seq = 2",
    "delete": "DELETE FROM entries WHERE seq = 5",
    "delete all": "DELETE FROM entries",
    "replace": f"REPLACE {_COPY.format('seq')}",
    "insert or replace": f"INSERT OR REPLACE {_COPY.format(2)}",
    "gap": f"INSERT {_COPY.format(7)}",
    "negative": f"INSERT {_COPY.format(-1)}",
    "no seq": f"INSERT {_COPY.format('NULL')}",
    "update a blob": "UPDATE blobs SET text = 'x'",
    "delete a blob": "DELETE FROM blobs",
    "replace a blob": f"INSERT OR REPLACE INTO blobs VALUES ('{DIGEST}', 'x')",
}


@pytest.mark.parametrize("statement", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_the_database_itself_keeps_what_is_stored(backend: Backend, store: Store, statement: str) -> None:
    fill(store)
    before = content(store)
    with pytest.raises(sqlite3.IntegrityError, match=r"frozen|in sequence"):
        backend.execute(statement)
    assert content(store) == before
    store.check()


TAMPERED = {
    "seq": ("UPDATE entries SET seq = 9 WHERE seq = 5", 5),
    "at": ("UPDATE entries SET at = at + 1 WHERE seq = 2", 2),
    "turn": ("UPDATE entries SET turn = 2 WHERE seq = 2", 2),
    "no turn": ("UPDATE entries SET turn = NULL WHERE seq = 2", 2),
    "step": ("UPDATE entries SET step = 0 WHERE seq = 2", 2),
    "type": ("UPDATE entries SET type = 'kind_1' WHERE seq = 2", 2),
    "body": ("""UPDATE entries SET body = '{"n": 3}' WHERE seq = 2""", 2),
    "blobs": ("UPDATE entries SET blobs = replace(blobs, 'value', 'valux') WHERE seq = 3", 3),
    "ignorable": ("UPDATE entries SET ignorable = 1 WHERE seq = 2", 2),
    "chain": ("UPDATE entries SET chain = zeroblob(32) WHERE seq = 2", 2),
    "newest": ("UPDATE entries SET at = 0 WHERE seq = 5", 5),
    "taken out": ("DELETE FROM entries WHERE seq = 2", 2),
    "blob": ("UPDATE blobs SET text = replace(text, 'some', 'sane')", 3),
    "blob taken out": ("DELETE FROM blobs", 3),
    "blob under another name": ("UPDATE blobs SET digest = 'x'", 3),
}


@pytest.mark.parametrize(("statement", "seq"), TAMPERED.values(), ids=TAMPERED.keys())
def test_a_changed_byte_is_found_and_its_entry_named(backend: Backend, store: Store, statement: str, seq: int) -> None:
    fill(store)
    store.close()
    backend.unfreeze()
    backend.execute(statement)
    with contextlib.closing(backend.read()) as reader:
        with pytest.raises(CorruptLog, match=f"entry {seq}") as found:
            reader.check()
        assert found.value.seq == seq


def test_entries_that_changed_places_are_found(backend: Backend, store: Store) -> None:
    fill(store)
    store.close()
    backend.unfreeze()
    backend.execute(*(f"UPDATE entries SET seq = {new} WHERE seq = {old}" for old, new in ((1, 99), (2, 1), (99, 2))))
    with contextlib.closing(backend.read()) as reader, pytest.raises(CorruptLog, match="entry 1"):
        reader.check()


@pytest.mark.parametrize("blobs", ["{", "[]", '{"value": 1}', '"x"'])
def test_references_that_are_none_are_damage(backend: Backend, store: Store, blobs: str) -> None:
    fill(store)
    store.close()
    backend.unfreeze()
    backend.execute(f"UPDATE entries SET blobs = '{blobs}' WHERE seq = 5")
    with contextlib.closing(backend.read()) as reader:
        for reading in (lambda: list(reader.rows()), lambda: reader.pick([5]), reader.last, reader.check):
            with pytest.raises(CorruptLog):
                reading()


WRITER = """
import sys
from test_store import BACKENDS, TEXT, DIGEST, row
from pathlib import Path
backend = next(each for each in BACKENDS if each.__name__ == sys.argv[1])(Path(sys.argv[2]))
store = backend.create()
for seq in range(1_000_000):
    blobs = {"value": DIGEST} if seq % 5 == 0 else {}
    store.append([row(2 * seq, blobs=blobs), row(2 * seq + 1)], {DIGEST: TEXT} if blobs else {}, durable=seq % 7 == 0)
    print(2 * seq + 1, flush=True)
"""


def test_what_was_acknowledged_survives_a_kill(backend: Backend, tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", WRITER, type(backend).__name__, str(tmp_path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent) as writer:
        assert writer.stdout is not None
        lines = [next(writer.stdout) for _ in range(300)]
        writer.send_signal(signal.SIGKILL)
        lines += writer.stdout.readlines()
    acknowledged = int([line for line in lines if line.endswith("\n")][-1])
    with contextlib.closing(backend.open()) as store:
        store.check()
        rows, _ = content(store)
        assert [each.seq for each in rows] == list(range(len(rows)))
        assert len(rows) > acknowledged
        assert len(rows) % 2 == 0
        store.append([row(len(rows))], {}, durable=True)


# What the SQLite file promises


@pytest.mark.parametrize("room", [0, 5_000, 40_000])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("durable", [False, True])
def test_a_full_disk_changes_nothing_and_a_retry_leaves_no_gap(
    tmp_path: Path, room: int, count: int, durable: bool
) -> None:
    backend = SqliteFile(tmp_path)
    with contextlib.closing(backend.create()) as store:
        fill(store)
        before = content(store)
        large = [row(6 + number, body=json.dumps("x" * 100_000)) for number in range(count)]
        with full_disk(tmp_path / "log.sqlite3-wal", room), pytest.raises(LogError, match="nothing was stored"):
            store.append(large, {}, durable=durable)
        assert content(store) == before
        with contextlib.closing(backend.read()) as reader:
            assert content(reader) == before
        store.append(large, {}, durable=durable)
        assert [each.seq for each in store.rows()] == list(range(6 + count))
        store.check()


def test_a_newer_format_is_no_damage_whatever_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite3"
    SqliteStore.create(path, 7).close()
    with contextlib.closing(sqlite3.connect(path)) as raw:
        raw.execute("ALTER TABLE entries RENAME TO things")
    with pytest.raises(UnsupportedLog, match="format 7"):
        SqliteStore.read(path, FORMAT)


def _other_database(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE entries (seq INTEGER)")


NO_LOGS = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("a letter to a friend " * 300),
    "zeros": lambda path: path.write_bytes(bytes(8192)),
    "another database": _other_database,
}


@pytest.mark.parametrize("write", NO_LOGS.values(), ids=NO_LOGS.keys())
def test_a_file_that_is_no_log_is_refused(tmp_path: Path, write: Any) -> None:
    path = tmp_path / "log.sqlite3"
    write(path)
    before = path.read_bytes()
    for opening in (SqliteStore.open, SqliteStore.read):
        with pytest.raises(CorruptLog, match=r"not a session log|cannot be read as a session log"):
            opening(path, FORMAT)
    assert path.read_bytes() == before


def test_no_file_is_no_damage(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no session log at") as missing:
        SqliteStore.open(tmp_path / "log.sqlite3", FORMAT)
    assert not isinstance(missing.value, CorruptLog)
    assert list(tmp_path.iterdir()) == []


def test_what_hinders_reading_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite3"
    SqliteStore.create(path, FORMAT).close()
    (tmp_path / "log.sqlite3-wal").mkdir()
    with pytest.raises(LogError, match="cannot be read now: unable to open") as hindered:
        SqliteStore.read(path, FORMAT)
    assert not isinstance(hindered.value, CorruptLog)


def test_a_file_is_never_created_over_another(tmp_path: Path) -> None:
    SqliteStore.create(tmp_path / "log.sqlite3", FORMAT).close()
    with pytest.raises(FileExistsError):
        SqliteStore.create(tmp_path / "log.sqlite3", FORMAT)


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    with contextlib.closing(SqliteStore.create(tmp_path / "log.sqlite3", FORMAT)) as store:
        fill(store)
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed file of several pages."""
    path = tmp_path_factory.mktemp("stored") / "log.sqlite3"
    with contextlib.closing(SqliteStore.create(path, FORMAT)) as store:
        fill(store, 120)
    return path


@pytest.mark.parametrize("part", [0.001, 0.01, 0.3, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_damage(stored: Path, tmp_path: Path, part: float) -> None:
    whole = stored.read_bytes()
    path = tmp_path / "log.sqlite3"
    path.write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(CorruptLog), contextlib.closing(SqliteStore.read(path, FORMAT)) as store:
        store.check()


def test_a_flipped_bit_is_found_or_harmless(stored: Path, tmp_path: Path) -> None:
    whole = stored.read_bytes()
    with contextlib.closing(SqliteStore.read(stored, FORMAT)) as store:
        before = content(store)
    chance = random.Random(20)
    places = [*range(100), *chance.sample(range(100, len(whole)), 120)]  # the header is 100 bytes
    found = 0
    for place in places:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << chance.randrange(8)
        path = tmp_path / f"{place}.sqlite3"
        path.write_bytes(flipped)
        try:
            with contextlib.closing(SqliteStore.read(path, FORMAT)) as store:
                store.check()
                assert content(store) == before, f"byte {place} changed what is read, and nobody noticed"
        except (CorruptLog, UnsupportedLog):  # a higher format number is a format of its own
            found += 1
    assert found > 50
