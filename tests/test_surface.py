from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import cell_ended, created, whole_ranges

from prime import events as ev
from prime.errors import SurfaceError
from prime.messages import CallPart, Message, TextPart
from prime.surface import Node, Surface, fold, node_of


def said(text: str = "hello") -> ev.UserSaid:
    return ev.UserSaid(input_id="i", kind="ask", parts=(TextPart(text=text),))


def replied(*calls: str) -> ev.ModelReplied:
    parts = tuple(CallPart(call_id=call, name="repl", arguments="{}") for call in calls)
    return ev.ModelReplied(parts=parts, stop="calls" if calls else "end", model="m", usage=None)


def refused(call: str) -> ev.CallRefused:
    return ev.CallRefused(call_id=call, name="other", code="unknown_tool", text="no")


def replacement(start: int, end: int, sources: tuple[int, ...], **message: Any) -> ev.SurfaceReplaced:
    usual = {"role": "user", "parts": (TextPart(text="what was there"),)}
    return ev.SurfaceReplaced(
        start=start, end=end, sources=sources, message=Message(**{**usual, **message}), policy="test"
    )


def result(start: int, end: int, sources: tuple[int, ...], call_id: str | None) -> ev.SurfaceReplaced:
    return replacement(start, end, sources, role="tool", call_id=call_id)


def entries(events: list[Any]) -> list[ev.Entry]:
    return [ev.Entry("s1", seq, 0, None, None, event) for seq, event in enumerate(events)]


#: A conversation whose surface is 0 1 2 8 5 6 7: entries 3 and 4 are shadowed by 8, and one call id occurs twice.
STORY: list[Any] = [
    said(),
    replied("call_0"),
    cell_ended("c1", "call_0"),
    replied(),
    said(),
    replied("call_0", "call_1"),
    refused("call_0"),
    cell_ended("c2", "call_1"),
    replacement(3, 4, (3, 4)),
]
NEXT = len(STORY)


def told() -> Surface:
    surface = Surface()
    for seq, event in enumerate(STORY):
        surface.apply(seq, event)
    return surface


def test_the_story_has_the_surface_it_says() -> None:
    assert told().seqs == (0, 1, 2, 8, 5, 6, 7)


NODES = [
    (said(), Node(3)),
    (ev.NoticeGiven(about="test", text="x"), Node(3)),
    (replied(), Node(3)),
    (replied("call_0", "call_1"), Node(3, opens=("call_0", "call_1"))),
    (cell_ended("c1", "call_0"), Node(3, closes="call_0")),
    (cell_ended("c1", None), None),  # a cell run by hand
    (refused("call_0"), Node(3, closes="call_0")),
    (created(), None),
    (ev.CellStarted(cell="c1", call_id="call_0", code=""), None),
    (ev.TurnEnded(reason="completed"), None),
]


@pytest.mark.parametrize(("event", "node"), NODES, ids=lambda value: getattr(value, "type", ""))
def test_some_events_are_messages_and_most_are_not(event: Any, node: Node | None) -> None:
    assert node_of(3, event) == node
    surface = told()
    before = surface.nodes
    undo = surface.apply(3, event)
    assert surface.nodes == ((*before, node) if node is not None else before)
    assert (undo is None) == (node is None)


ALLOWED = {
    "one node": (replacement(0, 0, (0,)), (9, 1, 2, 8, 5, 6, 7)),
    "a call with its result": (replacement(1, 2, (1, 2)), (0, 9, 8, 5, 6, 7)),
    "all": (replacement(0, 7, (0, 1, 2, 8, 5, 6, 7)), (9,)),
    "seqs that fall": (replacement(8, 7, (8, 5, 6, 7)), (0, 1, 2, 9)),
    "more sources than are shadowed": (replacement(8, 8, (3, 4, 8)), (0, 1, 2, 9, 5, 6, 7)),
    "a result by another form of it": (result(7, 7, (7,), "call_1"), (0, 1, 2, 8, 5, 6, 9)),
    "a refusal by another form of it": (result(6, 6, (6,), "call_0"), (0, 1, 2, 8, 5, 9, 7)),
}


@pytest.mark.parametrize(("event", "seqs"), ALLOWED.values(), ids=ALLOWED.keys())
def test_a_replacement_takes_the_place_of_its_range(event: ev.SurfaceReplaced, seqs: tuple[int, ...]) -> None:
    surface = told()
    before = surface.nodes
    undo = surface.apply(NEXT, event)
    assert surface.seqs == seqs
    assert fold(entries([*STORY, event])).nodes == surface.nodes
    assert undo is not None
    undo()
    assert surface.nodes == before


def test_another_form_of_a_result_still_answers_its_call() -> None:
    surface = told()
    surface.apply(NEXT, result(7, 7, (7,), "call_1"))
    surface.apply(NEXT + 1, result(9, 9, (9,), "call_1"))
    with pytest.raises(SurfaceError, match="part a call"):
        surface.apply(NEXT + 2, replacement(5, 6, (5, 6)))
    surface.apply(NEXT + 2, replacement(5, 10, (5, 6, 10)))
    assert surface.seqs == (0, 1, 2, 8, 11)


