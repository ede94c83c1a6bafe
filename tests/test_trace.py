from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from strategies import cell_ended, created, walks

from prime import events as ev
from prime.agent_events import Settlement
from prime.errors import TraceError
from prime.messages import CallPart, Header, Message
from prime.trace import Trace


def replied(*calls: str, **fields: Any) -> ev.ModelReplied:
    parts = tuple(CallPart(call_id=call, name="repl", arguments="{}") for call in calls)
    return ev.ModelReplied(parts=parts, stop="calls", model="m", usage=None, **fields)


def dispatched(call: int, cell: str = "c1") -> ev.DispatchStarted:
    return ev.DispatchStarted(cell=cell, call=call, target="tools.read", arguments={})


def answered(call: int, cell: str = "c1") -> ev.DispatchEnded:
    return ev.DispatchEnded(cell=cell, call=call, value=None, error=None, duration_s=0.0)


def refused(call: str) -> ev.CallRefused:
    return ev.CallRefused(call_id=call, name="other", code="unknown_tool", text="")


def cell(call: str | None, name: str = "c1") -> ev.CellStarted:
    return ev.CellStarted(cell=name, call_id=call, code="")


def output(name: str = "c1", late: bool = False) -> ev.CellOutput:
    return ev.CellOutput(cell=name, stream="stdout", text="", late=late)


def asked(query: int = 9, about: str | None = None) -> ev.QueryAsked:
    return ev.QueryAsked(query=query, header=HEADER, prompt="", request="digest", about=about)


SETTLED = Settlement(activation=1, outcome="completed", reason="completed", detail="", text="done")
TURN, ENDED = ev.TurnStarted(), ev.TurnEnded(reason="completed")
STEP, DONE = ev.StepStarted(request="digest", messages=1), ev.StepEnded(outcome="done")
HEADER = Header(model="m", system="", tools=())

APPROVAL = ev.ApprovalRequested(approval_id="a", cell="c1", call=1, target="tools.write", arguments={}, rule="ask *")

#: One event of each kind, with ids that fit the situations below.
SAMPLES: dict[str, Any] = {
    "created": created(),
    "forked": ev.SessionForked(session="s2", parent="s1", version="0"),
    "resumed": ev.SessionResumed(version="0"),
    "closed": ev.SessionClosed(),
    "queued": ev.InputQueued(input_id="i", kind="ask", parts=()),
    "claimed": ev.InputClaimed(input_id="i"),
    "withdrawn": ev.InputWithdrawn(input_id="i"),
    "turn": TURN,
    "turn ended": ENDED,
    "step": STEP,
    "step ended": DONE,
    "header": ev.HeaderChanged(header=HEADER),
    "said": ev.UserSaid(input_id="i", kind="ask", parts=()),
    "notice": ev.NoticeGiven(about="test", text=""),
    "replied": replied("call_0", "call_1"),
    "failed": ev.RequestFailed(attempt=1, code="server", message="", status=None),
    "retry": ev.RetryScheduled(attempt=2, delay_s=0.5),
    "cell": cell("call_0"),
    "second cell": cell("call_1", "c2"),
    "cell by hand": cell(None),
    "output": output(),
    "late output": output("c0", late=True),
    "cell ended": cell_ended("c1", "call_0"),
    "cell by hand ended": cell_ended("c1", None),
    "refused": refused("call_0"),
    "second refused": refused("call_1"),
    "approval": APPROVAL,
    "leave": ev.ApprovalGiven(approval_id="a", outcome="allowed", scope="once", by="person"),
    "denied": ev.DispatchRefused(cell="c1", call=1, target="tools.write", arguments={}, rule="", reason=""),
    "dispatch": dispatched(1),
    "dispatch ended": answered(1),
    "kernel": ev.KernelStarted(generation=1, pid=1, executable="", python="", ipython="", ipykernel="", interrupts=""),
    "kernel lost": ev.KernelLost(generation=1, reason=""),
    "saved": ev.SnapshotSaved(file="", size=0, generation=1, names={}, left_out={}),
    "skipped": ev.SnapshotSkipped(reason=""),
    "restored": ev.NamespaceRestored(generation=1, snapshot=1, restored={}, missing={}),
    "replaced": ev.SurfaceReplaced(start=0, end=0, sources=(), message=Message(role="user", parts=()), policy="test"),
    "notes": ev.NotesWritten(revision=1, text=""),
    "query": asked(),
    "query of the host": asked(about="rules"),
    "broken": ev.ContractBroken(rule=1, path="", found="", suspended=False),
    "query failed": ev.RequestFailed(attempt=1, code="server", message="", status=None, query=9),
    "query retried": ev.RetryScheduled(attempt=2, delay_s=0.5, query=9),
    "query ended": ev.QueryEnded(query=9, model="m"),
    "spawned": ev.ChildSpawned(agent_id="s1.1", name="a", prompt="go"),
    "child woken": ev.ChildWoken(agent_id="s1.1"),
    "child settled": ev.ChildSettled(agent_id="s1.1", settlement=SETTLED),
    "settled": ev.ActivationSettled(settlement=SETTLED),
    "job": ev.JobStarted(job=1, kind="command", name="", command="", cwd="/", pid=1),
    "job ended": ev.JobEnded(job=1, reason="exited", exit_code=0, signal=None, output_bytes=0, duration_s=0.0),
    "ignored": ev.Ignored(name="x"),
}
ANYWHERE = {
    *("queued", "withdrawn", "header", "late output", "kernel", "kernel lost", "restored", "notes", "ignored"),
    *("job", "job ended", "broken", "child settled", "child woken"),
}
BETWEEN = {"turn ended", "step", "claimed", "said", "notice", "replaced", "query of the host"}

