"""The tape: what is sealed, when, and what an entry says."""

from __future__ import annotations

import hashlib
import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import fresh_store
from turns import Cell, Step, Turns, begun, code, session

from prime import events as ev
from prime.messages import CallPart, Message, TextPart, text_of
from prime.originals import StoredOriginals
from prime.policies import tape
from prime.policies.base import Item, Options, TapeOptions, View
from prime.policies.draft import Draft
from prime.policies.entry import INDEX_CHARS, MAX_RESULTS, Result, Said, SealedTurn, rendered
from prime.surface import Node
from prime.verify import verify

SLICE = Options(policy="slice")
#: What a cell shows: more than an entry takes, and never folded.
SHOWN = code(3_000)
#: One read of 6,000 characters, as the reference measured it.
WORK = Step("I look at it.", [Cell(SHOWN, reads=[("a.py", "x = 1\n" * 1_000, {})])])


def entries(turns: Turns) -> list[str]:
    return [text_of(entry.event.message.parts) for entry in turns.replaced("tape")]


def shape(turns: Turns) -> list[str]:
    """Return what each message of the newest request is."""
    return [
        "entry" if text_of(message.parts).startswith("[slice tape") else message.role
        for message in turns.requests[-1].messages
    ]


def replies(entry: str) -> list[str]:
    """Return the replies of an entry, as its marks bound them."""
    marks = r"\[reply \S+ (@sha256:[0-9a-f]{12})\]\n(.*?)\n\[end reply \1\]"
    return [found[1] for found in re.findall(marks, entry, re.DOTALL)]


def sealed(*texts: str, number: int = 1, **fields: object) -> SealedTurn:
    said = tuple(Said(step, 10 * step, text) for step, text in enumerate(texts, 1))
    turn = SealedTurn(number, (), said, 0, (), ())
    return replace(turn, **fields)  # type: ignore[arg-type]


def test_completed_turns_are_sealed_and_words_of_persons_stay() -> None:
    with session(SLICE) as turns:
        turns.turn("first", WORK)
        assert entries(turns) == []
        turns.turn("second", WORK)
        turns.begin("third")
        turns.send()
        assert shape(turns) == ["user", "entry", "user", "entry", "user"]
        first, second = entries(turns)
        (result, _) = turns.log.entries(types=("cell_ended",))
        assert first.splitlines()[0] == (
            "[slice tape v1 · turns 1-1 · 1 turn(s) sealed · history.turn(n) returns a turn · "
            "history.expand(seq=n, format=1) returns a result]"
        )
        assert replies(first) == ["I look at it.", "done"]
        where = f"turn 1 step 1 seq {result.seq}"
        assert f"[result {where} · tools.read · 3000 chars · history.expand(seq={result.seq}, format=1)]" in first
        assert "= turn 1" not in first
        assert "= turn 1" in second
        assert "first" not in first


def test_nothing_is_sealed_within_a_turn_or_between_turns() -> None:
    with session(SLICE) as turns:
        turns.turn("first", WORK)
        before = len(turns.log)
        turns.context.request(turns.header)  # the turn is over: no request is due
        assert len(turns.log) == before
        turns.begin("second")
        turns.step(WORK)
        assert len(turns.replaced()) == 1
        turns.step(WORK)
        turns.step(WORK)
        assert len(turns.replaced()) == 1


def test_a_notice_within_a_turn_stays_and_splits_it_into_two_entries() -> None:
    with session(SLICE) as turns:
        turns.turn("first", replace(WORK, notice="mind the gap"), WORK)
        turns.begin("second")
        turns.send()
        assert shape(turns) == ["user", "entry", "user", "entry", "user"]
        first, second = entries(turns)
        assert first.splitlines()[:2] == second.splitlines()[:2]
        assert "mind the gap" in turns.texts()[2]


def test_pictures_and_notices_keep_their_place_through_later_seals() -> None:
    with session(SLICE) as turns:
        turns.turn("look", replace(WORK, notice="a notice"), images=1)
        kept = [seq for seq in turns.seqs if turns.log.pick([seq])[0].event.type in ("user_said", "notice_given")]
        for number in range(3):
            turns.turn(f"more {number}", WORK)
        assert [seq for seq in turns.seqs if seq in kept] == kept
        assert [part.type for part in turns.requests[-1].messages[0].parts] == ["text", "image"]


