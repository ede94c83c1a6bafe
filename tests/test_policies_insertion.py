"""Which results are folded, when, and what stays of the words around them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from logs import fresh_store
from strategies import cell_ended
from turns import AFTER, Cell, Step, Turns, begun, session

from prime import events as ev
from prime.messages import CallPart, text_of
from prime.policies.base import Options
from prime.policies.fold import fold
from prime.verify import verify

FOLD = Options(policy="fold")
#: A log of which most is dropped.
LOG = "".join(f"2026-01-01 12:00:{n % 60:02} INFO step {n} went well\n" for n in range(150))
DATA = "".join(f"a sentence that is number {n} of many and says little\n" for n in range(300))


def folded(turns: Turns) -> list[ev.SurfaceReplaced]:
    return [entry.event for entry in turns.replaced("fold")]


def results(turns: Turns) -> list[ev.Entry]:
    return list(turns.log.entries(types=("cell_ended",)))


def test_a_long_result_is_folded_before_it_is_sent_and_keeps_the_words_around_it() -> None:
    with session(FOLD) as turns:
        turns.turn("go", Step("", [Cell(LOG)]))
        (made,) = folded(turns)
        (result,) = results(turns)
        text = text_of(made.message.parts)
        assert made.sources == (result.seq,)
        assert made.scope == "cell log"
        assert f"`await history.expand(seq={result.seq}, format=1)`" in text.splitlines()[0]
        assert text.endswith(f"\n{AFTER}")
        assert len(text) < len(LOG) / 2
        # the first request with a result has the view, and so have all later ones
        assert [text in turns_text for turns_text in map(str_of, turns.requests)] == [False, True]


def str_of(request: Any) -> str:
    return "\n".join(text_of(message.parts) for message in request.messages)


def test_a_view_is_made_of_the_whole_output_not_of_what_was_shown() -> None:
    failure = "2026-01-01 12:00:00 ERROR the disk is full\n"
    with session(FOLD) as turns:
        turns.turn("go", Step("", [Cell(LOG * 3 + failure + LOG * 3)]))
        assert failure not in text_of(results(turns)[0].event.shown)
        (made,) = folded(turns)
        assert failure in text_of(made.message.parts)


def test_each_of_several_results_names_its_own_call() -> None:
    with session(FOLD) as turns:
        turns.turn("go", Step("", [Cell(LOG), Cell("short"), Cell(DATA)]))
        first, _, third = results(turns)
        assert [made.sources for made in folded(turns)] == [(first.seq,), (third.seq,)]
        for made, result in zip(folded(turns), (first, third), strict=True):
            assert f"seq={result.seq}," in text_of(made.message.parts)
            assert made.message.call_id == result.event.call_id


@pytest.mark.parametrize(
    "cell",
    [
        Cell(LOG, status="error"),
        Cell(LOG, status="timeout"),
        Cell(LOG, images=1),
        Cell("short"),
        Cell("import os\n\n\ndef f(x):\n    return x + 1\n" * 200),
        Cell(LOG, target="history.expand", arguments={"seq": 3}),
    ],
    ids=["error", "timeout", "picture", "short", "code", "recall"],
)
def test_some_results_are_never_folded(cell: Cell) -> None:
    with session(FOLD) as turns:
        turns.turn("go", Step("", [cell]))
        assert folded(turns) == []


RECALL = ("history.expand", {"seq": 3, "format": 1})


@pytest.mark.parametrize("form", [str, repr, json.dumps, lambda text: f"found:\n{text}"])
def test_what_history_gave_is_not_folded_again_when_a_program_passes_it_on(form: Any) -> None:
    given = LOG.replace("went well", "'went' \"well\" é")
    with session(FOLD) as turns:
        turns.turn("go", Step("", [Cell(form(given), calls=[(*RECALL, {"seq": 3, "text": given})])]))
        assert folded(turns) == []


@pytest.mark.parametrize(
    "value", [None, {"text": DATA}, {"text": LOG[:1_000]}], ids=["failed", "discarded", "a small part"]
)
def test_a_recall_exempts_nothing_but_what_it_gave(value: Any) -> None:
    with session(FOLD) as turns:
        turns.turn("go", Step("", [Cell(LOG, calls=[(*RECALL, value)])]))
        assert len(folded(turns)) == 1


def test_what_was_sent_is_not_folded_later_also_not_by_a_failed_attempt() -> None:
    """A session under ``transcript`` sends a result in vain; another process goes on under a stricter policy."""
    with fresh_store() as store:
        turns = begun(store, Options(policy="transcript"))
        turns.begin("go")
        turns.step(Step("", [Cell(LOG)]))
        turns.step(Step(outcome="failed"))
        turns.end()
        again = begun(store, Options(policy="auto"))
        again.turn("go on", Step("", [Cell(LOG)]))
        _, second = results(again)
        assert [made.sources for made in folded(again)] == [(second.seq,)]
        verify(store)


def test_a_result_that_no_request_has_held_is_folded_in_the_next_turn() -> None:
    with session(FOLD) as turns:
        turns.begin("go")
        turns.step(Step("", [Cell(LOG)]))
        turns.end()  # cancelled before the next request
        assert folded(turns) == []
        turns.begin("again")
        turns.send()
        assert len(folded(turns)) == 1


@pytest.mark.parametrize("named", ["seq", "place"])
def test_a_scope_that_is_mostly_asked_back_is_left_alone_and_others_are_not(named: str) -> None:
    with session(FOLD) as turns:
        turns.turn("go", Step("", [Cell(LOG), Cell(LOG)]))
        seqs = [result.seq for result in results(turns)]
        calls = [
            (
                "history.expand",
                {"seq": seq, "format": 1} if named == "seq" else {"turn": 1, "step": 1, "call": place},
                {"seq": seq, "text": "x"},
            )
            for place, seq in enumerate(seqs, 1)
        ]
        turns.turn("back", Step("", [replace(Cell("ok"), calls=calls)]))
        turns.turn("more", Step("", [Cell(LOG), Cell(DATA)]))
        assert [made.scope for made in folded(turns)] == ["cell log", "cell log", "cell data"]


def test_a_call_that_gave_nothing_back_or_has_not_ended_does_not_count() -> None:
    with session(FOLD) as turns:
        turns.turn("go", Step("", [Cell(LOG), Cell(LOG)]))
        one, other = [result.seq for result in results(turns)]
        asked = [("history.expand", {"seq": one, "format": 1}, {"seq": one, "text": "x"})]
        failed = [("history.expand", {"seq": other, "format": 0}, None)]
        turns.turn("back", Step("", [replace(Cell("ok"), calls=asked + failed)]))
        turns.turn("more", Step("", [Cell(LOG)]))
        assert len(folded(turns)) == 3


def test_what_was_asked_back_counts_however_much_happened_before_it_came() -> None:
    with session(FOLD) as turns:
        turns.turn("go", Step("", [Cell(LOG), Cell(LOG)]))
        seqs = [result.seq for result in results(turns)]
        turns.begin("back")
        turns.send()
        call = CallPart(call_id="call-0", name="repl", arguments="{}")
        turns.log.append(ev.ModelReplied(parts=(call,), stop="calls", model="m", usage=None))
        turns.log.append(ev.CellStarted(cell="late", call_id="call-0", code="x"))
        for number, seq in enumerate(seqs, 1):
            arguments = {"seq": seq, "format": 1}
            turns.log.append(ev.DispatchStarted(cell="late", call=number, target="history.expand", arguments=arguments))
        for number in range(100):
            turns.log.append(ev.CellOutput(cell="late", stream="stdout", text=str(number)))
        for number, seq in enumerate(seqs, 1):
            turns.log.append(ev.DispatchEnded(cell="late", call=number, value={"seq": seq}, error=None, duration_s=0.0))
        turns.log.append(cell_ended("late", "call-0"), ev.StepEnded(outcome="done"))
        turns.step(Step("done"))
        turns.end()
        turns.turn("more", Step("", [Cell(LOG)]))
        assert len(folded(turns)) == 2


def test_a_view_longer_than_what_is_shown_is_not_taken() -> None:
    """The share of the original that a view may have is more than what is shown of a very long one."""
    found = "".join(f"src/file{n // 30}.py:{n}: {'x' * 400}\n" for n in range(300))
    view = fold(found, "call")
    with session(FOLD) as turns:
        turns.turn("go", Step("", [Cell(found)]))
        assert view is not None
        assert len(view.text) > len(text_of(results(turns)[0].event.shown))
        assert folded(turns) == []


def test_a_folded_result_is_sealed_under_its_original() -> None:
    with session(Options(policy="slice")) as turns:
        turns.turn("go", Step("", [Cell(LOG)]))
        turns.begin("next")
        turns.send()
        (entry,) = turns.replaced("tape")
        (result,) = results(turns)
        text = text_of(entry.event.message.parts)
        assert f"seq {result.seq} · repl · {len(LOG)} chars · history.expand(seq={result.seq}, format=1)" in text
        assert set(entry.event.sources) >= {result.seq, turns.replaced("fold")[0].seq}


def test_a_result_that_is_folded_and_sealed_at_once_is_named_by_its_original() -> None:
    with session(Options(policy="slice")) as turns:
        turns.begin("go")
        turns.step(Step("", [Cell(LOG), Cell(LOG), Cell(LOG)]))
        turns.end()  # cancelled before a request held the results
        turns.begin("next")
        turns.send()
        assert [entry.event.policy for entry in turns.replaced()] == ["fold", "fold", "fold", "tape"]
        text = text_of(turns.replaced("tape")[0].event.message.parts)
        for result in results(turns):
            assert f"seq {result.seq} · repl · {len(LOG)} chars" in text
