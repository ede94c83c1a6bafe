"""The limits of a turn, from its entries alone."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from strategies import cell_ended

from prime import caps
from prime import events as ev
from prime.caps import Correct, Limits, Stop

UNLIMITED = Limits()


def entries(*events: Any, at: int = 0) -> list[ev.Entry]:
    return [ev.Entry("s", seq, at, 1, None, event) for seq, event in enumerate(events)]


def cell(number: int, code: str, status: str = "error") -> list[Any]:
    name = f"c{number}"
    started = ev.CellStarted(cell=name, call_id=f"call-{number}", code=code)
    return [started, cell_ended(name, f"call-{number}", status=status)]


def failing(*codes: str) -> list[Any]:
    return [event for number, code in enumerate(codes) for event in cell(number, code)]


def decide(*events: Any, limits: Limits = UNLIMITED, spent: Decimal | None = None, now_ms: int = 0) -> Any:
    return caps.check(entries(ev.TurnStarted(), *events), limits, spent, now_ms)


def corrected() -> ev.NoticeGiven:
    return ev.NoticeGiven(about=caps.REPEATED, text="")


def reason(verdict: Any) -> str:
    assert isinstance(verdict, Stop)
    return verdict.reason


def test_a_turn_without_trouble_goes_on() -> None:
    assert decide() is None
    assert decide(*failing("a", "b", "a", "b", "a")) is None


def test_steps_are_counted() -> None:
    step = ev.StepStarted(request="", messages=1)
    assert decide(step, limits=Limits(max_steps=2)) is None
    assert reason(decide(step, step, limits=Limits(max_steps=2))) == "max_steps"


def test_time_counts_from_the_start_of_the_turn() -> None:
    assert decide(limits=Limits(max_seconds=1.0), now_ms=999) is None
    assert reason(decide(limits=Limits(max_seconds=1.0), now_ms=1000)) == "max_seconds"


def test_money_is_only_a_limit_when_the_price_is_known() -> None:
    assert decide(limits=Limits(max_cost=0.5), spent=None) is None
    assert decide(limits=Limits(max_cost=0.5), spent=Decimal("0.4999")) is None
    assert reason(decide(limits=Limits(max_cost=0.5), spent=Decimal("0.5"))) == "max_cost"


def test_the_same_failing_cell_is_corrected_at_three_once_and_stopped_at_five() -> None:
    assert decide(*failing("a", "a")) is None
    assert isinstance(decide(*failing("a", "a", "a")), Correct)
    assert decide(*failing("a", "a", "a"), corrected()) is None
    assert decide(*failing("a", "a", "a"), corrected(), *cell(3, "a")) is None
    stop = decide(*failing("a", "a", "a"), corrected(), *cell(3, "a"), *cell(4, "a"))
    assert reason(stop) == "repeated_failure"


def test_several_cells_of_one_reply_cannot_jump_over_the_correction() -> None:
    assert isinstance(decide(*failing("a", "a", "a", "a")), Correct)


def test_a_correction_of_another_cell_does_not_count() -> None:
    other = [event for number in (3, 4, 5) for event in cell(number, "b")]
    assert isinstance(decide(*failing("a", "a", "a"), corrected(), *other), Correct)


def test_a_success_starts_the_count_anew() -> None:
    between = cell(9, "a", status="ok")
    assert decide(*failing("a", "a"), *between, *cell(10, "a"), *cell(11, "a")) is None


def test_refused_and_timed_out_cells_count_as_failures() -> None:
    events = [
        event for number, status in enumerate(("refused", "timeout", "error")) for event in cell(number, "a", status)
    ]
    assert isinstance(decide(*events), Correct)


def test_an_empty_reply_is_nudged_twice() -> None:
    nudge = ev.NoticeGiven(about=caps.NUDGE.about, text=caps.NUDGE.text)
    assert isinstance(caps.empty(entries()), Correct)
    assert isinstance(caps.empty(entries(nudge)), Correct)
    assert reason(caps.empty(entries(nudge, nudge))) == "empty_replies"
