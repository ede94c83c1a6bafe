from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from strategies import created, walks

from prime import events as ev
from prime.errors import TraceError
from prime.inbox import Inbox
from prime.messages import TextPart

HELLO = (TextPart(text="hello"),)


def queued(input_id: str, kind: ev.InputKind = "ask", **fields: Any) -> ev.InputQueued:
    return ev.InputQueued(input_id=input_id, kind=kind, parts=HELLO, **fields)


def noticed(input_id: str, about: str = "jobs.1", text: str = "hello") -> ev.NoticeGiven:
    return ev.NoticeGiven(about=about, text=text, input_id=input_id)


def claimed(input_id: str) -> ev.InputClaimed:
    return ev.InputClaimed(input_id=input_id)


def withdrawn(input_id: str) -> ev.InputWithdrawn:
    return ev.InputWithdrawn(input_id=input_id)


def said(input_id: str, kind: ev.InputKind = "ask", text: str = "hello") -> ev.UserSaid:
    return ev.UserSaid(input_id=input_id, kind=kind, parts=(TextPart(text=text),))


def after(*events: Any) -> Inbox:
    inbox = Inbox()
    for event in events:
        inbox = inbox.after(event)
    return inbox


def ids(items: tuple[ev.InputQueued, ...]) -> list[str]:
    return [item.input_id for item in items]


def test_inputs_wait_in_the_order_they_came_and_leave_in_any() -> None:
    inbox = after(queued("a"), queued("b"), queued("c"), claimed("b"), said("b"), withdrawn("a"))
    assert ids(inbox.pending) == ["c"]
    assert inbox.claimed is None


def test_what_is_due_at_each_boundary() -> None:
    inbox = after(queued("a1"), queued("s1", "steer"), queued("a2"), queued("n1", "inform"), queued("s2", "steer"))
    assert ids(inbox.due(opening=True)) == ["a1", "s1", "n1", "s2"]
    assert ids(inbox.due(opening=False)) == ["s1", "n1", "s2"]
    assert Inbox().due(opening=True) == ()


@pytest.mark.parametrize(("kind", "wakes"), [("ask", True), ("steer", True), ("inform", False)])
def test_who_wakes_the_agent(kind: ev.InputKind, wakes: bool) -> None:
    assert after(queued("a", kind)).wakes is wakes
    assert after(queued("a", kind), claimed("a"), said("a", kind)).wakes is False


SPOKEN = (queued("a"), ev.TurnStarted(), claimed("a"), said("a"))


def woken(input_id: str) -> tuple[Any, ...]:
    return queued(input_id, "notice", source="jobs.1"), ev.TurnStarted(), claimed(input_id), noticed(input_id)


def test_a_notice_wakes_three_times_in_a_row_and_again_after_words_of_a_person() -> None:
    waiting = queued("z", "notice", source="jobs.9")
    assert after(waiting).wakes is False  # nobody has said anything yet
    assert after(*SPOKEN, waiting).wakes is True
    assert after(*SPOKEN, *woken("n1"), *woken("n2"), waiting).wakes is True
    spent = (*SPOKEN, *woken("n1"), *woken("n2"), *woken("n3"), waiting)
    assert after(*spent).wakes is False
    inbox = after(*spent, queued("b", "steer"))
    assert inbox.wakes is True
    assert ids(inbox.due(opening=True)) == ["z", "b"]
    again = (ev.TurnStarted(), claimed("z"), noticed("z", "jobs.9"), claimed("b"), said("b", "steer"))
    assert after(*spent, queued("b", "steer"), *again, queued("y", "notice")).wakes is True


def test_a_notice_that_may_not_wake_waits_and_none_keeps_a_turn_from_ending() -> None:
    inbox = after(*SPOKEN, queued("n", "notice", source="jobs.1", wake=False))
    assert (inbox.wakes, inbox.steers, ids(inbox.due(opening=False))) == (False, False, ["n"])
    assert after(*SPOKEN, queued("n", "notice")).steers is False


REFUSED = {
    "queued twice": ((queued("a"),), queued("a"), "queued already"),
    "claimed and not there": ((queued("a"),), claimed("b"), "not pending"),
    "claimed twice": ((queued("a"), claimed("a"), said("a")), claimed("a"), "not pending"),
    "withdrawn and not there": ((), withdrawn("a"), "not pending"),
    "claimed after it was withdrawn": ((queued("a"), withdrawn("a")), claimed("a"), "not pending"),
    "words that nobody claimed": ((queued("a"),), said("a"), "unchanged"),
    "words of another input": ((queued("a"), claimed("a")), said("b"), "unchanged"),
    "words of another kind": ((queued("a"), claimed("a")), said("a", "steer"), "unchanged"),
    "words that were changed": ((queued("a"), claimed("a")), said("a", text="bye"), "unchanged"),
    "a notice that nobody claimed": ((queued("a", "notice"),), noticed("a", "notice"), "unchanged"),
    "a notice as words of a person": ((queued("a", "notice"), claimed("a")), said("a", "notice"), "unchanged"),
    "words of a person as a notice": ((queued("a"), claimed("a")), noticed("a", "ask"), "unchanged"),
    "a notice of another source": ((queued("a", "notice", source="x"), claimed("a")), noticed("a", "y"), "unchanged"),
    "the host's own words before those due": (
        (queued("a"), claimed("a")),
        ev.NoticeGiven(about="usage", text="x"),
        "followed by its words",
    ),
    "a second claim before the words": (
        (queued("a"), queued("b"), claimed("a")),
        claimed("b"),
        "followed by its words",
    ),
    "anything else before the words": ((queued("a"), claimed("a")), ev.TurnStarted(), "followed by its words"),
}


@pytest.mark.parametrize(("before", "event", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_is_refused(before: tuple[Any, ...], event: Any, reason: str) -> None:
    inbox = after(*before)
    with pytest.raises(TraceError, match=reason):
        inbox.after(event)


def test_an_input_may_come_between_a_claim_and_its_words() -> None:
    inbox = after(queued("a"), claimed("a"), queued("b"), said("a"))
    assert ids(inbox.pending) == ["b"]


def test_a_fork_inherits_nothing_that_waits() -> None:
    assert after(created(), queued("a"), ev.SessionForked(session="s2", parent="s1", version="0")) == Inbox()


@given(walks())
def test_every_input_waits_until_it_leaves_once(walk: Any) -> None:
    inbox, waiting = Inbox(), list[str]()
    for event in (event for commit in walk for event in commit):
        inbox = inbox.after(event)
        if isinstance(event, ev.InputQueued):
            waiting.append(event.input_id)
        elif isinstance(event, (ev.InputClaimed, ev.InputWithdrawn)):
            waiting.remove(event.input_id)
        assert ids(inbox.pending) == waiting
