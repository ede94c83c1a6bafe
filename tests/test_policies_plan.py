"""Every policy over random sessions: what stays of a request in the next one, and what the log says of the rest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import fresh_store
from turns import Cell, Step, Turns, begun, code, session

from prime import events as ev
from prime.messages import text_of
from prime.originals import StoredOriginals
from prime.policies.base import Options, TapeOptions
from prime.policies.plan import plan
from prime.verify import verify

POLICIES = ("transcript", "fold", "slice", "window", "auto", "stream")

texts = st.sampled_from(["", "ok", "I look.\n", "word " * 300, "漢字 " * 200])
outputs = st.sampled_from(["1", "a few words\n", "line of a log 12:00 INFO ok\n" * 100, "x" * 9_000, "y" * 20_000])
reads = st.lists(st.sampled_from([("a.py", "x\n", {}), ("b.py", "y\n", {"offset": 3})]), max_size=2)
cells = st.builds(Cell, output=outputs, reads=reads, status=st.sampled_from(["ok", "ok", "error"]))
steps = st.builds(
    Step,
    text=texts,
    cells=st.lists(cells, max_size=2),
    notice=st.none() | st.just("a notice"),
    outcome=st.sampled_from(["done", "done", "done", "failed"]),
)
options = st.builds(
    Options,
    policy=st.sampled_from(POLICIES),
    retain=st.sampled_from([0, 500, 4_000]),
    lead=st.sampled_from([0, 16_384]),
    tape=st.builds(
        TapeOptions,
        keep_recent_turns=st.integers(0, 2),
        entry_max_chars=st.none() | st.integers(256, 2_000),
        profile=st.sampled_from(["v4", "v3"]),
        locators=st.sampled_from(["long", "short"]),
    ),
)
sessions = st.lists(st.tuples(texts, st.lists(steps, max_size=4), st.booleans(), st.booleans()), min_size=1, max_size=6)


def play(turns: Turns, told: list[tuple[str, list[Step], bool, bool]]) -> None:
    for words, made, renewed, interjected in told:
        if renewed:
            turns.context.renew()
        turns.begin(words)
        for step in made:
            turns.step(step)
        if interjected:
            turns.say("by the way")
        turns.step(Step("done"))
        turns.end()


def diverges(turns: Turns, place: int) -> int | None:
    """Return where, in messages, the log says that request ``place`` + 1 is another than request ``place``."""
    between = turns.log.entries(turns.starts[place], turns.starts[place + 1], types=("surface_replaced",))
    gone = {seq for entry in between for seq in entry.event.sources}
    said = 0
    for seq, is_message in turns.surfaces[place]:
        if seq in gone:
            return said
        said += is_message  # a reply without words and calls is on the surface and says nothing
    return None


@given(options, sessions, st.sampled_from([None, 3_000, 8_000, 40_000]))
@settings(max_examples=100)
def test_a_request_begins_with_the_one_before_up_to_what_the_log_names(
    chosen: Options, told: list[Any], window: int | None
) -> None:
    with session(chosen, window=window) as turns:
        play(turns, told)
        sent = [request.messages for request in turns.requests]
        for place in range(len(sent) - 1):
            at = diverges(turns, place)
            kept = len(sent[place]) if at is None else at
            assert sent[place + 1][:kept] == sent[place][:kept]
            if at is not None:
                assert sent[place + 1][at : at + 1] != sent[place][at : at + 1]


@given(options, sessions, sessions, st.sampled_from([None, 8_000]))
@settings(max_examples=30)
def test_a_resumed_session_goes_on_as_the_same_process_would(
    chosen: Options, told: list[Any], more: list[Any], window: int | None
) -> None:
    """Usage is left out: what a model counted is remembered by a process only as far as the surface holds it."""
    with fresh_store() as one, fresh_store() as other:
        whole = begun(one, chosen, window=window, usage=False)
        play(whole, told)
        whole.log.append(ev.SessionResumed(version="0"))
        play(whole, more)
        play(begun(other, chosen, window=window, usage=False), told)
        again = begun(other, chosen, window=window, usage=False)
        play(again, more)
        assert [entry.event for entry in again.log.entries()] == [entry.event for entry in whole.log.entries()]
        verify(other)


@given(options, sessions, st.sampled_from([3_000, 8_000]))
@settings(max_examples=40)
def test_what_stands_in_cites_what_it_shadows_down_to_the_originals(
    chosen: Options, told: list[Any], window: int
) -> None:
    with session(chosen, window=window) as turns:
        play(turns, told)
        said = ("user_said", "notice_given", "model_replied", "cell_ended")
        reached: set[int] = set()
        waiting = list(turns.seqs)
        while waiting:
            (entry,) = turns.log.pick([waiting.pop()])
            if isinstance(entry.event, ev.SurfaceReplaced):
                waiting += entry.event.sources
            reached.add(entry.seq)
        assert {entry.seq for entry in turns.log.entries(types=said)} <= reached


def test_transcript_changes_nothing() -> None:
    with session(Options(policy="transcript"), window=4_000) as turns:
        for _ in range(4):
            turns.turn("go", Step("", [Cell("line\n" * 2_000)]))
        assert turns.replaced() == []


def test_slice_seals_at_the_first_step_of_a_turn_only() -> None:
    with session(Options(policy="transcript")) as turns:
        turns.turn("first", Step("", [Cell(code(9_000))]))
        turns.begin("second")
        originals = StoredOriginals(turns.log.entries)
        made = plan(Options(policy="slice"), turns.context.view(), originals)
        assert [operation.policy for operation in made if isinstance(operation, ev.SurfaceReplaced)] == ["tape"]
        turns.step(Step("", [Cell()]))
        assert plan(Options(policy="slice"), turns.context.view(), originals) == ()


def test_auto_seals_each_turn_and_switches_the_window_when_that_is_not_enough() -> None:
    with session(Options(policy="auto", lead=0, retain=1_000), window=10_000) as turns:
        turns.turn("first", Step("", [Cell(code(9_000))]))
        turns.turn("second", Step("", [Cell(code(9_000))]))
        turns.begin("third")
        turns.step(Step("", [Cell(code(6_000))]))
        assert [entry.event.policy for entry in turns.replaced()] == ["tape", "tape"]  # as each next turn began
        while len(turns.replaced()) == 2:
            turns.step(Step("", [Cell(code(6_000))]))
        assert turns.replaced()[2].event.policy == "window"
        assert max(turns.sizes) < 8_000


def test_auto_leaves_a_short_session_alone() -> None:
    with session(Options(policy="auto"), window=128_000) as turns:
        for _ in range(5):
            turns.turn("go", Step("", [Cell("three words here\n" * 20)]))
        assert turns.replaced() == []
        assert list(turns.log.entries(types=("notice_given",))) == []


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "stream"])
def test_an_asked_for_window_comes_once(policy: Any) -> None:
    with session(Options(policy=policy)) as turns:
        turns.begin("go")
        turns.step(Step("", [Cell(code(9_000))]))
        turns.step(Step("", [Cell(code(9_000))]))
        turns.context.renew()
        turns.step(Step("", [Cell(code(9_000))]))
        turns.step(Step("", [Cell(code(9_000))]))
        (made,) = turns.replaced("window")
        assert "[context window switched" in text_of(made.event.message.parts)


def test_auto_seals_when_that_is_worth_it() -> None:
    step = Step("", [Cell(code(8_000))])
    for policy, sealed in (("auto", [0, 0, 2]), ("slice", [0, 1, 2])):
        with session(Options(policy=policy)) as turns:  # type: ignore[arg-type]
            counts = []
            for _ in range(3):
                turns.turn("go", step)
                counts.append(len(turns.replaced("tape")))
            assert counts == sealed
