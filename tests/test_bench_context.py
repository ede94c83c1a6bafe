"""The context benchmark itself: what makes a run void, what its checks see, its bill, and that the committed result is
what it gives."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from bench.context import SCENARIOS, arms_of, play
from bench.figures import RESULTS
from bench.oracle import UNKNOWN, Oracle
from bench.scenarios import s10, s13, w1, z0
from bench.scenarios_chain import FEE, OPENING, l1, l2
from bench.scenarios_pasted import n1
from bench.script import Fact, Scenario, Turn, Void, check_leaks
from bench.targets import TARGETS, based, judged
from prime.errors import ProviderError
from prime.messages import Delta, Header, Message, Request, TextPart, text_of

pytestmark = pytest.mark.anyio

RESULT = json.loads((RESULTS / "context.json").read_text())
ROWS = {(row["scenario"], row["arm"]): row for row in RESULT["rows"]}


def request(*said: str) -> Request:
    messages = tuple(Message(role="user", parts=(TextPart(text=text),)) for text in said)
    return Request(header=Header(model="m", system="s", tools=()), messages=messages)


def unheard(delta: Delta) -> None:
    """Hear nothing."""


async def answered(scenario: Scenario, *said: str) -> tuple[Oracle, str]:
    oracle = Oracle(scenario, recall=False, compact=False)
    oracle.begin(scenario.turns[-1])
    return oracle, text_of((await oracle.reply(request(*said), unheard)).parts)


async def test_a_small_scenario_gives_the_same_figures_twice() -> None:
    """Nothing in a row comes from the clock, the folder or the session's id."""
    for arm in ("slice", "window"):
        first, again = [await play(replace(s10(6), window=12_000), arm) for _ in range(2)]
        assert first == again
        assert (first.passed, first.facts, first.facts_lost) == (True, 7, 0)
        assert first.facts_kept + first.facts_recovered == 7
        assert first.recall_calls > 0
        assert list(first.divergence["by"]) == [{"slice": "tape", "window": "window"}[arm]]
        assert len(first.turn_peaks) == len(first.turn_prices) == 18
        assert max(first.turn_peaks) == first.peak_tokens
        assert first.turn_prices[-1] == pytest.approx(first.price["flash"], abs=1e-6)


async def test_a_cell_that_fails_fails_the_scenario() -> None:
    """Also when it leaves nothing behind: a tool that is broken makes the figures of every other scenario worthless."""
    whole = z0()
    assert (await play(whole, "slice")).passed
    files = {path: text for path, text in whole.files.items() if path != "probe/file2.txt"}
    row = await play(replace(whole, files=files), "slice")
    assert not row.passed
    assert "turn 1: a cell ended as error" in row.detail


async def test_a_transcript_that_was_not_compacted_proves_nothing() -> None:
    assert (await play(replace(s10(2), window=100_000), "compaction")).void == "no compaction took place"
    row = await play(replace(s10(6), window=12_000, keeps=1), "compaction")
    assert (row.void, row.recall_calls) == ("", 0)
    assert row.facts_lost > 0
    assert row.divergence["by"] == {"compaction": row.compactions}


async def test_what_does_not_fit_the_window_is_refused() -> None:
    """A transcript ends there; an agent that makes room goes on, and pays only for what was answered."""
    small = replace(s10(6), window=9_000)
    bare = await play(small, "transcript")
    assert bare.void.startswith("refused at turn ")
    assert bare.peak_tokens <= 9_000
    assert (bare.passed, bare.facts_lost) == (False, 7)
    row = await play(small, "fold")
    assert (row.void, row.facts_lost) == ("", 0)
    assert row.refusals > 0
    assert row.peak_tokens <= 9_000


async def test_a_window_that_was_not_switched_proves_nothing() -> None:
    row = await play(replace(w1(6), window=100_000), "auto")
    assert row.void == "the window was not switched"
    row = await play(replace(w1(12), window=8_000), "auto")
    assert (row.void, row.facts_lost) == ("", 0)
    assert row.switches > 0


