"""What to append to a log whose writer died, so that every bracket is closed. Pure and deterministic.

Nothing stored is ever cut off. A cell or dispatch that had begun has an unknown outcome, and the text says so: the
model must look before it repeats anything. A call that had not begun says that it did not run.
"""

from __future__ import annotations

from typing import Any

from prime import events as ev
from prime.agent_events import QueryError
from prime.messages import TextPart
from prime.trace import Trace

#: Text of a result whose cell had begun: the process died, or something of ours broke, while it ran.
OUTCOME_UNKNOWN = (
    "OUTCOME_UNKNOWN: this cell was cut off and what came of it is not known. It may have had effects; check the state "
    "of the world before repeating anything."
)
#: Text of a result whose cell had not begun.
NOT_STARTED = "NOT_STARTED: this cell did not run."


def closers(trace: Trace, generation: int | None) -> tuple[Any, ...]:
    """Return the events that close everything ``trace`` has open; empty when nothing is.

    ``generation`` is the kernel process that ran the open cell, None when none is known to have run it.
    """
    events: list[Any] = []
    owed = list(trace.owed)
    cut = QueryError(code="outcome_unknown", message="the query was cut off; whether it was answered is not known")
    events += [ev.QueryEnded(query=open.query, model=open.header.model, error=cut) for open in trace.queries]
    if trace.cell is not None:
        died = ev.DispatchError(code="outcome_unknown", message="the call was cut off and what came of it is not known")
        if trace.asked is not None:  # the call had not begun
            name = trace.asked.approval_id
            events.append(ev.ApprovalGiven(approval_id=name, outcome="withdrawn", scope="once", by="nobody"))
        events += [
            ev.DispatchEnded(cell=trace.cell, call=call, value=None, error=died, duration_s=0.0)
            for call in sorted(trace.dispatches)
        ]
        events.append(
            ev.CellEnded(
                cell=trace.cell,
                call_id=trace.call_id,
                status="died",
                generation=generation,
                shown=(TextPart(text=OUTCOME_UNKNOWN),),
                error=None,
                set={},
                removed=(),
                calls=trace.last_call,
                dropped=0,
                duration_s=0.0,
            )
        )
        owed = owed[1:] if trace.call_id is not None else owed
    events += [not_started(call_id) for call_id in owed]
    if trace.in_step:
        events.append(ev.StepEnded(outcome="interrupted"))
    if trace.in_turn:
        events.append(ev.TurnEnded(reason="interrupted", detail="the process died"))
    return tuple(events)


def not_started(call_id: str) -> ev.CallRefused:
    """Return the result of a call that was asked for and never begun."""
    return ev.CallRefused(call_id=call_id, name="repl", code="not_started", text=NOT_STARTED)
