"""A process dies between any two commits; what opens the session afterwards finds it whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import FILE, facts, fresh_store
from stories import kernel_started, story
from strategies import Commit, cell_ended, created, walks

from prime import events as ev
from prime.log import Log
from prime.messages import CallPart, text_of
from prime.repair import NOT_STARTED, OUTCOME_UNKNOWN, closers
from prime.sessions import Sessions, mend
from prime.store.base import Row
from prime.store.sqlite import SqliteStore
from prime.trace import Trace
from prime.verify import verify

STORY = story()


def crashed(folder: Path, commits: list[Commit] | tuple[Commit, ...]) -> list[Row]:
    """Write the log of a process that died after ``commits``, and return its rows."""
    folder.mkdir(parents=True, exist_ok=True)
    with Log(SqliteStore.create(folder / FILE, ev.FORMAT)) as log:
        for number, commit in enumerate(commits):
            log.append(*commit, at=1_000 + number)
    return stored(folder)


def stored(folder: Path) -> list[Row]:
    store = SqliteStore.read(folder / FILE, ev.FORMAT)
    try:
        return list(store.rows())
    finally:
        store.close()


def expected(events: list[Any]) -> list[tuple[Any, ...]]:
    """Return what a repair has to add, worked out from the events alone."""
    added: list[tuple[Any, ...]] = []
    cell, asked, dispatches, queries = None, [], set(), list[int]()
    question = None
    turn = step = kernel = None
    for event in events:
        if isinstance(event, ev.ModelReplied):
            asked = [part.call_id for part in event.parts if isinstance(part, CallPart)]
        elif isinstance(event, ev.CellStarted):
            cell = event
        elif isinstance(event, ev.CellEnded):
            cell = None
            asked = asked[1:] if event.call_id is not None else asked
        elif isinstance(event, ev.CallRefused):
            asked = asked[1:]
        elif isinstance(event, ev.DispatchStarted):
            dispatches.add(event.call)
        elif isinstance(event, ev.DispatchEnded):
            dispatches.remove(event.call)
        elif isinstance(event, ev.ApprovalRequested):
            question = event.approval_id
        elif isinstance(event, ev.ApprovalGiven):
            question = None
        elif isinstance(event, ev.QueryAsked):
            queries.append(event.query)
        elif isinstance(event, ev.QueryEnded):
            queries.remove(event.query)
        turn = {"turn_started": True, "turn_ended": False}.get(event.type, turn)
        step = {"step_started": True, "step_ended": False}.get(event.type, step)
        kernel = {"kernel_started": True, "kernel_lost": False}.get(event.type, kernel)
    added += [("query_ended", query) for query in queries]
    added += [("approval_given", question, "withdrawn")] * bool(question)
    added += [("dispatch_ended", call) for call in sorted(dispatches)]
    if cell is not None:
        added.append(("cell_ended", cell.cell, cell.call_id, OUTCOME_UNKNOWN))
        asked = asked[1:] if cell.call_id is not None else asked
    added += [("call_refused", call_id, NOT_STARTED) for call_id in asked]
    added += [("step_ended", "interrupted")] * bool(step)
    added += [("turn_ended", "interrupted")] * bool(turn)
    added += [("kernel_lost",)] * bool(kernel)
    jobs = [event.job for event in events if isinstance(event, ev.JobStarted)]
    over = [event.job for event in events if isinstance(event, ev.JobEnded)]
    for job in (job for job in jobs if job not in over):
        added += [("job_ended", job, "lost"), ("input_queued", "notice", False)]
    return added


def summary(event: Any) -> tuple[Any, ...]:
    """Return what :func:`expected` says of an event."""
    if isinstance(event, ev.DispatchEnded):
        assert event.error is not None
        assert event.error.code == "outcome_unknown"
        return event.type, event.call
    if isinstance(event, ev.ApprovalGiven):
        return event.type, event.approval_id, event.outcome
    if isinstance(event, ev.QueryEnded):
        assert event.error is not None
        assert event.error.code == "outcome_unknown"
        return event.type, event.query
    if isinstance(event, ev.CellEnded):
        assert event.status == "died"
        return event.type, event.cell, event.call_id, text_of(event.shown)
    if isinstance(event, ev.CallRefused):
        assert event.code == "not_started"
        return event.type, event.call_id, event.text
    if isinstance(event, ev.StepEnded):
        return event.type, event.outcome
    if isinstance(event, ev.TurnEnded):
        return event.type, event.reason
    if isinstance(event, ev.JobEnded):
        return event.type, event.job, event.reason
    if isinstance(event, ev.InputQueued):
        return event.type, event.kind, event.wake
    return (event.type,)


@pytest.mark.parametrize("cut", range(1, len(STORY) + 1))
def test_a_session_cut_at_any_commit_opens_whole(tmp_path: Path, cut: int) -> None:
    sessions = Sessions(tmp_path)
    folder = sessions.folder("s1")
    before = crashed(folder, STORY[:cut])
    added = expected([event for commit in STORY[:cut] for event in commit])
    with sessions.open("s1") as log:
        assert log.state.trace.quiet
        events = [entry.event for entry in log.entries(len(before))]
        assert [summary(event) for event in events] == [*added, ("session_resumed",)]
        assert {entry.at for entry in log.entries(len(before), len(log) - 1)} <= {before[-1].at}
    after = stored(folder)
    assert after[: len(before)] == before
    assert [row.type for row in after[len(before) + len(added) :]] == ["session_resumed", "session_closed"]
    with sessions.read("s1") as store:
        assert verify(store).entries == len(after)
    with sessions.open("s1") as log:
        log.append(ev.TurnStarted(), ev.TurnEnded(reason="completed"))
    again = stored(folder)
    assert again[: len(after)] == after
    assert [row.type for row in again[len(after) :]] == [
        "session_resumed",
        "turn_started",
        "turn_ended",
        "session_closed",
    ]


@settings(max_examples=20)
@given(walks(25), st.data())
def test_any_log_cut_anywhere_is_repaired_once_and_for_all(walk: tuple[Commit, ...], data: st.DataObject) -> None:
    cut = walk[: data.draw(st.integers(1, len(walk)))]
    repaired = []
    for _ in range(2):
        with fresh_store() as store:
            log = Log(store)
            for commit in cut:
                log.append(*commit, at=7)
            begun = len(log)
            mend(Log(store))
            again = Log(store)
            assert again.state.trace.quiet
            assert [summary(entry.event) for entry in again.entries(begun)] == expected(
                [event for commit in cut for event in commit]
            )
            rows = list(store.rows())
            mend(again)
            assert list(store.rows()) == rows
            assert facts(Log(store).state) == facts(again.state)
            verify(store)
            repaired.append(rows)
    assert repaired[0] == repaired[1]


@settings(max_examples=30)
@given(walks(25))
def test_every_call_has_exactly_one_result_after_a_repair(walk: tuple[Commit, ...]) -> None:
    with fresh_store() as store:
        log = Log(store)
        for commit in walk:
            log.append(*commit)
        mend(log)
        owed: list[str] = []
        for event in (entry.event for entry in log.entries()):
            if isinstance(event, ev.ModelReplied):
                assert owed == []
                owed = [part.call_id for part in event.parts if isinstance(part, CallPart)]
            elif isinstance(event, ev.CallRefused) or (isinstance(event, ev.CellEnded) and event.call_id is not None):
                assert owed.pop(0) == event.call_id
        assert owed == []


def test_a_balanced_log_gains_nothing() -> None:
    assert closers(Trace(), None) == ()
    with fresh_store() as store:
        log = Log(store)
        log.append(created())
        mend(log)
        assert len(log) == 1


@pytest.mark.parametrize("alive", [True, False])
def test_a_cell_that_died_names_its_kernel(alive: bool) -> None:
    with fresh_store() as store:
        log = Log(store)
        log.append(created(), *[kernel_started(3)] * alive, ev.CellStarted(cell="c1", call_id=None, code=""))
        mend(log)
        (ended,) = (entry.event for entry in log.entries(types=["cell_ended"]))
        assert ended.generation == (3 if alive else None)
        assert not log.state.kernel.alive


def test_the_text_says_not_to_repeat_blindly() -> None:
    assert "before repeating anything" in OUTCOME_UNKNOWN
    assert "did not run" in NOT_STARTED


def test_pending_inputs_survive_a_crash() -> None:
    with fresh_store() as store:
        log = Log(store)
        log.append(created(), ev.InputQueued(input_id="a", kind="ask", parts=()), ev.TurnStarted())
        mend(log)
        assert [item.input_id for item in log.state.inbox.pending] == ["a"]


def test_a_closed_step_of_an_open_turn_is_left_alone() -> None:
    with fresh_store() as store:
        log = Log(store)
        reply = ev.ModelReplied(
            parts=(CallPart(call_id="call_0", name="repl", arguments="{}"),), stop="calls", model="m", usage=None
        )
        log.append(created(), ev.TurnStarted(), ev.StepStarted(request="x", messages=0), reply)
        log.append(ev.CellStarted(cell="c1", call_id="call_0", code=""), cell_ended("c1", "call_0"))
        log.append(ev.StepEnded(outcome="done"))
        begun = len(log)
        mend(log)
        assert [entry.event.type for entry in log.entries(begun)] == ["turn_ended"]