FAULTY = {
    "a shadowed start": (replacement(3, 8, (3, 8)), "not both on the surface"),
    "a shadowed end": (replacement(8, 4, (8, 4)), "not both on the surface"),
    "a missing entry": (replacement(0, 99, (0,)), "not both on the surface"),
    "itself": (replacement(NEXT, NEXT, (0,)), "not both on the surface"),
    "a reversed range": (replacement(2, 1, (1, 2)), "comes after"),
    "a range that is reversed by position": (replacement(5, 8, (5, 8)), "comes after"),
    "an omitted source": (replacement(0, 2, (0, 2)), "leave out entry 1"),
    "no sources": (replacement(0, 0, ()), "leave out entry 0"),
    "a duplicate source": (replacement(0, 0, (0, 0)), "distinct and earlier"),
    "a source that is itself": (replacement(0, 0, (0, NEXT)), "distinct and earlier"),
    "a late source": (replacement(0, 0, (0, 99)), "distinct and earlier"),
    "a source before the first": (replacement(0, 0, (0, -1)), "distinct and earlier"),
    "a call without its result": (replacement(0, 1, (0, 1)), "part a call"),
    "a call without one of its results": (replacement(5, 6, (5, 6)), "part a call"),
    "a result without its call": (replacement(2, 8, (2, 8)), "part a call"),
    "a result, and another call of the same id": (replacement(2, 6, (2, 8, 5, 6)), "part a call"),
    "a result by a person's words": (replacement(2, 2, (2,)), "part a call"),
    "two results by one": (result(6, 7, (6, 7), "call_1"), "same result"),
    "a result by that of another call": (result(7, 7, (7,), "call_0"), "same result"),
    "a person's words by a result": (result(0, 0, (0,), "call_0"), "same result"),
    "a person's words by a result of no call": (result(0, 0, (0,), None), "same result"),
    "a reply by a result of its call": (result(1, 1, (1,), "call_0"), "same result"),
    "the model's role": (replacement(0, 0, (0,), role="assistant"), "in the user's role"),
    "a user's message that answers a call": (replacement(0, 0, (0,), call_id="call_0"), "in the user's role"),
    "a message that asks for a call": (
        replacement(0, 0, (0,), parts=(CallPart(call_id="x", name="repl", arguments="{}"),)),
        "asks for no calls",
    ),
    "a result that asks for a call": (
        replacement(
            7,
            7,
            (7,),
            role="tool",
            call_id="call_1",
            parts=(CallPart(call_id="x", name="repl", arguments="{}"),),
        ),
        "asks for no calls",
    ),
}


@pytest.mark.parametrize(("event", "reason"), FAULTY.values(), ids=FAULTY.keys())
def test_a_faulty_replacement_is_refused_live_and_in_the_full_fold(event: ev.SurfaceReplaced, reason: str) -> None:
    surface = told()
    before = surface.nodes
    with pytest.raises(SurfaceError, match=reason) as live:
        surface.apply(NEXT, event)
    assert surface.nodes == before
    with pytest.raises(SurfaceError) as full:
        fold(entries([*STORY, event]))
    assert str(full.value) == str(live.value)
    surface.apply(NEXT, said())
    assert surface.seqs == (0, 1, 2, 8, 5, 6, 7, NEXT)


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[Any], list[tuple[int, ...]]]:
    """A random conversation with replacements, and its surface after each event as a plain list would have it."""
    surface, events, seqs, shown = Surface(), list[Any](), list[int](), list[tuple[int, ...]]()

    def tell(event: Any, place: slice) -> None:
        seqs[place] = [len(events)]
        surface.apply(len(events), event)
        events.append(event)
        shown.append(tuple(seqs))

    for move in draw(st.lists(st.sampled_from(["say", "reply", "replace", "rephrase"]), max_size=20)):
        end = slice(len(seqs), len(seqs))
        if move == "say":
            tell(said(), end)
        elif move == "reply":
            calls = [f"call_{number}" for number in range(draw(st.integers(0, 2)))]
            tell(replied(*calls), end)
            for call in calls:
                tell(cell_ended("c", call), slice(len(seqs), len(seqs)))
        elif move == "replace" and (ranges := whole_ranges(surface.nodes)):
            start, stop = draw(st.sampled_from(ranges))
            tell(replacement(seqs[start], seqs[stop], tuple(seqs[start : stop + 1])), slice(start, stop + 1))
        elif move == "rephrase" and (results := [node for node in surface.nodes if node.closes is not None]):
            node = draw(st.sampled_from(results))
            place = seqs.index(node.seq)
            tell(result(node.seq, node.seq, (node.seq,), node.closes), slice(place, place + 1))
    return events, shown


@given(stories())
def test_step_by_step_is_the_same_as_all_at_once(story: tuple[list[Any], list[tuple[int, ...]]]) -> None:
    events, shown = story
    surface = Surface()
    for seq, event in enumerate(events):
        surface.apply(seq, event)
        assert surface.seqs == shown[seq]
        assert fold(entries(events[: seq + 1])).nodes == surface.nodes


@given(stories())
def test_what_is_taken_back_in_order_was_never_there(story: tuple[list[Any], list[tuple[int, ...]]]) -> None:
    events, _ = story
    surface = Surface()
    before, undo = [], []
    for seq, event in enumerate(events):
        before.append(surface.nodes)
        undo.append(surface.apply(seq, event))
    while undo:
        taken = undo.pop()
        if taken is not None:
            taken()
        assert surface.nodes == before.pop()


@given(stories(), st.integers(-1, 25), st.integers(-1, 25))
def test_a_range_fits_when_it_is_whole(story: tuple[list[Any], list[tuple[int, ...]]], start: int, end: int) -> None:
    events, _ = story
    surface = fold(entries(events))
    before, seqs = surface.nodes, surface.seqs
    places = [seqs.index(seq) for seq in (start, end) if seq in seqs]
    shadowed = seqs[places[0] : places[1] + 1] if len(places) == 2 else ()
    event = replacement(start, end, shadowed)
    if tuple(places) in whole_ranges(before):
        surface.apply(len(events), event)
        assert len(events) in surface.seqs
        return
    with pytest.raises(SurfaceError) as live:
        surface.apply(len(events), event)
    assert surface.nodes == before
    with pytest.raises(SurfaceError) as full:
        fold(entries([*events, event]))
    assert str(full.value) == str(live.value)