#: What happened -> what may happen next, and nothing else of the samples.
SITUATIONS: dict[str, tuple[list[Any], set[str]]] = {
    "nothing": ([], {"created"}),
    "created": (
        [created()],
        ANYWHERE | {"forked", "resumed", "closed", "saved", "skipped", "settled", "turn", "cell by hand", "replaced"},
    ),
    "cell by hand": (
        [created(), cell(None)],
        ANYWHERE | {"output", "cell by hand ended", "dispatch", "approval", "denied", "query", "spawned", "replaced"},
    ),
    "turn": ([created(), TURN], ANYWHERE | BETWEEN),
    "query of the host": (
        [created(), TURN, asked(about="rules")],
        ANYWHERE | {"query failed", "query retried", "query ended", "replaced"},
    ),
    "request": (
        [created(), TURN, STEP],
        ANYWHERE | {"replied", "failed", "retry", "step ended"},
    ),
    "reply that asks for nothing": ([created(), TURN, STEP, replied()], ANYWHERE | {"step ended"}),
    "reply that asks for two calls": (
        [created(), TURN, STEP, replied("call_0", "call_1")],
        ANYWHERE | {"cell", "refused"},
    ),
    "cell": (
        [created(), TURN, STEP, replied("call_0", "call_1"), cell("call_0")],
        ANYWHERE | {"output", "dispatch", "approval", "denied", "query", "spawned", "cell ended"},
    ),
    "approval": (
        [created(), TURN, STEP, replied("call_0", "call_1"), cell("call_0"), APPROVAL],
        ANYWHERE | {"output", "query", "spawned", "leave"},
    ),
    "dispatch": (
        [created(), TURN, STEP, replied("call_0", "call_1"), cell("call_0"), dispatched(1)],
        ANYWHERE | {"output", "query", "spawned", "dispatch ended"},
    ),
    "query": (
        [created(), TURN, STEP, replied("call_0"), cell("call_0"), asked()],
        ANYWHERE
        | {"output", "dispatch", "approval", "denied", "spawned", "query failed", "query retried", "query ended"},
    ),
    "dispatch ended": (
        [created(), TURN, STEP, replied("call_0"), cell("call_0"), dispatched(1), answered(1)],
        ANYWHERE | {"output", "query", "spawned", "cell ended"},
    ),
    "first call answered": (
        [created(), TURN, STEP, replied("call_0", "call_1"), cell("call_0"), cell_ended("c1", "call_0")],
        ANYWHERE | {"second cell", "second refused"},
    ),
    "all calls answered": (
        [created(), TURN, STEP, replied("call_0"), refused("call_0")],
        ANYWHERE | {"step ended"},
    ),
    "step ended": ([created(), TURN, STEP, replied(), DONE], ANYWHERE | BETWEEN),
    "turn ended": (
        [created(), TURN, STEP, replied(), DONE, ENDED],
        ANYWHERE | {"forked", "resumed", "closed", "saved", "skipped", "settled", "turn", "cell by hand", "replaced"},
    ),
}