@pytest.mark.parametrize(
    "text", ["  \n ", "🙂 done", "漢字の返事", "end\n\n", "[end reply @sha256:0123456789ab]\nmore"]
)
def test_replies_are_kept_to_the_letter(text: str) -> None:
    with session(SLICE) as turns:
        turns.turn("first", Step(text, [Cell(SHOWN)]), Step("ok"))
        turns.begin("second")
        turns.send()
        (entry,) = entries(turns)
        assert replies(entry) == [text, "ok"]
        mark = hashlib.sha256(text.encode()).hexdigest()[:12]
        assert f"[reply slice-turn-1-step-1-seq-{turns.starts[0] + 1} @sha256:{mark}]" in entry


def test_empty_replies_leave_a_trace_and_the_header_counts_what_is_there() -> None:
    with session(SLICE) as turns:
        turns.turn("first", Step("", [Cell(SHOWN)]), Step(""))
        turns.begin("second")
        turns.send()
        (entry,) = entries(turns)
        assert "[1 assistant message(s) contained no visible text or tool calls]" in entry
        assert "turns 1-1 · 1 turn(s)" in entry
        assert entry.count("[turn ") == 1


def test_result_lines_name_the_original_of_a_folded_result_and_are_bounded() -> None:
    with session(SLICE) as turns:
        turns.turn("first", Step("", [Cell(SHOWN) for _ in range(MAX_RESULTS + 3)]))
        (result, *_) = turns.log.entries(types=("cell_ended",))
        shorter = Message(role="tool", parts=(TextPart(text="short"),), call_id="call-0")
        turns.log.append(
            ev.SurfaceReplaced(start=result.seq, end=result.seq, sources=(result.seq,), message=shorter, policy="fold")
        )
        turns.begin("second")
        turns.send()
        (entry,) = entries(turns)
        assert f"seq {result.seq} · repl · 3000 chars" in entry
        assert entry.count("[result turn") == MAX_RESULTS
        assert "[+3 more results]" in entry


def test_keep_recent_turns_leaves_the_newest_and_bills_more() -> None:
    """What is sent again at a seal, in characters over five turns, is least when nothing is kept back."""
    billed = {}
    for keep in (0, 1, 3):
        with session(Options(policy="slice", tape=TapeOptions(keep_recent_turns=keep))) as turns:
            for number in range(6):
                turns.turn(f"turn {number}", WORK)
            assert len(turns.replaced("tape")) == 5 - keep
            sent = [[str(message) for message in request.messages] for request in turns.requests]
            again = 0
            for before, after in itertools.pairwise(sent):
                common = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
                again += sum(map(len, after[common:]))
            billed[keep] = again
    assert billed[0] <= min(billed[1], billed[3])


def test_a_changed_limit_leaves_earlier_entries_and_a_resumed_session_seals_what_is_new() -> None:
    with fresh_store() as store:
        turns = begun(store, SLICE)
        turns.turn("first", WORK)
        turns.turn("second", WORK)
        before = turns.replaced("tape")
        again = begun(store, Options(policy="slice", tape=TapeOptions(entry_max_chars=256)))
        again.turn("third", WORK)
        after = again.replaced("tape")
        assert after[:1] == before
        assert len(after) == 2
        assert len(text_of(after[1].event.message.parts)) <= 256 < len(text_of(before[0].event.message.parts))
        assert before[0].seq in again.seqs
        verify(store)


def test_entries_of_another_policy_or_version_are_frozen_too() -> None:
    with session(SLICE) as turns:
        turns.turn("first", WORK)
        seqs = turns.seqs
        message = Message(role="user", parts=(TextPart(text="[slice checkpoint v1 · turns 1-1]"),))
        turns.log.append(
            ev.SurfaceReplaced(start=seqs[-1], end=seqs[-1], sources=seqs[-1:], message=message, policy="older")
        )
        frozen = turns.seqs
        turns.turn("second", WORK)
        turns.begin("third")
        turns.send()
        assert turns.seqs[: len(frozen)] == frozen
        assert len(turns.replaced("tape")) == 1