async def test_a_model_believes_an_older_value_when_it_sees_no_other() -> None:
    fact = Fact("rule", "new-1", "rule", "rule", "user", ("old-1",))
    scenario = Scenario("s", (Turn("what?", ask=(fact,)),))
    for said, answer, how in (
        (("it is old-1", "no, it is new-1"), "new-1", "kept"),
        (("it is old-1",), "old-1", "lost"),
        (("nothing",), UNKNOWN, "lost"),
    ):
        oracle, text = await answered(scenario, *said)
        assert text.endswith(f"rule: {answer}")
        assert oracle.asked == {how: 1}


async def test_a_model_refuses_a_request_that_is_too_long() -> None:
    scenario = Scenario("s", (Turn("what?"),), window=1_000)
    assert (await answered(scenario, "word " * 500))[1] == "done"
    with pytest.raises(ProviderError, match=r"more than the window of 1,000") as refused:
        await answered(scenario, "word " * 5_000)
    assert refused.value.code == "overflow"


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("reply", "in a reply"),
        ("cell", "in 1 cells"),
        ("path", "in the name of a file"),
        ("again", "2 times"),
        ("end", "at an end"),
        ("twice", "asked twice"),
        ("lost", "nowhere"),
        ("decoy", "is no other value"),
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
        case "cell":
            turns[0] = replace(turns[0], steps=(f"print({fact.token!r})",))
        case "path":
            files[f"{fact.token}.txt"] = ""
        case "again":
            turns[1] = replace(turns[1], prompt=fact.token)
        case "end":
            files["late.txt"] = "\n" * 40 + fact.token
        case "twice":
            turns.append(Turn("again", ask=(fact,)))
        case "lost":
            files = {path: text.replace(fact.token, "") for path, text in files.items()}
        case "decoy":
            turns.append(Turn("and?", ask=(Fact("x", "tok-1", "x", "x", "user", ("tok",)),)))
            turns[0] = replace(turns[0], prompt="tok-1")
    with pytest.raises(Void, match=why):
        check_leaks(replace(whole, turns=tuple(turns), files=files))


def test_a_question_without_an_answer_may_stand_anywhere() -> None:
    check_leaks(Scenario("s", (Turn("what?", ask=(Fact("x", "", "x", "x", "none"),)),)))


def test_every_scenario_is_valid() -> None:
    for build in SCENARIOS.values():
        check_leaks(build())


def checked(scenario: Scenario, path: str, text: str) -> str:
    return scenario.check(lambda asked: text if asked == path else "")


def test_an_index_is_checked_item_by_item() -> None:
    scenario, turn = l1(), l1().turns[0]
    needs = [step for step in turn.steps if not isinstance(step, str) and "index.tsv" in step.code]
    rows = [[fact.token for fact in need.facts] for need in needs]

    def index(rows: list[list[str]]) -> str:
        return "".join("\t".join(row) + "\n" for row in rows)

    assert len(rows) == 45
    assert checked(scenario, "index.tsv", index(rows)) == ""
    rows[20] = [*rows[20][:-1], needs[20].facts[-1].decoys[0]]  # the ending of the example that is wrong
    rows[44] = [next(iter(needs[44].facts[4].decoys), "draft"), *rows[44][1:]]
    said = checked(scenario, "index.tsv", index(rows))
    assert said == "index.tsv: early 15/15, mid 14/15, late 14/15; wrong: rule 3, owner"
    assert "44 lines instead of 45" in checked(scenario, "index.tsv", index(rows[1:]))


