"""Random logs: walks over what the brackets of a log allow, and loose events that mostly do not fit.

A walk is a tuple of commits, a commit a tuple of events. Every request in a walk bears its true digest, so a walk is a
log that verifies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from prime import events as ev
from prime.agent_events import QueryError, Settlement
from prime.inbox import words
from prime.messages import CallPart, Header, Message, Parameters, Reply, TextPart, ToolSpec, Usage
from prime.projection import digest, query, request
from prime.state import State
from prime.surface import Node

Commit = tuple[Any, ...]

texts = st.text(max_size=12)
counts = st.integers(0, 1000)
seconds = st.floats(0, 1000)
#: Lossless JSON (no negative zero: `lossless` refuses it).
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: str(number) != "-0.0")
    | st.text(max_size=8)
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)

text_parts = st.builds(TextPart, text=texts)
shown = st.lists(text_parts, min_size=1, max_size=2).map(tuple)
usages = st.builds(Usage, input=counts, cache_read=counts, cache_write=counts, output=counts, reasoning=counts)
tools = st.builds(ToolSpec, name=st.just("repl"), description=texts, parameters=json_values)
headers = st.builds(
    Header,
    model=st.sampled_from(["scripted/a", "scripted/b"]),
    system=texts,
    tools=st.lists(tools, max_size=1).map(tuple),
    parameters=st.builds(Parameters, max_tokens=st.none() | counts),
)
lost = st.builds(ev.KernelLost, generation=counts, reason=texts)


def created(session: str = "s1") -> ev.SessionCreated:
    """Return the first event of a log."""
    return ev.SessionCreated(session=session, cwd="/tmp", version="0")


@dataclass
class Folded:
    """A state with the entries that it was folded from."""

    state: State = field(default_factory=State)
    entries: list[ev.Entry] = field(default_factory=list)

    def add(self, event: Any) -> None:
        """Take in one more event."""
        self.state.apply(len(self.entries), event)
        turn, step = self.state.trace.numbers
        self.entries.append(ev.Entry(self.state.session, len(self.entries), 0, turn, step, event))

    def sent(self, header: Header) -> ev.StepStarted:
        """Return the start of a step that sends the request under ``header`` that the log says is next."""
        said = request(header, [self.entries[seq] for seq in self.state.surface.seqs])
        return ev.StepStarted(request=digest(said), messages=len(said.messages))


def whole_ranges(nodes: tuple[Node, ...]) -> list[tuple[int, int]]:
    """Return the ranges (by position, inclusive) that hold the result of each of their calls and no other result."""
    found = []
    for start in range(len(nodes)):
        due: list[str] = []
        for stop in range(start, len(nodes)):
            node = nodes[stop]
            if node.closes is not None and node.closes not in due:
                break
            due = [call for call in due if call != node.closes] + list(node.opens)
            if not due:
                found.append((start, stop))
    return found


def stand_in(folded: Folded, start: int, stop: int, text: str) -> ev.SurfaceReplaced:
    """Return the replacement of the nodes from position ``start`` to ``stop`` by a user message."""
    seqs = folded.state.surface.seqs[start : stop + 1]
    message = Message(role="user", parts=(TextPart(text=text),))
    return ev.SurfaceReplaced(start=seqs[0], end=seqs[-1], sources=seqs, message=message, policy="test")


def cell_ended(cell: str, call_id: str | None, **fields: Any) -> ev.CellEnded:
    """Return the end of a cell; ``fields`` replace those of a cell that showed ``1``."""
    usual: dict[str, Any] = {
        "status": "ok",
        "generation": None,
        "shown": (TextPart(text="1"),),
        "error": None,
        "set": {},
        "removed": (),
        "calls": 0,
        "dropped": 0,
        "duration_s": 0.5,
    }
    return ev.CellEnded(cell=cell, call_id=call_id, **{**usual, **fields})


def _queue(draw: st.DrawFn, folded: Folded) -> Commit:
    kind = draw(st.sampled_from(["ask", "steer", "inform", "notice"]))
    notice = {"source": draw(texts), "wake": draw(st.booleans())} if kind == "notice" else {}
    return (ev.InputQueued(input_id=f"i{len(folded.entries)}", kind=kind, parts=draw(shown), **notice),)


def _withdraw(draw: st.DrawFn, folded: Folded) -> Commit:
    return (ev.InputWithdrawn(input_id=draw(st.sampled_from(folded.state.inbox.pending)).input_id),)


def _claim(draw: st.DrawFn, folded: Folded) -> Commit:
    item = draw(st.sampled_from(folded.state.inbox.pending))
    return ev.InputClaimed(input_id=item.input_id), words(item)


def _notice(draw: st.DrawFn, folded: Folded) -> Commit:
    return (ev.NoticeGiven(about="test", text=draw(texts)),)


def _header(draw: st.DrawFn, folded: Folded) -> Commit:
    return (ev.HeaderChanged(header=draw(headers)),)


def _notes(draw: st.DrawFn, folded: Folded) -> Commit:
    notes = folded.state.notes
    return (ev.NotesWritten(revision=notes.revision + 1 if notes else 1, text=draw(texts)),)


def _replace(draw: st.DrawFn, folded: Folded) -> Commit:
    surface = folded.state.surface
    results = [node for node in surface.nodes if node.closes is not None]
    if results and draw(st.booleans()):
        node = draw(st.sampled_from(results))
        message = Message(role="tool", parts=draw(shown), call_id=node.closes)
        replaced = ev.SurfaceReplaced(start=node.seq, end=node.seq, sources=(node.seq,), message=message, policy="test")
        return (replaced,)
    ranges = whole_ranges(surface.nodes)
    return (stand_in(folded, *draw(st.sampled_from(ranges)), draw(texts)),)


def _kernel(draw: st.DrawFn, folded: Folded) -> Commit:
    kernel = folded.state.kernel
    if kernel.alive and folded.state.trace.quiet and draw(st.booleans()):
        names = draw(st.dictionaries(st.sampled_from("abc"), texts))
        saved = {"file": "f", "size": 1, "generation": kernel.generation, "names": names}
        return (ev.SnapshotSaved(**saved, left_out=draw(st.dictionaries(st.sampled_from("abc"), texts))),)
    if kernel.alive:
        return (ev.KernelLost(generation=kernel.generation, reason=draw(texts)),)
    started = ev.KernelStarted(
        generation=kernel.generation + 1,
        pid=1,
        executable="python",
        python="3.11",
        ipython="9",
        ipykernel="7",
        interrupts="handler",
    )
    if kernel.snapshot is None:
        return (started,)
    names = dict(kernel.snapshot.saved.names)
    missing = {names.popitem()[0]: "lost"} if names and draw(st.booleans()) else {}
    told = {"generation": started.generation, "snapshot": kernel.snapshot.seq, "restored": names}
    return started, ev.NamespaceRestored(**told, missing=missing)


def _job(draw: st.DrawFn, folded: Folded) -> Commit:
    running = folded.state.running
    if running.alive and draw(st.booleans()):
        job = draw(st.sampled_from(running.alive)).started.job
        code = draw(st.none() | st.integers(0, 255))
        ended = {"exit_code": code, "signal": "SIGTERM" if code is None else None, "output_bytes": draw(counts)}
        reason = draw(st.sampled_from(["exited", "killed", "closed"]))
        return (ev.JobEnded(job=job, reason=reason, duration_s=draw(seconds), **ended),)
    kind, number = draw(st.sampled_from(["command", "terminal"])), running.begun + 1
    return (ev.JobStarted(job=number, kind=kind, name=draw(texts), command=draw(texts), cwd="/tmp", pid=draw(counts)),)


def _turn_started(draw: st.DrawFn, folded: Folded) -> Commit:
    return (ev.TurnStarted(),)


def _turn_ended(draw: st.DrawFn, folded: Folded) -> Commit:
    return (ev.TurnEnded(reason=draw(st.sampled_from(["completed", "cancelled", "error"])), detail=draw(texts)),)


def _step_started(draw: st.DrawFn, folded: Folded) -> Commit:
    header = folded.state.header
    changed = () if header is not None else _header(draw, folded)
    return *changed, folded.sent(header if header is not None else changed[0].header)


def _step_ended(draw: st.DrawFn, folded: Folded) -> Commit:
    return (ev.StepEnded(outcome="done" if folded.state.trace.replied else "failed"),)


def _replied(draw: st.DrawFn, folded: Folded) -> Commit:
    calls = draw(st.integers(0, 3))  # the ids repeat from reply to reply, as those of some models do
    parts = (*draw(st.lists(text_parts, max_size=1)), *(_call(number) for number in range(calls)))
    interrupted = not calls and draw(st.booleans())
    stop = "calls" if calls else "end"
    usage = draw(st.none() | usages)
    return (ev.ModelReplied(parts=parts, stop=stop, model="m", usage=usage, interrupted=interrupted),)


def _call(number: int) -> CallPart:
    return CallPart(call_id=f"call_{number}", name="repl", arguments='{"code": "1"}')


def _retried(draw: st.DrawFn, folded: Folded) -> Commit:
    failed = ev.RequestFailed(attempt=1, code="server", message=draw(texts), status=500)
    return failed, ev.RetryScheduled(attempt=2, delay_s=draw(seconds))


def _cell_started(draw: st.DrawFn, folded: Folded) -> Commit:
    owed = folded.state.trace.owed
    cell = f"c{len(folded.entries)}"
    return (ev.CellStarted(cell=cell, call_id=owed[0] if owed else None, code=draw(texts)),)


def _refused(draw: st.DrawFn, folded: Folded) -> Commit:
    call_id = folded.state.trace.owed[0]
    return (ev.CallRefused(call_id=call_id, name="other", code="unknown_tool", text=draw(texts)),)


def _output(draw: st.DrawFn, folded: Folded) -> Commit:
    cell, stream = folded.state.trace.cell, draw(st.sampled_from(["stdout", "stderr"]))
    return (ev.CellOutput(cell=cell or "c0", stream=stream, text=draw(texts), late=cell is None),)


def _dispatch_started(draw: st.DrawFn, folded: Folded) -> Commit:
    trace = folded.state.trace
    call = trace.last_call + draw(st.integers(1, 2))
    return (ev.DispatchStarted(cell=trace.cell, call=call, target="tools.read", arguments=draw(json_values)),)


def _dispatch_ended(draw: st.DrawFn, folded: Folded) -> Commit:
    trace = folded.state.trace
    call = draw(st.sampled_from(sorted(trace.dispatches)))
    error = draw(st.none() | st.builds(ev.DispatchError, code=st.just("not_found"), message=texts))
    value = draw(json_values) if error is None else None
    return (ev.DispatchEnded(cell=trace.cell, call=call, value=value, error=error, duration_s=draw(seconds)),)


def _dispatch_refused(draw: st.DrawFn, folded: Folded) -> Commit:
    trace = folded.state.trace
    told = {"rule": draw(texts), "reason": draw(texts), "arguments": draw(json_values), "target": "tools.write"}
    return (ev.DispatchRefused(cell=trace.cell, call=trace.last_call + 1, **told),)


def _approval_requested(draw: st.DrawFn, folded: Folded) -> Commit:
    trace = folded.state.trace
    told = {"rule": draw(texts), "arguments": draw(json_values), "target": "tools.write"}
    return (ev.ApprovalRequested(approval_id="a", cell=trace.cell, call=trace.last_call + 1, **told),)


def _approval_given(draw: st.DrawFn, folded: Folded) -> Commit:
    outcome, by = draw(st.sampled_from(["allowed", "denied", "withdrawn"])), draw(texts)
    return (ev.ApprovalGiven(approval_id="a", outcome=outcome, scope="once", by=by),)


def _settlement(draw: st.DrawFn, before: Settlement | None) -> Settlement:
    activation = (before.activation if before is not None else 0) + draw(st.integers(1, 2))
    return Settlement(activation=activation, outcome="completed", reason="completed", detail="", text=draw(texts))


def _spawned(draw: st.DrawFn, folded: Folded) -> Commit:
    tools = draw(st.none() | st.lists(texts, max_size=2).map(tuple))
    agent_id = f"s1.{len(folded.state.kin.children) + 1}"
    return (ev.ChildSpawned(agent_id=agent_id, name=draw(texts), prompt=draw(texts), tools=tools),)


def _child_settled(draw: st.DrawFn, folded: Folded) -> Commit:
    child = draw(st.sampled_from([*folded.state.kin.children.values()]))
    settlement = _settlement(draw, child.settlement)
    return ev.ChildSettled(agent_id=child.spawned.agent_id, settlement=settlement), *_queue(draw, folded)


def _child_woken(draw: st.DrawFn, folded: Folded) -> Commit:
    return (ev.ChildWoken(agent_id=draw(st.sampled_from([*folded.state.kin.children]))),)


def _settled(draw: st.DrawFn, folded: Folded) -> Commit:
    return (ev.ActivationSettled(settlement=_settlement(draw, folded.state.kin.settlement)),)


def _query_asked(draw: st.DrawFn, folded: Folded) -> Commit:
    number, header, prompt = len(folded.entries), draw(headers), draw(texts)
    return (ev.QueryAsked(query=number, header=header, prompt=prompt, request=digest(query(header, prompt))),)


def _query_goes_on(draw: st.DrawFn, folded: Folded) -> Commit:
    asked = draw(st.sampled_from(folded.state.trace.queries))
    if draw(st.booleans()):
        failed = ev.RequestFailed(attempt=1, code="server", message=draw(texts), status=500, query=asked.query)
        return failed, ev.RetryScheduled(attempt=2, delay_s=draw(seconds), query=asked.query)
    reply = draw(st.none() | st.builds(Reply, parts=shown, stop=st.just("end"), model=texts, usage=st.none() | usages))
    error = None if reply else QueryError(code="server", message=draw(texts))
    return (ev.QueryEnded(query=asked.query, model=asked.header.model, reply=reply, error=error),)


def _cell_ended(draw: st.DrawFn, folded: Folded) -> Commit:
    trace, kernel = folded.state.trace, folded.state.kernel
    names = draw(st.dictionaries(st.sampled_from("abc"), st.sampled_from(["int", "str"]), max_size=2))
    removed = draw(st.lists(st.sampled_from("xyz"), max_size=1).map(tuple))
    assert trace.cell is not None
    generation = kernel.generation if kernel.alive else None
    ended = cell_ended(trace.cell, trace.call_id, generation=generation, set=names, removed=removed, shown=draw(shown))
    return (ended,)


_Move = Callable[[st.DrawFn, Folded], Commit]


def _moves(state: State) -> list[_Move]:
    trace = state.trace
    moves: list[_Move] = [_queue, _header, _notes, _kernel, _output, _job]
    if state.inbox.pending:
        moves.append(_withdraw)
    if state.kin.children:
        moves += [_child_settled, _child_woken]
    if trace.cell is not None:
        if trace.asked is not None:
            return [*moves, *6 * [_approval_given], *2 * [_dispatch_ended] * bool(trace.dispatches)]
        if trace.queries:
            return [*moves, _dispatch_started, _query_asked, *4 * [_query_goes_on]]
        end = _cell_ended if not trace.dispatches else _dispatch_ended
        return [*moves, _query_asked, _spawned, _dispatch_refused, _approval_requested, *4 * [_dispatch_started, end]]
    if trace.in_step:
        if trace.owed:
            return [*moves, *6 * [_cell_started], _refused]
        return [*moves, *6 * [_step_ended]] if trace.replied else [*moves, _retried, _step_ended, *6 * [_replied]]
    if state.surface.nodes:
        moves += 2 * [_replace]
    if not trace.in_turn:
        return [*moves, _cell_started, _settled, *5 * [_turn_started]]
    return [*moves, *4 * [_claim] * bool(state.inbox.pending), _notice, _turn_ended, *5 * [_step_started]]


@st.composite
def walks(draw: st.DrawFn, max_commits: int = 40) -> tuple[Commit, ...]:
    """A random log, as its commits."""
    folded = Folded()
    walk: list[Commit] = [(created(),)]
    folded.add(walk[0][0])
    for _ in range(draw(st.integers(0, max_commits))):
        move = draw(st.sampled_from(_moves(folded.state)))
        commit = move(draw, folded)
        for event in commit:
            folded.add(event)
        walk.append(commit)
    return tuple(walk)


settlements = st.builds(
    Settlement, activation=st.integers(1, 3), outcome=st.just("failed"), reason=texts, detail=texts, text=texts
)
#: One event of any kind, with ids that sometimes fit.
loose_events = st.one_of(
    st.builds(created),
    st.builds(ev.SessionForked, session=st.just("s2"), parent=st.just("s1"), version=st.just("0")),
    st.builds(ev.SessionResumed, version=st.just("0")),
    st.builds(ev.SessionClosed),
    st.builds(ev.TurnStarted),
    st.builds(ev.TurnEnded, reason=st.just("completed")),
    st.builds(ev.StepStarted, request=texts, messages=counts),
    st.builds(ev.StepEnded, outcome=st.just("done")),
    st.builds(ev.InputQueued, input_id=st.sampled_from("ab"), kind=st.just("ask"), parts=shown),
    st.builds(ev.InputClaimed, input_id=st.sampled_from("ab")),
    st.builds(ev.InputWithdrawn, input_id=st.sampled_from("ab")),
    st.builds(ev.UserSaid, input_id=st.sampled_from("ab"), kind=st.just("ask"), parts=shown),
    st.builds(ev.NoticeGiven, about=texts, text=texts),
    st.builds(ev.ModelReplied, parts=shown, stop=st.just("end"), model=texts, usage=st.none()),
    st.builds(ev.RequestFailed, attempt=counts, code=texts, message=texts, status=st.none()),
    st.builds(ev.RetryScheduled, attempt=counts, delay_s=seconds, query=st.none() | st.integers(0, 3)),
    st.builds(ev.CellStarted, cell=st.just("c"), call_id=st.sampled_from([None, "call_0", "call_1"]), code=texts),
    st.builds(ev.CellOutput, cell=st.just("c"), stream=st.just("stdout"), text=texts),
    st.sampled_from([None, "call_0", "call_1"]).map(lambda call_id: cell_ended("c", call_id)),
    st.builds(
        ev.CallRefused,
        call_id=st.sampled_from(["call_0", "call_1"]),
        name=texts,
        code=st.just("unknown_tool"),
        text=texts,
    ),
    st.builds(ev.DispatchStarted, cell=st.just("c"), call=st.integers(0, 3), target=texts, arguments=json_values),
    st.builds(
        ev.DispatchEnded,
        cell=st.just("c"),
        call=st.integers(0, 3),
        value=json_values,
        error=st.none(),
        duration_s=seconds,
    ),
    st.builds(
        ev.ApprovalRequested,
        approval_id=st.sampled_from("ab"),
        cell=st.just("c"),
        call=st.integers(0, 3),
        target=texts,
        arguments=json_values,
        rule=texts,
    ),
    st.builds(
        ev.ApprovalGiven,
        approval_id=st.sampled_from("ab"),
        outcome=st.just("allowed"),
        scope=st.just("once"),
        by=texts,
    ),
    st.builds(
        ev.DispatchRefused,
        cell=st.just("c"),
        call=st.integers(0, 3),
        target=texts,
        arguments=json_values,
        rule=texts,
        reason=texts,
    ),
    st.builds(ev.ChildSpawned, agent_id=st.just("s1.1"), name=texts, prompt=texts),
    st.builds(ev.ChildWoken, agent_id=st.just("s1.1")),
    st.builds(ev.ChildSettled, agent_id=st.just("s1.1"), settlement=settlements),
    st.builds(ev.ActivationSettled, settlement=settlements),
    st.builds(ev.QueryAsked, query=st.integers(0, 3), header=headers, prompt=texts, request=texts),
    st.builds(ev.QueryEnded, query=st.integers(0, 3), model=texts),
    st.builds(ev.NotesWritten, revision=st.integers(1, 3), text=texts),
    st.builds(
        ev.SurfaceReplaced,
        start=st.integers(0, 20),
        end=st.integers(0, 20),
        sources=st.lists(st.integers(0, 20), max_size=4).map(tuple),
        message=st.builds(Message, role=st.just("user"), parts=shown),
        policy=texts,
    ),
)
