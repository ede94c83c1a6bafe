"""A family as a fold of the log: who is at work, what was told, and what may not be told again."""

from __future__ import annotations

from typing import Any

import pytest
from strategies import created

from prime import events as ev
from prime.agent_events import Settlement
from prime.errors import TraceError
from prime.kin import Kin

QUEUED = ev.InputQueued(input_id="i", kind="ask", parts=())
SPAWNED = ev.ChildSpawned(agent_id="s1.1", name="a", prompt="go")
WOKEN = ev.ChildWoken(agent_id="s1.1")


def settlement(activation: int = 1) -> Settlement:
    return Settlement(activation=activation, outcome="completed", reason="completed", detail="", text="")


def told(activation: int = 1) -> ev.ChildSettled:
    return ev.ChildSettled(agent_id="s1.1", settlement=settlement(activation))


def after(*events: Any) -> Kin:
    kin = Kin()
    for event in events:
        kin = kin.after(event)
    return kin


def test_a_child_at_work_is_named_until_it_settles_and_again_when_it_is_woken() -> None:
    line = "At work: child a (s1.1); `await agents.collect(['s1.1'])` waits for it."
    assert [*after(created(), SPAWNED).lines()] == [line]
    assert [*after(created(), SPAWNED, told()).lines()] == []
    assert [*after(created(), SPAWNED, told(), WOKEN).lines()] == [line]
    assert [*after(created(), SPAWNED, told(), WOKEN, told(2)).lines()] == []


def test_a_settlement_is_owed_from_the_first_words_on() -> None:
    settled = ev.ActivationSettled(settlement=settlement())
    assert [after(*events).owes for events in ((), (QUEUED,), (QUEUED, settled), (QUEUED, settled, QUEUED))] == [
        False,
        True,
        False,
        True,
    ]


def test_a_fork_of_ones_own_has_no_family_and_that_of_a_child_its_parent() -> None:
    fork = {"session": "s2", "parent": "s1", "version": "0"}
    assert after(created(), SPAWNED, ev.SessionForked(**fork)) == Kin()
    assert after(created(), SPAWNED, ev.SessionForked(**fork, child=True)) == Kin("s1")


@pytest.mark.parametrize(
    ("events", "last"),
    [
        ((SPAWNED,), SPAWNED),
        ((), told()),
        ((), WOKEN),
        ((SPAWNED, told()), told()),
        ((SPAWNED, told(2)), told(1)),
        ((ev.ActivationSettled(settlement=settlement(2)),), ev.ActivationSettled(settlement=settlement(2))),
    ],
)
def test_nothing_is_admitted_or_told_twice(events: tuple[Any, ...], last: Any) -> None:
    with pytest.raises(TraceError):
        after(created(), *events, last)
