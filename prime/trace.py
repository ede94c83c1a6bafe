"""The brackets of a log: turn, step, cell, dispatch. Pure.

The same check runs before every append and over any stored log. A :class:`Trace` is a value; :meth:`Trace.after` gives
the next one or refuses the event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from prime import events as ev
from prime.errors import TraceError
from prime.messages import CallPart


class Trace(NamedTuple):
    """What is open.

    Attributes:
        turn, step: numbers of the newest turn and of the newest step in it, from 1; 0 before the first.
        in_turn, in_step: whether they are open.
        replied: whether the open step has its reply.
        owed: ids of the model's calls that have no result yet, in order.
        cell: lease of the open cell, None when no cell runs; ``call_id`` is the call it answers.
        last_call: number of the newest dispatch of the open cell, 0 before the first.
        dispatches: numbers of the open dispatches.
        queries: the open queries of the cell, or the one of the host.
        asked: the open question whether a call may begin.
        created: whether the log has begun.
    """

    created: bool = False
    turn: int = 0
    in_turn: bool = False
    step: int = 0
    in_step: bool = False
    replied: bool = False
    owed: tuple[str, ...] = ()
    cell: str | None = None
    call_id: str | None = None
    last_call: int = 0
    dispatches: frozenset[int] = frozenset()
    queries: tuple[ev.QueryAsked, ...] = ()
    asked: ev.ApprovalRequested | None = None

    def after(self, event: Any) -> Trace:
        """Return the trace after ``event``.

        Raises:
            TraceError: when the event does not belong here.
        """
        if self.created == isinstance(event, ev.SessionCreated):
            raise TraceError("a log begins with session_created, and only there")
        rule = _RULES.get(type(event))
        return rule(self, event) if rule else self

    @property
    def numbers(self) -> tuple[int | None, int | None]:
        """The turn and step numbers for the envelope of an event that leaves this trace behind or enters it."""
        return (self.turn if self.in_turn else None), (self.step if self.in_step else None)

    @property
    def quiet(self) -> bool:
        """Whether nothing is open."""
        return not self.in_turn and self.cell is None


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise TraceError(what)


def _between_steps(trace: Trace, what: str) -> None:
    _require(trace.in_turn and not trace.in_step, f"{what} belongs into a turn, between its steps")
    _require(not trace.queries, f"{what} while a query is open")


def _created(trace: Trace, event: ev.SessionCreated) -> Trace:
    return trace._replace(created=True)


def _quiet(trace: Trace, event: Any) -> Trace:
    _require(trace.quiet, f"{event.type} while a turn or a cell is open")
    return trace


def _turn_started(trace: Trace, event: ev.TurnStarted) -> Trace:
    _require(trace.quiet, "a turn starts when no turn and no cell is open")
    return trace._replace(turn=trace.turn + 1, in_turn=True, step=0)


def _turn_ended(trace: Trace, event: ev.TurnEnded) -> Trace:
    _between_steps(trace, "the end of a turn")
    return trace._replace(in_turn=False)


def _step_started(trace: Trace, event: ev.StepStarted) -> Trace:
    _between_steps(trace, "a step")
    return trace._replace(step=trace.step + 1, in_step=True, replied=False)


def _step_ended(trace: Trace, event: ev.StepEnded) -> Trace:
    _require(trace.in_step and trace.cell is None, "a step ends when it is open and no cell runs")
    _require(not trace.owed, "a step ends when every call has its result")
    return trace._replace(in_step=False)


def _said(trace: Trace, event: Any) -> Trace:
    _between_steps(trace, event.type)
    return trace


def _replied(trace: Trace, event: ev.ModelReplied) -> Trace:
    _require(trace.in_step and not trace.replied, "one reply for each step")
    calls = tuple(part.call_id for part in event.parts if isinstance(part, CallPart))
    _require(len(set(calls)) == len(calls), "two calls of one reply share an id")
    _require(not (event.interrupted and calls), "an interrupted reply asks for no calls")
    return trace._replace(replied=True, owed=calls)


def _in_request(trace: Trace, event: Any) -> Trace:
    if event.query is None:
        _require(trace.in_step and not trace.replied, f"{event.type} outside a request")
    else:
        _require(_open_query(trace, event), f"{event.type} of a query that is not open")
    return trace


def _cell_started(trace: Trace, event: ev.CellStarted) -> Trace:
    _require(trace.cell is None, "a cell starts while another one is open")
    if event.call_id is None:
        _require(not trace.in_turn, "a cell by hand while a turn is open")
    else:
        _require(trace.in_step and trace.owed[:1] == (event.call_id,), "a cell answers the first call that is owed")
    return trace._replace(cell=event.cell, call_id=event.call_id, last_call=0)


def _cell_output(trace: Trace, event: ev.CellOutput) -> Trace:
    _require(event.late or event.cell == trace.cell, "output of a cell that is not open")
    return trace


def _cell_ended(trace: Trace, event: ev.CellEnded) -> Trace:
    _require(trace.cell == event.cell and trace.call_id == event.call_id, "the end of a cell that is not open")
    _require(not (trace.dispatches or trace.queries), "a cell ends when every call and query of it has ended")
    _require(trace.asked is None, "a cell ends when every question about its calls is answered")
    owed = trace.owed[1:] if event.call_id is not None else trace.owed
    return trace._replace(cell=None, call_id=None, owed=owed, last_call=0)


def _call_refused(trace: Trace, event: ev.CallRefused) -> Trace:
    _require(trace.cell is None and trace.owed[:1] == (event.call_id,), "the refusal of a call that is not owed")
    return trace._replace(owed=trace.owed[1:])


def _next_dispatch(trace: Trace, event: ev.DispatchStarted | ev.DispatchRefused | ev.ApprovalRequested) -> None:
    _require(trace.cell == event.cell, "a dispatch of a cell that is not open")
    _require(event.call > trace.last_call, "dispatches begin in the order of their numbers")
    _require(trace.asked is None, "a dispatch while it is asked whether one may begin")


def _dispatch_started(trace: Trace, event: ev.DispatchStarted) -> Trace:
    _next_dispatch(trace, event)
    return trace._replace(last_call=event.call, dispatches=trace.dispatches | {event.call})


def _dispatch_refused(trace: Trace, event: ev.DispatchRefused) -> Trace:
    _next_dispatch(trace, event)
    return trace._replace(last_call=event.call)


def _approval_requested(trace: Trace, event: ev.ApprovalRequested) -> Trace:
    _next_dispatch(trace, event)
    return trace._replace(asked=event)


def _approval_given(trace: Trace, event: ev.ApprovalGiven) -> Trace:
    open = trace.asked is not None and trace.asked.approval_id == event.approval_id
    _require(open, "the answer to a question that is not open")
    return trace._replace(asked=None)


def _dispatch_ended(trace: Trace, event: ev.DispatchEnded) -> Trace:
    _require(trace.cell == event.cell and event.call in trace.dispatches, "the end of a dispatch that is not open")
    return trace._replace(dispatches=trace.dispatches - {event.call})


def _child_spawned(trace: Trace, event: ev.ChildSpawned) -> Trace:
    _require(trace.cell is not None, "a child is admitted for a cell")
    return trace


def _query_asked(trace: Trace, event: ev.QueryAsked) -> Trace:
    if event.about is None:
        _require(trace.cell is not None, "a query outside a cell")
    else:
        _between_steps(trace, "a query of the host")
    _require(all(asked.query < event.query for asked in trace.queries), "queries begin in the order of their numbers")
    return trace._replace(queries=(*trace.queries, event))


def _query_ended(trace: Trace, event: ev.QueryEnded) -> Trace:
    _require(_open_query(trace, event), "the end of a query that is not open")
    return trace._replace(queries=tuple(asked for asked in trace.queries if asked.query != event.query))


def _open_query(trace: Trace, event: Any) -> bool:
    return any(asked.query == event.query for asked in trace.queries)


def _surface_replaced(trace: Trace, event: ev.SurfaceReplaced) -> Trace:
    _require(not trace.in_step, "the surface is replaced between steps")
    return trace


_RULES: dict[type, Callable[[Trace, Any], Trace]] = {
    ev.SessionCreated: _created,
    ev.SessionForked: _quiet,
    ev.SessionResumed: _quiet,
    ev.SessionClosed: _quiet,
    ev.SnapshotSaved: _quiet,
    ev.SnapshotSkipped: _quiet,
    ev.TurnStarted: _turn_started,
    ev.TurnEnded: _turn_ended,
    ev.StepStarted: _step_started,
    ev.StepEnded: _step_ended,
    ev.InputClaimed: _said,
    ev.UserSaid: _said,
    ev.NoticeGiven: _said,
    ev.ModelReplied: _replied,
    ev.RequestFailed: _in_request,
    ev.RetryScheduled: _in_request,
    ev.CellStarted: _cell_started,
    ev.CellOutput: _cell_output,
    ev.CellEnded: _cell_ended,
    ev.CallRefused: _call_refused,
    ev.DispatchStarted: _dispatch_started,
    ev.DispatchEnded: _dispatch_ended,
    ev.DispatchRefused: _dispatch_refused,
    ev.ApprovalRequested: _approval_requested,
    ev.ApprovalGiven: _approval_given,
    ev.ActivationSettled: _quiet,
    ev.ChildSpawned: _child_spawned,
    ev.QueryAsked: _query_asked,
    ev.QueryEnded: _query_ended,
    ev.SurfaceReplaced: _surface_replaced,
}
