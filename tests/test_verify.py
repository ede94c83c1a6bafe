from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from logs import FILE, fresh_store
from stories import LARGE, story
from strategies import Commit, walks

from prime import events as ev
from prime.errors import CorruptLog, RequestMismatch, UnsupportedLog
from prime.log import Log
from prime.store.base import Row, Store
from prime.store.sqlite import SqliteStore
from prime.verify import Report, verify

Change = Callable[[list[Row]], list[Row]]


@settings(max_examples=30)
@given(walks())
def test_every_true_log_verifies(walk: tuple[Commit, ...]) -> None:
    with fresh_store() as store:
        log = Log(store)
        for commit in walk:
            log.append(*commit)
        types = [event.type for commit in walk for event in commit]
        assert verify(store) == Report(
            entries=len(types), requests=types.count("step_started") + types.count("query_asked")
        )


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """The store of the whole story."""
    with contextlib.closing(SqliteStore.create(tmp_path / FILE, ev.FORMAT)) as made:
        log = Log(made)
        for commit in story():
            log.append(*commit)
        yield made


def test_the_story_verifies_for_a_reader_too(store: Store, tmp_path: Path) -> None:
    report = verify(store)
    assert report.requests == 5
    with contextlib.closing(SqliteStore.read(tmp_path / FILE, ev.FORMAT)) as reader:
        assert verify(reader) == report


def test_an_empty_log_verifies(tmp_path: Path) -> None:
    with contextlib.closing(SqliteStore.create(tmp_path / FILE, ev.FORMAT)) as made:
        assert verify(made) == Report(0, 0)


def forged(store: Store, tmp_path: Path, change: Change) -> Store:
    """Return a store with changed rows whose bytes are in order: only the sense of them is not."""
    other = SqliteStore.create(tmp_path / "forged.sqlite3", ev.FORMAT)
    for seq, row in enumerate(change(list(store.rows()))):
        blobs = {digest: store.blob(digest) for digest in row.blobs.values()}
        other.append([row._replace(seq=seq)], blobs, durable=False)
    return other


def edited(type: str, place: int = 0, **fields: Any) -> Change:
    """Change fields of the event at ``place`` among those of ``type``."""

    def change(rows: list[Row]) -> list[Row]:
        row = [row for row in rows if row.type == type][place]
        body = json.dumps({**json.loads(row.body), **fields})
        return [row._replace(body=body) if each is row else each for each in rows]

    return change


def without(type: str, place: int = 0) -> Change:
    """Leave out the event at ``place`` among those of ``type``."""

    def change(rows: list[Row]) -> list[Row]:
        gone = [row for row in rows if row.type == type][place]
        return [row for row in rows if row is not gone]

    return change


def words(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def with_words(text: str) -> Change:
    """Change what the person said, in the queue and on the surface alike."""

    def change(rows: list[Row]) -> list[Row]:
        for type in ("input_queued", "user_said"):
            rows = edited(type, parts=words(text))(rows)
        return rows

    return change


def with_header(**fields: Any) -> Change:
    def change(rows: list[Row]) -> list[Row]:
        header = json.loads(next(row for row in rows if row.type == "header_changed").body)["header"]
        return edited("header_changed", header={**header, **fields})(rows)

    return change


MISMATCHES = {
    "a digest": edited("step_started", request="0" * 64),
    "the digest of a later request": edited("step_started", 2, request="0" * 64),
    "what a person said": with_words("count the lines"),
    "a notice": edited("notice_given", text="The kernel is old."),
    "a notice left out": without("notice_given"),
    "a reply": edited("model_replied", 2, parts=words("There are 4.")),
    "a result": edited("cell_ended", 2, shown=words("nothing")),
    "a refusal": edited("call_refused", text="as you like"),
    "a replacement": edited(
        "surface_replaced", message={"role": "user", "parts": words("Nobody counted."), "call_id": None}
    ),
    "a replacement left out": without("surface_replaced"),
    "a result in another form": edited(
        "surface_replaced", 1, policy="x", message={"role": "tool", "parts": words("[]"), "call_id": "call_0"}
    ),
    "the system prompt": with_header(system="You have no kernel."),
    "the tools": with_header(tools=[]),
    "the model": with_header(model="scripted/c"),
    "no header": without("header_changed"),
    "no second header": without("header_changed", 1),
}


@pytest.mark.parametrize("change", MISMATCHES.values(), ids=MISMATCHES.keys())
def test_a_request_that_the_log_does_not_give_is_named(store: Store, tmp_path: Path, change: Change) -> None:
    with contextlib.closing(forged(store, tmp_path, change)) as other:
        other.check()
        with pytest.raises(
            RequestMismatch, match=r"entry \d+: the request of turn \d, step \d is not what the log says"
        ):
            verify(other)


def test_the_first_request_that_differs_is_the_one_named(store: Store, tmp_path: Path) -> None:
    other = forged(store, tmp_path, edited("step_started", 2, request="x"))
    with contextlib.closing(other), pytest.raises(RequestMismatch, match="turn 1, step 3"):
        verify(other)


SENSELESS = {
    "a step without its end": without("step_ended"),
    "a turn without its beginning": without("turn_started"),
    "a cell without its end": without("cell_ended", 1),
    "a dispatch without its end": without("dispatch_ended"),
    "words of nobody": without("input_queued"),
    "other words than those queued": edited("user_said", parts=words("count the lines")),
    "a note that follows no other": edited("notes_written", revision=2),
    "a replacement of what is not there": edited("surface_replaced", start=0),
    "no beginning": without("session_created"),
    "a field too many": edited("turn_ended", mood="good"),
    "a reason that is none": edited("turn_ended", reason="bored"),
}


@pytest.mark.parametrize("change", SENSELESS.values(), ids=SENSELESS.keys())
def test_a_log_that_makes_no_sense_is_damage(store: Store, tmp_path: Path, change: Change) -> None:
    with contextlib.closing(forged(store, tmp_path, change)) as other:
        other.check()
        with pytest.raises(CorruptLog, match=r"entry \d+") as found:
            verify(other)
        assert found.value.seq is not None


def test_an_entry_of_a_newer_version_is_no_damage(store: Store, tmp_path: Path) -> None:
    def change(rows: list[Row]) -> list[Row]:
        return [*rows, Row(0, 1, None, None, "mood_changed", "{}", {})]

    with contextlib.closing(forged(store, tmp_path, change)) as other, pytest.raises(UnsupportedLog, match="upgrade"):
        verify(other)


def test_changed_bytes_that_no_request_shows_are_found(store: Store, tmp_path: Path) -> None:
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as raw, raw:
        raw.execute("DROP TRIGGER entries_keep")
        raw.execute("UPDATE entries SET body = replace(body, 'bye', 'bya') WHERE type = 'cell_output'")
    reader = SqliteStore.read(tmp_path / FILE, ev.FORMAT)
    with contextlib.closing(reader), pytest.raises(CorruptLog, match=r"entry \d+ of .* is not what was written"):
        verify(reader)


def test_changed_bytes_are_found_before_anything_is_made_of_them(store: Store, tmp_path: Path) -> None:
    store.close()
    path = tmp_path / FILE
    whole = path.read_bytes()
    place = whole.index(LARGE[:100].replace("\n", "\\n").encode())
    path.write_bytes(whole[:place] + b"L" + whole[place + 1 :])
    reader = SqliteStore.read(path, ev.FORMAT)
    with contextlib.closing(reader), pytest.raises(CorruptLog, match="not what was stored"):
        verify(reader)
