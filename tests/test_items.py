"""The surface as items: the same whether it grew or was loaded."""

from __future__ import annotations

from hypothesis import given
from strategies import Commit, Folded, walks
from turns import Cell, Step, session

from prime import events as ev
from prime.items import Items
from prime.messages import Header, Message, TextPart
from prime.policies.base import Options
from prime.projection import request


@given(walks(max_commits=60))
def test_a_loaded_surface_has_the_items_of_one_that_grew(walk: tuple[Commit, ...]) -> None:
    folded, grown = Folded(), Items()
    for commit in walk:
        for event in commit:
            folded.add(event)
            grown.take(folded.entries[-1])
    seqs = folded.state.surface.seqs
    loaded = Items()
    loaded.load([folded.entries[seq] for seq in seqs], lambda wanted: [folded.entries[seq] for seq in wanted])
    items = grown.of(seqs)
    assert loaded.of(seqs) == items
    assert [item.node for item in items] == list(folded.state.surface.nodes)
    header = Header(model="m", system="", tools=())
    said = request(header, [folded.entries[seq] for seq in seqs]).messages
    assert tuple(item.message for item in items if item.message is not None) == said
    for item in items:
        original = folded.entries[item.origin].event
        assert item.standing_in == (isinstance(original, ev.SurfaceReplaced))
        assert (item.turn is None) == item.standing_in
        assert (item.tokens > 0) == (item.message is not None)


def test_a_result_keeps_its_place_through_every_form() -> None:
    with session(Options(policy="transcript")) as turns:
        turns.turn("go", Step("", [Cell()]))
        (result,) = turns.log.entries(types=("cell_ended",))
        grown, seq = Items(), result.seq
        grown.take(result)
        for form in ("condensed", "a stub"):
            message = Message(role="tool", parts=(TextPart(text=form),), call_id=result.event.call_id)
            replaced = ev.SurfaceReplaced(start=seq, end=seq, sources=(seq,), message=message, policy="fold")
            (entry,) = turns.log.append(replaced)
            grown.take(entry)
            seq = entry.seq
            loaded = Items()
            loaded.load([entry], turns.log.pick)
            (item,) = loaded.of([seq])
            assert [item] == grown.of([seq])
            assert (item.origin, item.turn, item.step) == (result.seq, 1, 1)
