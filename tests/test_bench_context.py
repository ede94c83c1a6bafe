"""The context benchmark itself: what makes a run void, its bill, and that it gives the same figures twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.context import play
from bench.oracle import Fact, Scenario, Turn, Void, check_leaks
from bench.scenarios import s10, s13
from prime.messages import Message, TextPart

pytestmark = pytest.mark.anyio


def said(text: str) -> Message:
    return Message(role="user", parts=(TextPart(text=text),))


async def test_a_small_scenario_gives_the_same_figures_twice() -> None:
    """Nothing in a row comes from the clock, the folder or the session's id."""
    for arm in ("slice", "window"):
        first, again = [await play(replace(s10(6), window=12_000), arm) for _ in range(2)]
        assert first == again
        assert (first.passed, first.facts, first.facts_lost) == (True, 4, 0)
        assert first.recall_calls > 0


async def test_a_transcript_that_was_not_compacted_proves_nothing() -> None:
    assert (await play(replace(s10(2), window=100_000), "compaction")).void == "no compaction took place"
    row = await play(replace(s10(6), window=12_000, keeps=1), "compaction")
    assert (row.void, row.recall_calls) == ("", 0)
    assert row.facts_lost > 0


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("reply", "in a reply"),
        ("again", "2 times"),
        ("end", "at an end"),
        ("twice", "asked twice"),
        ("lost", "nowhere"),
    ],
)
def test_a_scenario_that_gives_its_answers_away_is_void(place: str, why: str) -> None:
    whole = s13() if place == "again" else s10(2)
    check_leaks(whole)
    fact = next(turn.ask[0] for turn in whole.turns if turn.ask)
    turns, files = list(whole.turns), dict(whole.files)
    match place:
        case "reply":
            turns[0] = replace(turns[0], reply=fact.token)
        case "again":
            turns[1] = replace(turns[1], prompt=fact.token)
        case "end":
            files["late.txt"] = "\n" * 40 + fact.token
        case "twice":
            turns.append(Turn("again", ask=(fact,)))
        case "lost":
            files = {path: text.replace(fact.token, "") for path, text in files.items()}
    with pytest.raises(Void, match=why):
        check_leaks(replace(whole, turns=tuple(turns), files=files))


def test_a_question_without_an_answer_may_stand_anywhere() -> None:
    check_leaks(Scenario("s", (Turn("what?", ask=(Fact("x", "", "x", "x", "none"),)),)))