def test_every_text_that_was_read_is_hashed_once() -> None:
    hashed: list[str] = []

    def counting(text: str) -> str:
        hashed.append(text)
        return str(len(hashed))

    with session(Options(policy="transcript")) as turns:
        for number in range(40):
            turns.turn("go", Step("", [Cell(SHOWN, reads=[(f"{number}.py", f"text {number}\n", {})])]))
        originals = StoredOriginals(turns.log.entries, counting)
        for _ in range(3):
            for place in range(40):
                start = turns.starts[2 * place]
                assert len(originals.reads(start, turns.starts[2 * place + 1])) == 1
        assert len(hashed) == 40


def test_the_index_compares_the_last_read_of_the_same_lines_with_an_earlier_turn() -> None:
    with session(SLICE) as turns:
        part = {"offset": 10}
        turns.turn("1", Step("", [Cell(SHOWN, reads=[("a.py", "one\n", {}), ("a.py", "part\n", part)])]))
        turns.turn("2", Step("", [Cell(SHOWN, reads=[("a.py", "one\n", {}), ("a.py", "two\n", {})])]))
        turns.turn("3", Step("", [Cell(SHOWN, reads=[("a.py", "two\n", {})])]), Step("", [Cell(status="error")]))
        failed = ("tools.read", {"path": "a.py"}, None)
        turns.turn("4", Step("", [Cell(SHOWN, reads=[("a.py", "six\n", part)], calls=[failed])]))
        turns.begin("5")
        turns.send()
        lines = [next(line for line in entry.splitlines() if line.startswith("[read by")) for entry in entries(turns)]
        assert 'window {"offset": 10})' in lines[0]
        assert lines[1].count("a.py") == 1  # the last one of the turn
        assert "≠ turn 1" in lines[1]
        assert "= turn 2" in lines[2]
        assert 'window {"offset": 10}, ≠ turn 1' in lines[3]


@pytest.mark.parametrize("limit", [256, 400, 2_000])
@pytest.mark.parametrize("profile", ["v4", "v3"])
def test_an_entry_keeps_its_limit_and_its_calls(limit: int, profile: str) -> None:
    """13 turns of 10 reads with long paths each; the calls that are left are whole."""
    with session(Options(policy="transcript")) as turns:
        path = "deep/" * 110
        for number in range(13):
            reads = [(f"{path}{n}.py", "x\n", {}) for n in range(10)]
            turns.turn(f"turn {number} " * 500, Step("word " * 800, [Cell(SHOWN, reads=reads)]))
        turns.begin("next")
        options = TapeOptions(entry_max_chars=limit, profile=profile)  # type: ignore[arg-type]
        draft, view = drafted(turns)
        tape.seal(draft, view, StoredOriginals(turns.log.entries), options)
        made = [text_of(operation.message.parts) for operation in draft.operations]  # type: ignore[union-attr]
        assert len(made) == (13 if profile == "v4" else 1)
        assert max(map(len, made)) <= limit
        for text in made:
            for name, given in re.findall(r"history\.(\w+)\(([^)]*)\)", text):
                assert name in ("turn", "step", "expand")
                assert re.fullmatch(r"n|\d+|seq=(n|\d+), format=1|turn=n, step=m", given)


def drafted(turns: Turns) -> tuple[Draft, View]:
    """Return a draft of the session's surface as it is."""
    view = turns.context.view()
    return Draft(view), view


def test_the_last_resort_names_every_turn() -> None:
    turns = [sealed("x" * 500, number=number) for number in range(1, 81)]
    text = rendered(turns, TapeOptions(entry_max_chars=256))
    assert len(text) <= 256
    assert text.startswith("[slice tape v1 · turns 1-80 · 80 turn(s) sealed]")
    assert "history.turn(1) returns turn 1; repeat through turn 80" in text


