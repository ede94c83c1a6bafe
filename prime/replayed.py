"""What a recorded session would have sent under another context policy. No model is asked and no cell is run.

The recording is appended anew to a log in a temporary folder, all but what its own policy did, and the other policy is
asked before every request as it is asked live. The words of persons, the replies and the results of cells stay as they
were: how a model would have gone on from other requests, nobody knows. So what a policy asks beside the conversation
is answered as it was recorded, or not at all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prime import events as ev
from prime.agent_events import QueryError
from prime.context import Context
from prime.ledger import Ledger
from prime.log import Log, read
from prime.messages import Header, Message, Reply, Request
from prime.policies.base import Options
from prime.policies.stream import Question
from prime.policies.window import KEPT, REMINDER
from prime.projection import digest, message, query
from prime.side import CONSTITUTION, RULES, SUSPENDED
from prime.store.base import Store
from prime.store.sqlite import SqliteStore
from prime.surface import Surface, visible

#: What a log holds of a query after its start, each with the number of the query.
_OF_A_QUERY = (ev.RequestFailed, ev.RetryScheduled, ev.QueryEnded)


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as the policy makes it, the digest of the one that was recorded (None when none was), and the recorded
    reply to it. One that is ``aside`` is a query; no policy changes those of cells."""

    request: Request
    recorded: str | None
    reply: Reply | None
    aside: bool = False


@dataclass(frozen=True, slots=True)
class Replay:
    """A session under a policy: its requests in the ledger, and how often the policy changed the surface."""

    ledger: Ledger
    operations: int
    same: bool


def recorded(store: Store) -> Ledger:
    """Return the ledger of a session's requests as they were sent.

    Raises:
        CorruptLog, UnsupportedLog: as far as reading gets there.
    """
    ledger, surface, replies = Ledger(), Surface(), _replies(store)
    header: Header | None = None
    messages: dict[int, Message] = {}
    for entry in read(store):
        event = entry.event
        surface.apply(entry.seq, event)
        if visible(entry.seq, event) and (found := message(event)) is not None:
            messages[entry.seq] = found
        elif isinstance(event, ev.HeaderChanged):
            header = event.header
        elif isinstance(event, ev.StepStarted):
            assert header is not None, "a step has a header"
            shown = tuple(messages[seq] for seq in surface.seqs if seq in messages)
            ledger.add(Request(header=header, messages=shown), replies.get(entry.seq))
        elif isinstance(event, ev.QueryAsked):
            ledger.add(query(event.header, event.prompt), replies.get(entry.seq), aside=True)
    return ledger


def replay(store: Store, options: Options, window: int | None) -> Replay:
    """Return a recorded session under a policy, ``same`` telling whether every request is the recorded one.

    ``window`` is the model's, in tokens; the log does not have it.

    Raises:
        CorruptLog, UnsupportedLog: as far as reading gets there.
    """
    ledger, same, operations = Ledger(), True, 0
    with tempfile.TemporaryDirectory() as folder:
        copy = SqliteStore.create(Path(folder) / "log.sqlite3", ev.FORMAT)
        with Log(copy) as log:
            for sent in _sent(store, log, options, window):
                ledger.add(sent.request, sent.reply, aside=sent.aside)
                same &= digest(sent.request) == sent.recorded
            operations = sum(1 for _ in log.entries(types=("surface_replaced",)))
    return Replay(ledger, operations, same)


def _sent(store: Store, log: Log, options: Options, window: int | None) -> Iterator[Sent]:
    context = Context(log, options, window=lambda: window)
    replies = _replies(store)
    renewals = set[tuple[str, int]]()
    claimed: list[ev.InputClaimed] = []
    unasked = -1  # a recorded query of the host that this policy does not make
    for entry in read(store):
        event = entry.event
        if isinstance(event, (ev.SurfaceReplaced, ev.Ignored)) or _of_a_policy(event):
            continue
        if isinstance(event, _OF_A_QUERY) and event.query == unasked:
            continue
        if isinstance(event, ev.InputClaimed):  # enters a log together with its words
            claimed.append(event)
            continue
        if isinstance(event, ev.StepStarted):
            assert log.state.header is not None, "a step has a header"
            if (question := context.question(log.state.header)) is not None:
                yield _asked(log, question)
            request = context.request(log.state.header)
            yield Sent(request, event.request, replies.get(entry.seq))
            event = ev.StepStarted(request=digest(request), messages=len(request.messages))
        elif isinstance(event, ev.QueryAsked):
            if event.about is not None:
                assert log.state.header is not None, "a query of the host follows steps"
                if (question := context.question(log.state.header)) is None:
                    unasked = event.query
                    continue
                event = event.model_copy(update={"header": question.header, "prompt": question.prompt})
            request = query(event.header, event.prompt)
            yield Sent(request, event.request, replies.get(entry.seq), aside=True)
            event = event.model_copy(update={"request": digest(request)})
        log.append(*claimed, event, at=entry.at)
        claimed.clear()
        if isinstance(event, ev.DispatchStarted) and event.target == "context.new":
            renewals.add((event.cell, event.call))
        elif isinstance(event, ev.DispatchEnded) and (event.cell, event.call) in renewals and event.error is None:
            context.renew()
        elif isinstance(event, ev.StepEnded) and event.outcome == "overflow":
            context.recover()


def _asked(log: Log, question: Question) -> Sent:
    """Log a question that was not recorded, as one that nobody answered."""
    request, number = query(question.header, question.prompt), len(log)
    asked = ev.QueryAsked(
        query=number, header=question.header, prompt=question.prompt, request=digest(request), about=RULES
    )
    error = QueryError(code="not_recorded", message="the recording has no answer")
    log.append(asked, ev.QueryEnded(query=number, model=question.header.model, error=error))
    return Sent(request, None, None, aside=True)


def _of_a_policy(event: object) -> bool:
    return isinstance(event, ev.NoticeGiven) and event.about in (REMINDER, KEPT, CONSTITUTION, SUSPENDED)


def _replies(store: Store) -> dict[int, Reply]:
    """Return the whole replies by the seq of the step or the query that asked for them."""
    found, step = {}, -1
    for entry in read(store, types=("step_started", "model_replied", "query_ended")):
        event = entry.event
        if isinstance(event, ev.StepStarted):
            step = entry.seq
        elif isinstance(event, ev.QueryEnded):
            if event.reply is not None:
                found[event.query] = event.reply
        elif not event.interrupted:
            found[step] = Reply(parts=event.parts, stop=event.stop, model=event.model, usage=event.usage)
    return found
