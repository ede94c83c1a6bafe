"""What runs beside the cells, as a fold of the log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from strategies import walks

from prime import events as ev
from prime.errors import TraceError
from prime.inbox import Inbox
from prime.running import Running, lost


def started(job: int, kind: Any = "command", name: str = "") -> ev.JobStarted:
    return ev.JobStarted(job=job, kind=kind, name=name, command="make  -j4\nall", cwd="/", pid=1)


def ended(job: int, reason: Any = "exited", code: int | None = 0, signal: str | None = None) -> ev.JobEnded:
    return ev.JobEnded(job=job, reason=reason, exit_code=code, signal=signal, output_bytes=10, duration_s=1.25)


def after(*events: Any) -> Running:
    running = Running()
    for event in events:
        running = running.after(event)
    return running


def test_what_runs_is_told_in_a_line_each() -> None:
    running = after(started(1, name="build"), started(2), ended(2), started(3, "terminal"))
    assert list(running.lines()) == [
        "Running: job 1 (build), `make -j4 all`; `await jobs.output(1)` gives its output.",
        "Running: terminal 3, `make -j4 all`; `await tools.terminal_read(3)` gives its output.",
    ]


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (ended(1), "exit code 0, after 1.2 s"),
        (ended(1, "killed", None, "SIGTERM"), "ended by SIGTERM, as asked, after 1.2 s"),
        (ended(1, "closed", 3), "exit code 3, because the session was closed, after 1.2 s"),
    ],
)
def test_how_a_job_ended_in_words(end: ev.JobEnded, words: str) -> None:
    assert after(started(1), end).jobs[1].outcome == words


@pytest.mark.parametrize(
    ("before", "event", "reason"),
    [
        ((), started(2), "not the next"),
        ((started(1),), started(1), "not the next"),
        ((), ended(1), "does not run"),
        ((started(1), ended(1)), ended(1), "does not run"),
    ],
)
def test_what_does_not_fit_is_refused(before: tuple[Any, ...], event: Any, reason: str) -> None:
    with pytest.raises(TraceError, match=reason):
        after(*before).after(event)


def test_a_fork_has_none_of_its_parents_and_counts_on() -> None:
    running = after(started(1), ev.SessionForked(session="s2", parent="s1", version="0"))
    assert (running.alive, running.jobs) == ([], {})
    assert running.after(started(2)).alive[0].label == "job 2"


@given(walks())
def test_what_is_lost_is_over_and_told_once(walk: Any) -> None:
    running, inbox = Running(), Inbox()
    for event in (event for commit in walk for event in commit):
        running, inbox = running.after(event), inbox.after(event)
    before = len(running.alive), len(inbox.pending)
    for event in lost(running):
        running, inbox = running.after(event), inbox.after(event)
    assert not running.alive
    assert len(inbox.pending) - before[1] == before[0]
    assert lost(running) == ()