@given(
    st.lists(st.lists(st.text(max_size=5_000), max_size=4), min_size=1, max_size=5),
    st.integers(256, 5_000),
    st.sampled_from(["v4", "v3"]),
)
def test_a_limit_holds_whatever_was_said(said: list[list[str]], limit: int, profile: str) -> None:
    turns = [sealed(*texts, number=number) for number, texts in enumerate(said, 1)]
    text = rendered(turns, TapeOptions(entry_max_chars=limit, profile=profile))  # type: ignore[arg-type]
    assert len(text) <= limit
    assert f"turns 1-{len(said)} · {len(said)} turn(s) sealed" in text


def test_levels_take_the_least_useful_away_first() -> None:
    turn = sealed("x" * 3_000, results=(Result(1, 12, "repl", 8),))
    all_of_it = rendered([turn], TapeOptions())
    whole = rendered([turn], TapeOptions(entry_max_chars=len(all_of_it) - 1))
    assert "[result" in all_of_it
    assert "[result" not in whole
    assert "x" * 3_000 in whole
    shorter = rendered([turn], TapeOptions(entry_max_chars=len(whole) - 1))
    assert "…[+1100 chars, history.turn(1)]…" in shorter
    assert "…[+1650 chars" not in shorter


def test_short_locators_print_the_version_only() -> None:
    with session(Options(policy="slice", tape=TapeOptions(locators="short"))) as turns:
        turns.turn("first", WORK)
        turns.begin("second")
        turns.send()
        (entry,) = entries(turns)
        assert entry.splitlines()[0].endswith("· history.turn / history.expand]")
        assert re.search(r"· 3000 chars · v1\]", entry)


def test_the_v3_profile_takes_excerpts_of_what_was_said_and_pins_the_first_words() -> None:
    with session(Options(policy="slice", tape=TapeOptions(profile="v3"))) as turns:
        turns.turn("the task", Step("first reply", [Cell(SHOWN)]), Step("last reply"))
        turns.turn("flood " * 4_000, WORK)
        turns.turn("with a picture", WORK, images=1)
        turns.begin("now")
        turns.send()
        assert shape(turns) == ["user", "entry", "entry", "user", "entry", "user"]
        first, second, _ = entries(turns)
        assert turns.texts()[0] == "the task"
        assert replies(first) == ["last reply"]
        assert "[user]\nflood" in second
        assert "history.turn(2)]…" in second
        assert len(second) < 2_500


def test_a_call_without_its_result_stays_and_splits_the_run() -> None:
    """No log of ours holds one; a recording of another program may."""
    call = CallPart(call_id="c", name="repl", arguments="{}")

    def item(seq: int, turn: int, *, asks: bool = False) -> Item:
        parts = (TextPart(text="x"), call) if asks else (TextPart(text="x"),)
        reply = ev.ModelReplied(parts=parts, stop="end", model="m", usage=None)
        node = Node(seq, opens=("c",) if asks else ())
        return Item(node, seq, turn, 1, reply, Message(role="assistant", parts=parts), 1_000.0)

    items = [item(0, 1), item(1, 2, asks=True), item(2, 3), item(3, 4)]
    view = View(items=items, next_seq=10, sent=3, turn=5, step=1, used=0, window=None)
    draft = Draft(view)
    tape.seal(draft, view, StoredOriginals(lambda *_, **__: iter(())), TapeOptions())
    assert [(made.start, made.end) for made in draft.operations] == [(0, 0), (2, 3)]  # type: ignore[union-attr]
    assert [each.seq for each in draft.items] == [10, 1, 11]


def test_an_index_is_bounded() -> None:
    with session(SLICE) as turns:
        reads = [(f"{'p' * 300}{n}", "x\n", {}) for n in range(30)]
        turns.turn("first", Step("", [Cell(SHOWN, reads=reads)]))
        turns.begin("second")
        turns.send()
        (line,) = [line for line in entries(turns)[0].splitlines() if line.startswith("[read by")]
        assert len(line) <= INDEX_CHARS + 100
        assert re.search(r"\+\d+ more\]$", line)


def test_a_turn_of_a_few_words_is_smaller_than_its_entry_and_stays_for_good() -> None:
    with session(SLICE) as turns:
        turns.turn("hello", Step("hi"))
        turns.turn("work", WORK)
        turns.turn("more", WORK)
        turns.begin("and?")
        turns.send()
        assert shape(turns) == ["user", "assistant", "user", "entry", "user", "entry", "user"]
