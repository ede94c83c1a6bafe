"""Search: what is found, in which order, and what never is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import fresh_store
from strategies import walks

import prime
from prime import events as ev
from prime import hits, search
from prime.errors import ToolFailed
from prime.history import History
from prime.log import Log
from prime.messages import text_of
from prime.providers.scripted import ScriptedProvider
from prime.recalled import Hits
from prime.sessions import Sessions
from prime.store.words import folded, terms
from prime.testing import ScriptedCell, scripted
from prime.texts import Texts

pytestmark = pytest.mark.anyio


async def printing(code: str, cell: ScriptedCell) -> object:
    cell.print(code)
    return None


async def test_one_short_entry_with_all_terms_beats_a_flood_of_one(home: Path) -> None:
    replies = [{"text": "needle " * 300}, {"text": "a needle in the haystack"}, {"text": "needle " * 300}]
    async with scripted(replies, home=home) as stage:
        for _ in replies:
            await stage.agent.ask("go")
        found = (await History(stage.log.store).search("needle haystack")).hits
        assert [hit.turn for hit in found] == [2, 3, 1]


async def test_outputs_have_a_few_places_unless_they_are_asked_for(home: Path) -> None:
    replies = [{"code": ["needle output " * 80] * 6}, {"text": "needle"}]
    async with scripted(replies, printing, home=home) as stage:
        await stage.agent.ask("go")
        history = History(stage.log.store)
        found = await history.search("output", limit=20)
        shown = [hit for hit in found.hits if hit.kind == "output"]
        assert len(shown) == hits.OUTPUT_HITS
        assert all(len(hit.snippet) <= 600 + 2 for hit in shown)
        assert found.truncated
        assert {hit.kind for hit in (await history.search("output", scope="dialogue", limit=20)).hits} == {"code"}
        asked = await history.search("output", kinds=["output"], limit=20)
        assert [hit.kind for hit in asked.hits] == ["output"] * 6
        assert not asked.truncated


async def test_nothing_found_says_where_and_hints_at_the_rest(home: Path) -> None:
    async with scripted([{"text": "x"}], home=home) as stage:
        await stage.agent.ask("go")
        history = History(stage.log.store)
        note = (await history.search("absent", kinds=["output", "dispatch_output"])).note
        assert "among output, dispatch_output" in note
        hint = note.partition("kinds=")[2]
        assert "output" not in hint
        assert "'user'" in hint
        note = (await history.search("absent")).note
        assert "dispatch_output" in note
        assert "try fewer or other words" in note
        assert (await history.search("go")).note == ""
        for nothing in ("", "  ", "😀 ..."):
            with pytest.raises(ToolFailed, match="has no words"):
                await history.search(nothing)
        with pytest.raises(ToolFailed, match="kinds is empty"):
            await history.search("x", kinds=[])


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("部署参数", "先说部署，再说那些参数。"),
        ("库", "数据库"),
        ("port.", "the port is 80"),
        ("eedl", "a needle"),
        ("needl", "a needle"),
        ("CONFIG.TOML", "see config.toml:"),
        ("ΟΔΟΣ", "η οδος"),
    ],
)
async def test_words_are_found_however_they_are_written(query: str, text: str, home: Path) -> None:
    padding = "😀 İ " * 400
    async with scripted([{"text": f"{padding}{text} {padding}"}, {"text": "else"}], home=home) as stage:
        await stage.agent.ask("go")
        await stage.agent.ask("go")
        (hit,) = (await History(stage.log.store).search(query)).hits
        assert hit.turn == 1
        assert text[:4] in hit.snippet
        before, _, after = hit.snippet.partition(text[:4])
        assert abs(len(before) - len(after)) < 40


async def test_output_that_repeats_recall_is_not_found_but_its_neighbours_are(home: Path) -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        if code == "look":
            found = await cell.call("history.search", query="needle")
            cell.print(f"{found['hits']!r}\n{found['hits'][0]['snippet']}\nthe neighbour\n")
            cell.print((await cell.call("tools.glob", pattern="*"))["root"])
        return None

    replies = [{"text": "the needle is under the haystack"}, {"code": "look"}, {"text": "ok"}]
    async with scripted(replies, play, home=home) as stage:
        await stage.agent.ask("hide")
        await stage.agent.ask("where?")
        history = History(stage.log.store)
        assert {hit.turn for hit in (await history.search("needle haystack", limit=20)).hits} == {1}
        assert {hit.kind for hit in (await history.search("neighbour")).hits} == {"output"}
        assert {hit.name for hit in (await history.search("glob root", limit=20)).hits} >= {"tools.glob"}


async def test_other_sessions_are_searched_when_they_may_be(home: Path) -> None:
    async with scripted([{"text": "the needle of another session"}], home=home) as other:
        await other.agent.ask("go")
    async with scripted([{"text": "no pin here"}], home=home) as stage:
        await stage.agent.ask("go")
        alone = History(stage.log.store)
        for refused in (alone.search("needle", scope="all"), alone.read(0, session=other.log.session)):
            with pytest.raises(ToolFailed, match="recall_scope"):
                await refused
        history = History(stage.log.store, Sessions(home))
        assert 'scope="all"' in (await history.search("needle")).note
        (hit,) = (await history.search("needle", scope="all")).hits
        assert hit.session == other.log.session
        assert (await eval(hit.call, {"history": history})).text == "the needle of another session"
        damaged = home / "sessions" / "20000101-damaged"
        damaged.mkdir()
        (damaged / "log.sqlite3").write_text("no log")
        found = await history.search("needle", scope="all")
        assert found.note == "not searched: 20000101-damaged"
        (damaged / "log.sqlite3").unlink()


async def test_the_setting_opens_the_other_sessions(home: Path) -> None:
    code = "[hit.snippet for hit in (await history.search('needle', scope='all')).hits]"
    async with scripted([{"text": "the needle"}], home=home) as other:
        await other.agent.ask("go")
    async with prime.Agent(ScriptedProvider([]), home=home, cwd=home, recall_scope="all") as agent:
        ended = await agent.cell(code)
    assert text_of(ended.shown) == "['the needle']"


async def test_an_index_that_lies_behind_costs_no_hit(home: Path) -> None:
    async with scripted([{"text": "the needle"}, {"text": "the pin"}], home=home) as stage:
        for query in ("needle", "pin"):
            await stage.agent.ask("go")
            (hit,) = (await History(stage.log.store).search(query)).hits
            assert query in hit.snippet


def found_by(log: Log, query: str) -> Hits:
    return asyncio.run(History(log.store).search(query, limit=20))


@given(walks(), st.data())
def test_search_never_returns_what_is_open_and_each_hit_names_a_call_that_returns_it(
    walk: tuple[Any, ...], data: st.DataObject
) -> None:
    with fresh_store() as store, Log(store) as log:
        for commit in walk:
            log.append(*commit)
        originals = Texts(store)
        every = list(originals.between(0, None))
        words = [term for each in every for term in terms(search.searchable(each))]
        query = data.draw(st.sampled_from(words)) if words else "absent"
        found = found_by(log, query).hits
        quiet = originals.quiet_until()
        expected = {
            each.seq
            for each in every
            if each.seq < quiet and each.kind != "note" and query in terms(search.searchable(each))
        }
        assert {hit.seq for hit in found if hit.kind in search.DIALOGUE} <= {each.seq for each in every}
        assert all(hit.seq < quiet for hit in found)
        if len(expected) <= hits.OUTPUT_HITS:
            assert {hit.seq for hit in found} >= expected
        for hit in found:
            value = asyncio.run(eval(hit.call, {"history": History(log.store)}))
            whole = originals.of(originals.entry(hit.seq))
            assert whole is not None
            assert whole.text in (value.text if "expand" in hit.call else {said.text for said in value.said})
            assert folded(query) in folded(search.searchable(whole))


@given(walks(), st.integers(1, 30))
def test_slices_put_together_are_the_original(walk: tuple[Any, ...], size: int) -> None:
    with fresh_store() as store, Log(store) as log:
        for commit in walk:
            log.append(*commit)
        history, originals = History(log.store), Texts(store)
        for entry in log.entries():
            original = originals.of(entry, raw=True)
            if original is None or isinstance(entry.event, ev.SurfaceReplaced):
                continue
            text = "".join(
                asyncio.run(history.read(entry.seq, offset, size)).text for offset in range(0, len(original.text), size)
            )
            assert text == original.text
