from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from logs import FILE, facts, fresh_store, full_disk
from pydantic import ValidationError
from strategies import Commit, Folded, cell_ended, created, json_values, loose_events, walks

from prime import events as ev
from prime.errors import AppendRefused, CorruptLog, LogError, TraceError, UnsupportedLog
from prime.log import BLOB_LIMIT, Log, read
from prime.messages import CallPart, Frozen, Header, Message, Parameters, TextPart, ToolSpec
from prime.store.base import Row, Store
from prime.store.sqlite import SqliteStore

ASKED = ev.InputQueued(input_id="i1", kind="ask", parts=(TextPart(text="hello"),))
CLAIMED = ev.InputClaimed(input_id="i1")
SAID = ev.UserSaid(input_id="i1", kind="ask", parts=(TextPart(text="hello"),))
ENDED = ev.TurnEnded(reason="completed")
REPLIED = ev.ModelReplied(
    parts=(CallPart(call_id="call_0", name="repl", arguments="{}"),), stop="calls", model="m", usage=None
)
SENT = ev.StepStarted(request="digest", messages=1)
CELL = ev.CellStarted(cell="c1", call_id="call_0", code="1")
DISPATCHED = ev.DispatchStarted(cell="c1", call=1, target="tools.read", arguments={})
ANSWERED = ev.DispatchEnded(cell="c1", call=1, value=1, error=None, duration_s=0.1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with contextlib.closing(SqliteStore.create(tmp_path / FILE, ev.FORMAT)) as made:
        yield made


@pytest.fixture
def log(store: Store) -> Log:
    """A log with its first entry."""
    made = Log(store)
    made.append(created())
    return made


def snapshot(log: Log, store: Store) -> tuple[Any, ...]:
    return facts(log.state), len(log), list(store.rows())


def stored_row(seq: int, type: str, body: str = "{}", **fields: Any) -> Row:
    return Row(seq, 1, None, None, type, body, **{"blobs": {}, **fields})


# Appending


def test_append_returns_what_is_read_later(log: Log) -> None:
    first = log.append(ASKED, at=5)
    rest = log.append(ev.TurnStarted(), CLAIMED, SAID)
    assert [entry.seq for entry in (*first, *rest)] == [1, 2, 3, 4]
    assert tuple(log.entries(1)) == (*first, *rest)
    assert first == (ev.Entry("s1", 1, 5, None, None, ASKED),)
    assert len({entry.at for entry in rest}) == 1
    assert len(log) == 5
    assert first[0].as_json() == {
        "session": "s1",
        "seq": 1,
        "at": 5,
        "turn": None,
        "step": None,
        "type": "input_queued",
        "input_id": "i1",
        "kind": "ask",
        "parts": [{"type": "text", "text": "hello"}],
        "source": None,
        "wake": True,
    }


def test_entries_are_chosen_by_range_type_and_seq(log: Log) -> None:
    log.append(ASKED, ev.TurnStarted(), CLAIMED, SAID, ENDED)
    assert [entry.seq for entry in log.entries(2, 4)] == [2, 3]
    assert [entry.event.type for entry in log.entries(types=["turn_ended", "turn_started"])] == [
        "turn_started",
        "turn_ended",
    ]
    assert [entry.seq for entry in log.pick([4, 0, 2])] == [4, 0, 2]
    with pytest.raises(CorruptLog, match="entry 9 is missing"):
        log.pick([4, 9])


def test_an_event_belongs_to_the_brackets_that_it_opens_and_closes(log: Log) -> None:
    commits: list[tuple[Any, int | None, int | None]] = [
        (ASKED, None, None),
        (ev.TurnStarted(), 1, None),
        ((CLAIMED, SAID), 1, None),
        (SENT, 1, 1),
        (REPLIED, 1, 1),
        (CELL, 1, 1),
        (DISPATCHED, 1, 1),
        (ANSWERED, 1, 1),
        (cell_ended("c1", "call_0"), 1, 1),
        (ev.StepEnded(outcome="done"), 1, 1),
        (ev.NoticeGiven(about="test", text=""), 1, None),
        (SENT, 1, 2),
        (ev.StepEnded(outcome="failed"), 1, 2),
        (ENDED, 1, None),
        (ev.NotesWritten(revision=1, text=""), None, None),
        (ev.TurnStarted(), 2, None),
        (SENT, 2, 1),
    ]
    for events, turn, step in commits:
        for entry in log.append(*(events if isinstance(events, tuple) else (events,))):
            assert (entry.turn, entry.step) == (turn, step), entry.event.type
    assert [(entry.turn, entry.step) for entry in log.entries(1)] == [
        (turn, step) for events, turn, step in commits for _ in (events if isinstance(events, tuple) else (1,))
    ]


def test_checks_come_in_order(log: Log, store: Store, tmp_path: Path) -> None:
    told: list[ev.Entry] = []
    log.observe(told.append)
    unstorable = ev.TurnEnded(reason="completed", detail="\ud800")  # and outside its bracket
    with pytest.raises(AppendRefused, match="cannot be stored") as refused:
        log.append(unstorable)
    assert not isinstance(refused.value, TraceError)
    misplaced = ev.SurfaceReplaced(start=9, end=9, sources=(), message=Message(role="user", parts=()), policy="test")
    log.append(ev.TurnStarted(), SENT)
    with pytest.raises(TraceError, match="between steps"):  # before the surface is asked
        log.append(misplaced)
    told.clear()
    before = snapshot(log, store)
    with full_disk(tmp_path / f"{FILE}-wal", 0), pytest.raises(LogError, match="could not be written"):
        log.append(ev.StepEnded(outcome="failed"), ENDED, durable=True)
    assert snapshot(log, store) == before
    assert told == []
    log.append(ev.StepEnded(outcome="failed"), ENDED, durable=True)
    assert [entry.event.type for entry in told] == ["step_ended", "turn_ended"]


@settings(max_examples=20)
@given(walks(20), st.lists(st.lists(loose_events, min_size=1, max_size=3), min_size=20, max_size=20))
def test_a_refused_append_changes_nothing(walk: tuple[Commit, ...], loose: list[list[Any]]) -> None:
    refusals = 0
    with fresh_store() as store:
        log = Log(store)
        # whatever fits leads the walk astray, so its own commits are refused too after a while
        for commit, extra in zip(walk, loose, strict=False):
            for events in ((*commit, *extra), tuple(extra), commit):
                before = snapshot(log, store)
                try:
                    appended = log.append(*events)
                except AppendRefused:
                    refusals += 1
                    assert snapshot(log, store) == before
                else:
                    assert len(appended) == len(events)
                    assert [row.seq for row in store.rows()] == list(range(before[1] + len(events)))
        assert facts(Log(store).state) == facts(log.state)
    event(f"refusals: {'none' if not refusals else 'some' if refusals < 10 else 'many'}")


def header_with(parameters: Any) -> ev.HeaderChanged:
    """Return a header that nobody validated."""
    tool = ToolSpec.model_construct(name="repl", description="", parameters=parameters)
    header = Header.model_construct(model="m", system="", tools=(tool,), parameters=Parameters())
    return ev.HeaderChanged.model_construct(header=header)


UNSTORABLE = {
    "no event": "text",
    "a part": TextPart(text="x"),
    "what stands for an unknown entry": ev.Ignored(name="x"),
    "NaN in a value": ev.NotesWritten.model_construct(revision=1, text=math.nan),
    "NaN in a number": ev.RetryScheduled.model_construct(attempt=1, delay_s=math.nan),
    "lone surrogate": ev.NotesWritten(revision=1, text="\udfff"),
    "a field too few": ev.NotesWritten.model_construct(revision=1),
    "a field of another type": ev.NotesWritten.model_construct(revision=1, text=5),
    "a list for a tuple": ev.InputQueued.model_construct(input_id="a", kind="ask", parts=[TextPart(text="x")]),
    "a key that is no text": header_with({1: 2}),
    "bytes for text": header_with({"type": b"object"}),
    "NaN deep in a value": header_with({"x": [math.nan]}),
    "a word that is none of the choices": ev.TurnEnded.model_construct(reason="bored"),
}


@pytest.mark.parametrize("bad", UNSTORABLE.values(), ids=UNSTORABLE.keys())
def test_what_does_not_read_back_is_refused(log: Log, store: Store, bad: Any) -> None:
    before = snapshot(log, store)
    with pytest.raises(AppendRefused) as refused:
        log.append(ev.TurnStarted(), bad)
    assert not isinstance(refused.value, TraceError)
    assert snapshot(log, store) == before


def test_a_subclass_of_an_event_is_refused(log: Log) -> None:
    class Other(ev.TurnStarted):
        more: int = 1

    with pytest.raises(AppendRefused, match="Other is not an event"):
        log.append(Other())


@pytest.mark.parametrize("value", [math.nan, -0.0, {1: 2}, {1}, "\ud800", 2**63, math.inf])
def test_data_that_is_not_lossless_makes_no_event(value: Any) -> None:
    with pytest.raises(ValidationError):
        ev.DispatchStarted(cell="c", call=1, target="tools.read", arguments={"x": [value]})


def test_data_10000_deep_or_cyclic_makes_no_event() -> None:
    deep: Any = 1
    for _ in range(10_000):
        deep = [deep]
    cycle: list[Any] = []
    cycle.append(cycle)
    for value in (deep, cycle):
        with pytest.raises(ValidationError, match="nested deeper"):
            ev.DispatchStarted(cell="c", call=1, target="tools.read", arguments=value)


def test_a_claim_and_its_words_are_one_commit(log: Log, store: Store) -> None:
    log.append(ASKED, ev.TurnStarted())
    before = snapshot(log, store)
    for events in ((CLAIMED,), (CLAIMED, ev.InputQueued(input_id="i2", kind="ask", parts=()))):
        with pytest.raises(AppendRefused, match="one commit"):
            log.append(*events)
        assert snapshot(log, store) == before
    log.append(CLAIMED, SAID)


# What is appended


def test_a_caller_that_changes_its_data_changes_nothing(log: Log) -> None:
    arguments = {"path": ["a"]}
    parameters = {"type": "object"}
    log.append(header_with(parameters), ev.CellStarted(cell="c1", call_id=None, code=""))
    (entry,) = log.append(ev.DispatchStarted(cell="c1", call=1, target="tools.read", arguments=arguments))
    arguments["path"].append("b")
    arguments["more"] = []
    parameters["type"] = "array"
    assert entry.event.arguments == {"path": ("a",)}
    assert log.pick([entry.seq]) == (entry,)
    assert log.state.header is not None
    assert log.state.header.tools[0].parameters == {"type": "object"}


@settings(max_examples=30)
@given(walks())
def test_entries_are_immutable_all_the_way_down(walk: tuple[Commit, ...]) -> None:
    with fresh_store() as store:
        log = Log(store)
        appended = [entry for commit in walk for entry in log.append(*commit)]
        for entry in (*appended, *log.entries()):
            for name in ("seq", "event", "new"):
                with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
                    setattr(entry, name, 1)
            _check_frozen(entry.event)


def _check_frozen(value: Any) -> None:
    if isinstance(value, Frozen):
        for name in type(value).model_fields:
            with pytest.raises(ValidationError, match="frozen"):
                setattr(value, name, 1)
            _check_frozen(getattr(value, name))
    elif isinstance(value, (tuple, MappingProxyType)):
        for item in value.values() if isinstance(value, MappingProxyType) else value:
            _check_frozen(item)
    else:
        assert value is None or isinstance(value, (str, int, float))


@settings(max_examples=40)
@given(json_values)
def test_any_lossless_value_comes_back_with_its_types(value: Any) -> None:
    with fresh_store() as store:
        log = Log(store)
        log.append(created(), ev.CellStarted(cell="c1", call_id=None, code=""), DISPATCHED)
        (entry,) = log.append(ev.DispatchEnded(cell="c1", call=1, value=value, error=None, duration_s=0.0))
        (again,) = log.entries(entry.seq)
        assert again.as_json()["value"] == value
        assert json.dumps(again.as_json()["value"]) == json.dumps(value)


@pytest.mark.parametrize("size", [BLOB_LIMIT - 200, BLOB_LIMIT - 2, BLOB_LIMIT, 3 * BLOB_LIMIT])
@pytest.mark.parametrize("letter", ["x", "ü", "\U0001fae8", '"'])
def test_a_large_value_leaves_the_row_and_comes_back(log: Log, store: Store, size: int, letter: str) -> None:
    text = letter * size
    queued = ev.InputQueued(input_id="i1", kind="ask", parts=(TextPart(text=text),))
    (entry,) = log.append(queued)
    row = store.last()
    assert row is not None
    large = len(json.dumps(text, ensure_ascii=False)) + 30 > BLOB_LIMIT
    assert bool(row.blobs) == large
    assert len(row.body) <= BLOB_LIMIT + 100
    assert entry.event == queued
    assert log.pick([1]) == (entry,)
    assert Log(store).state.inbox.pending == (queued,)
    store.check()


def test_equal_large_values_are_one_blob(log: Log, store: Store) -> None:
    code = "x" * 2 * BLOB_LIMIT
    for cell in ("c1", "c2"):
        log.append(ev.CellStarted(cell=cell, call_id=None, code=code), cell_ended(cell, None))
    first, second = (row.blobs["code"] for row in store.rows(types=["cell_started"]))
    assert first == second
    assert [entry.event.code for entry in log.entries(types=["cell_started"])] == [code, code]


# Observers


def test_observers_hear_every_entry_after_its_commit_in_order(log: Log, store: Store) -> None:
    heard: list[tuple[str, int, int]] = []

    def listen(name: str) -> Any:
        return log.observe(lambda entry: heard.append((name, entry.seq, len(list(store.rows())))))

    stop = listen("a")
    listen("b")
    log.append(ev.TurnStarted(), ENDED)
    assert heard == [("a", 1, 3), ("b", 1, 3), ("a", 2, 3), ("b", 2, 3)]
    stop()
    log.append(ASKED)
    assert heard[4:] == [("b", 3, 4)]


def test_an_observer_that_raises_undoes_nothing(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[int] = []

    def fail(entry: ev.Entry) -> None:
        raise RuntimeError("broken listener")

    log.observe(fail)
    log.observe(lambda entry: heard.append(entry.seq))
    with caplog.at_level(logging.ERROR):
        log.append(ASKED, ev.TurnStarted())
    assert heard == [1, 2]
    assert len(log) == 3
    assert [record.message for record in caplog.records] == [
        f"an observer of session s1 failed at entry {seq}" for seq in (1, 2)
    ]


def test_an_observer_may_not_append(log: Log, store: Store) -> None:
    refusals: list[AppendRefused] = []
    heard: list[int] = []

    def append(entry: ev.Entry) -> None:
        try:
            log.append(ev.TurnStarted())
        except AppendRefused as error:
            refusals.append(error)

    log.observe(append)
    log.observe(lambda entry: heard.append(entry.seq))
    log.append(ASKED)
    assert [str(error) for error in refusals] == ["an observer of the log may not append to it"]
    assert heard == [1]
    assert len(log) == len(list(store.rows())) == 2
    log.append(ev.TurnStarted())


def test_observers_hear_nothing_of_a_refused_append(log: Log) -> None:
    heard: list[ev.Entry] = []
    log.observe(heard.append)
    with pytest.raises(TraceError):
        log.append(ASKED, ENDED)
    assert heard == []


# Opening again


@settings(max_examples=30)
@given(walks(30))
def test_the_stored_log_folds_to_the_live_state_at_every_prefix(walk: tuple[Commit, ...]) -> None:
    with fresh_store() as store:
        log = Log(store)
        folded = Folded()
        for commit in walk:
            for entry in log.append(*commit):
                folded.add(entry.event)
            assert facts(Log(store).state) == facts(log.state) == facts(folded.state)
        assert len(Log(store)) == len(log)
        assert [entry.event for entry in log.entries()] == [event for commit in walk for event in commit]


def test_an_unknown_type_is_refused_unless_it_may_be_ignored(store: Store) -> None:
    log = Log(store)
    log.append(created())
    store.append([stored_row(1, "mood_changed", '{"mood": "good"}', ignorable=True)], {}, durable=True)
    again = Log(store)
    (entry,) = again.entries(1)
    assert entry.event == ev.Ignored(name="mood_changed")
    again.append(ASKED)
    store.append([stored_row(3, "turn_skipped")], {}, durable=True)
    store.append([stored_row(4, "turn_started")], {}, durable=True)
    with pytest.raises(UnsupportedLog, match="entry 3 is a turn_skipped, written by a newer version: upgrade"):
        Log(store)
    reading = read(store)
    assert [next(reading).seq for _ in range(3)] == [0, 1, 2]
    with pytest.raises(UnsupportedLog):
        next(reading)


DAMAGED = {
    "not JSON": stored_row(1, "turn_started", "{"),
    "not an object": stored_row(1, "turn_started", "[]"),
    "another event's fields": stored_row(1, "turn_started", '{"text": "x"}'),
    "out of its bracket": stored_row(1, "turn_ended", '{"reason": "completed"}'),
    "a second beginning": stored_row(1, "session_created", '{"session": "s2", "cwd": "/", "version": "0"}'),
    "a blob that is missing": stored_row(1, "notes_written", '{"revision": 1}', blobs={"text": "0" * 64}),
    "a row with blobs that is not an object": stored_row(1, "notes_written", "[]", blobs={"text": "0" * 64}),
    "a fork that is none": stored_row(1, "session_forked", "{}"),
}


@pytest.mark.parametrize("row", DAMAGED.values(), ids=DAMAGED.keys())
def test_rows_that_make_no_sense_are_damage_named_by_entry(log: Log, store: Store, row: Row) -> None:
    store.append([row], {}, durable=True)
    with pytest.raises(CorruptLog, match="entry 1") as found:
        Log(store)
    assert found.value.seq == 1


def test_a_damaged_blob_is_named_by_its_entry(log: Log, store: Store) -> None:
    text = json.dumps("right")
    digest = hashlib.sha256(text.encode()).hexdigest()
    row = stored_row(1, "notes_written", '{"revision": 1}', blobs={"text": digest})
    store.append([row], {digest: json.dumps("wrong")}, durable=True)
    with pytest.raises(CorruptLog, match=r"entry 1 .* is not what was stored") as found:
        Log(store)
    assert found.value.seq == 1


def test_entries_bear_the_name_of_the_newest_owner(log: Log, store: Store) -> None:
    log.append(ev.SessionForked(session="s2", parent="s1", version="0"))
    assert log.session == "s2"
    assert {entry.session for entry in log.entries()} == {"s2"}