def test_a_slip_in_a_journal_costs_one_item() -> None:
    scenario = l2()
    needs = [step for step in scenario.turns[0].steps if not isinstance(step, str)]
    balance, on_hold, held_next, lines = OPENING, 0, 0, list[str]()

    def booked(slip: int = -1) -> str:
        nonlocal balance, on_hold, held_next
        balance, on_hold, held_next = OPENING, 0, 0
        lines.clear()
        for number, need in enumerate(needs):
            entry, mark = (fact.token for fact in need.facts)
            _, code, kind, written = entry.split()
            amount, on_hold, held_next = int(written), on_hold + held_next, 0
            if kind == "credit":
                balance += amount
            elif kind == "debit":
                balance -= amount + FEE * (balance - amount - on_hold < 0)
            else:
                held_next = amount if kind == "hold" else -amount
            balance += 7 * (number == slip)
            lines.append(f"{number + 1} {code} {kind} {balance} {on_hold} {held_next} {mark}")
        return "\n".join(reversed(lines))

    assert checked(scenario, "journal.txt", booked()) == ""
    assert checked(scenario, "journal.txt", booked(slip=20)) == "journal.txt: early 15/15, mid 14/15, late 15/15"
    memo = scenario.files["records/00.txt"].split("\n")[1].split()[1]
    assert "confidential" in checked(scenario, "journal.txt", f"{booked()} {memo}")
    assert "early 0/15" in checked(scenario, "journal.txt", "")


async def test_what_is_restored_has_the_length_of_what_was_said() -> None:
    short = replace(n1(), window=20_000, keeps=2)
    row = await play(short, "compaction")
    assert row.facts_lost == 10
    assert "times as long" in row.detail


def test_shares_are_of_what_could_have_happened() -> None:
    row: dict[str, Any] = {
        "scenario": "x", "price": {"flash": 1.0}, "peak_tokens": 100, "said_tokens": 1_000_000, "void": ""
    }  # fmt: skip
    rows = [{**row, "arm": "transcript"}, {**row, "arm": "compaction", "peak_tokens": 50}, {**row, "arm": "auto"}]
    assert based(rows)[2]["base"] == "transcript"
    rows[0]["void"] = "refused at turn 3"
    assert [(each["base"], each["shares"]) for each in based(rows)] == [
        ("compaction", {}),
        ("compaction", {"price": 1.0, "peak": 1.0, "floor": 0.22}),
        ("compaction", {"price": 1.0, "peak": 2.0, "floor": 0.22}),
    ]
    rows[1]["void"] = "no compaction took place"
    assert [(each["base"], each["shares"]) for each in based(rows)] == [("", {})] * 3


def test_the_targets_are_met_by_the_committed_result() -> None:
    """All but one: pasting two million tokens costs more than that share before anything is done with them."""
    verdicts = judged(RESULT["rows"])
    assert verdicts == RESULT["targets"]
    assert len(verdicts) == len(TARGETS)
    missed = [verdict for verdict in verdicts if not verdict["met"]]
    assert [(each["scenario"], each["arm"], each["figure"]) for each in missed] == [("x1", "slice-v3", "price")]
    assert missed[0]["floor"] > missed[0]["most"]
    assert missed[0]["value"] <= 1.12 * missed[0]["floor"]


def test_the_committed_result_is_whole_and_every_break_has_its_reason() -> None:
    assert {(name, arm) for name, build in SCENARIOS.items() for arm in arms_of(build())} == set(ROWS)
    for row in ROWS.values():
        assert "" not in row["divergence"]["by"]
        assert sum(row["divergence"]["by"].values()) == row["divergence"]["requests"]
        assert row["facts"] == row["facts_kept"] + row["facts_recovered"] + row["facts_lost"]
        assert row["facts"] > 0 or sum(row["needs"].values()) > 0 or row["arm"] == "program"
        assert row["miss_tokens"] + row["hit_tokens"] == row["prompt_tokens"]


@pytest.mark.parametrize(
    ("name", "arm"), [("short", "auto"), ("s13", "auto"), ("s13", "compaction"), ("n2", "window"), ("n3", "slice-v3")]
)
async def test_the_committed_result_is_what_the_benchmark_gives(name: str, arm: str) -> None:
    """Digit for digit: after a change that moves a figure, `python -m bench.context` has to be run again."""
    again = json.loads(json.dumps(asdict(await play(SCENARIOS[name](), arm))))
    assert {key: ROWS[name, arm][key] for key in again} == again