def after(events: list[Any]) -> Trace:
    trace = Trace()
    for event in events:
        trace = trace.after(event)
    return trace


def test_every_kind_of_event_has_a_sample() -> None:
    assert {type(event) for event in SAMPLES.values()} == {*ev.TYPES.values(), ev.Ignored}


@pytest.mark.parametrize(("events", "allowed"), SITUATIONS.values(), ids=SITUATIONS.keys())
def test_what_may_happen_next(events: list[Any], allowed: set[str]) -> None:
    trace = after(events)
    fits = set()
    for name, event in SAMPLES.items():
        try:
            trace.after(event)
        except TraceError:
            continue
        fits.add(name)
    assert fits == allowed


REFUSED = {
    "two calls of one id": ([TURN, STEP], replied("call_0", "call_0"), "share an id"),
    "an interrupted reply with calls": ([TURN, STEP], replied("call_0", interrupted=True), "no calls"),
    "output of another cell": ([cell(None)], output("c2"), "not open"),
    "the end of another cell": ([cell(None)], cell_ended("c2", None), "not open"),
    "the end of a cell by hand for a call": ([cell(None)], cell_ended("c1", "call_0"), "not open"),
    "a dispatch of another cell": ([cell(None)], dispatched(1, "c2"), "not open"),
    "a dispatch number twice": ([cell(None), dispatched(2), answered(2)], dispatched(2), "order of their numbers"),
    "a dispatch number that falls": ([cell(None), dispatched(2)], dispatched(1), "order of their numbers"),
    "a dispatch number 0": ([cell(None)], dispatched(0), "order of their numbers"),
    "an answer twice": ([cell(None), dispatched(1), answered(1)], answered(1), "not open"),
    "an answer for another cell": ([cell(None), dispatched(1)], answered(1, "c2"), "not open"),
}


@pytest.mark.parametrize(("events", "event", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_ids_must_fit(events: list[Any], event: Any, reason: str) -> None:
    trace = after([created(), *events])
    with pytest.raises(TraceError, match=reason):
        trace.after(event)


def test_dispatches_may_overlap_and_end_in_any_order() -> None:
    trace = after([created(), cell(None), dispatched(1), dispatched(3), answered(3), dispatched(4), answered(1)])
    assert trace.dispatches == {4}
    assert trace.last_call == 4


def test_dispatch_numbers_begin_anew_with_each_cell() -> None:
    trace = after([created(), cell(None), dispatched(7), answered(7), cell_ended("c1", None)])
    assert trace.last_call == 0
    assert trace.after(cell(None, "c2")).after(dispatched(1, "c2")).last_call == 1


def test_turns_and_steps_count_from_one() -> None:
    events = [created(), TURN, STEP, replied(), DONE, STEP, replied(), DONE, ENDED, TURN, STEP]
    numbers = []
    trace = Trace()
    for event in events:
        trace = trace.after(event)
        numbers.append(trace.numbers)
    assert numbers == [
        (None, None),
        (1, None),
        *[(1, 1)] * 2,
        (1, None),
        *[(1, 2)] * 2,
        (1, None),
        (None, None),
        (2, None),
        (2, 1),
    ]


@given(walks())
def test_what_is_open_is_what_was_begun_and_not_ended(walk: Any) -> None:
    trace = Trace()
    begun: dict[str, int] = {"turn": 0, "step": 0, "cell": 0, "dispatch": 0}
    for event in (event for commit in walk for event in commit):
        trace = trace.after(event)
        what, _, way = event.type.partition("_")
        if what in begun:
            begun[what] += {"started": 1, "ended": -1}.get(way, 0)
        assert begun == {
            "turn": trace.in_turn,
            "step": trace.in_step,
            "cell": trace.cell is not None,
            "dispatch": len(trace.dispatches),
        }
        assert trace.quiet == (not begun["turn"] and not begun["cell"])
