"""Recall: what left the window is one call away, and only that."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from watch import of, shown

from prime.caps import Limits
from prime.errors import ToolFailed
from prime.events import FORMAT
from prime.recall import NOTE_LIMIT, History
from prime.testing import ScriptedCell, scripted

pytestmark = pytest.mark.anyio


async def calling(code: str, cell: ScriptedCell) -> object:
    """Evaluate a call such as ``history.search('word')`` and show its value."""
    target, _, arguments = code.partition(" ")
    given: dict[str, Any] = eval(arguments or "{}")
    return await cell.call(target, **given)


@pytest.fixture
def played() -> list[dict[str, Any]]:
    return [
        {"text": "Let me see.", "code": "tools.write {'path': 'a.txt', 'content': 'the needle lies here'}"},
        {"text": "The answer is haystack."},
        {"code": ["history.search {'query': 'needle'}", "history.search {'query': 'needle'}"]},
        {"text": "found the needle"},
        {"code": "history.search {'query': 'needle', 'limit': 20}"},
        {"text": "done"},
    ]


async def test_search_hides_the_open_turn_and_recalls_own_calls(played: list[dict[str, Any]], home: Path) -> None:
    async with scripted(played, calling, home=home) as stage:
        await stage.agent.ask("hide it")
        await stage.agent.ask("where is the needle?")
        first, again = [event.value for event in of(stage.log, "dispatch_ended")][1:3]
        assert {hit["turn"] for hit in first["hits"]} == {1}
        assert {hit["kind"] for hit in first["hits"]} >= {"tools.write", "code"}
        assert [hit["seq"] for hit in again["hits"]] == [hit["seq"] for hit in first["hits"]]
        await stage.agent.ask("once more")
        third = of(stage.log, "dispatch_ended")[3].value
        assert {hit["turn"] for hit in third["hits"]} == {1, 2}
        kinds = {hit["kind"] for hit in third["hits"] if hit["turn"] == 2}
        assert "history.search" not in kinds
        assert "call_value" not in kinds
        assert {"user", "reply"} <= kinds


async def test_search_in_a_cell_by_hand_does_not_find_itself(home: Path) -> None:
    async with scripted([], calling, home=home) as stage:
        await stage.agent.cell("history.search {'query': 'needle'}")
        (ended,) = of(stage.log, "dispatch_ended")
        assert ended.value["hits"] == ()


async def test_every_hit_names_a_call_that_returns_it(played: list[dict[str, Any]], home: Path) -> None:
    async with scripted(played, calling, home=home) as stage:
        await stage.agent.ask("hide it")
        history = History(stage.log)
        for hit in (await history.search("needle haystack")).hits:
            names = {"history": history}
            told = await eval(hit.call, names)
            assert "needle" in str(told) or "haystack" in str(told)
        best = (await history.search("answer haystack needle", limit=1)).hits[0]
        assert "haystack" in best.snippet


async def test_the_signpost_of_a_cut_returns_the_whole(home: Path) -> None:
    whole = "".join(f"line {number} é😀\n" for number in range(2_000))

    async def play(code: str, cell: ScriptedCell) -> object:
        for line in whole.splitlines(keepends=True):
            cell.print(line)
        cell.print("no line end")
        cell.show("'completion'")
        return None

    limits = Limits(visible_output_bytes=1_000)
    async with scripted([{"code": "x"}, {"text": "done"}], play, home=home, limits=limits) as stage:
        await stage.agent.ask("go")
        result = stage.provider.requests[-1].messages[-1].parts[0].text  # type: ignore[union-attr]
        assert len(result.encode()) <= 1_000
        call = result.partition("`await history.")[2].partition("`")[0]
        expanded = await eval(f"history.{call}", {"history": History(stage.log)})
        expected = whole + "no line end\n'completion'"
        assert expanded.text == expected
        assert f"{len(expected.encode()):,} bytes in all" in result
        assert (expanded.kind, expanded.lines) == ("output", 2_002)


async def test_lines_and_grep_return_a_part(home: Path) -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        cell.print("".join(f"line {number}\n" for number in range(1, 101)))
        return None

    async with scripted([], play, home=home) as stage:
        await stage.agent.cell("x")
        expand, seq = functools.partial(History(stage.log).expand, format=FORMAT), len(stage.log) - 1
        assert (await expand(seq, lines="7")).text == "line 7"
        assert (await expand(seq, lines="99-300")).text == "line 99\nline 100"
        assert (await expand(seq, grep="9$", lines="1-20")).text == "9: line 9\n19: line 19"
        for wrong in ({"lines": "0"}, {"lines": "5-2"}, {"lines": "x"}, {"grep": "("}):
            with pytest.raises(ToolFailed):
                await expand(seq, **wrong)  # type: ignore[arg-type]
        with pytest.raises(ToolFailed, match="there is no entry"):
            await expand(10_000)
        for stale in (None, FORMAT + 1):
            with pytest.raises(ToolFailed, match=r"get the number anew from history\.search"):
                await expand(10_000, format=stale)


async def test_output_is_expanded_as_it_was_shown_and_raw_as_it_was_written(home: Path) -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        cell.print("\r 10%", stream="stderr")
        cell.print("\r100%\x1b[3", stream="stderr")
        cell.print("1mred\x1b[0m\n")
        return None

    async with scripted([], play, home=home) as stage:
        assert shown(await stage.agent.cell("x")) == "100%red"
        expand, seq = functools.partial(History(stage.log).expand, format=FORMAT), len(stage.log) - 1
        assert (await expand(seq)).text == "100%red\n"
        assert (await expand(seq, raw=True)).text == "\r 10%\r100%\x1b[31mred\x1b[0m\n"


async def test_a_pattern_that_takes_forever_is_an_error(home: Path) -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        cell.print("a" * 60 + "b")
        return None

    async with scripted([], play, home=home) as stage:
        await stage.agent.cell("x")
        with pytest.raises(ToolFailed, match="takes too long"):
            await History(stage.log).expand(len(stage.log) - 1, format=FORMAT, grep="(a|aa)+$")


async def test_a_turn_and_a_step_are_told_again(played: list[dict[str, Any]], home: Path) -> None:
    async with scripted(played, calling, home=home) as stage:
        await stage.agent.ask("hide it")
        await stage.agent.ask("where is it?")
        history = History(stage.log)
        dialogue = await history.turn(1)
        assert [(said.kind, said.text) for said in dialogue.said] == [
            ("user", "hide it"),
            ("reply", "Let me see."),
            ("reply", "The answer is haystack."),
        ]
        full = await history.turn(1, "full")
        assert {"code", "output", "tools.write", "call_value"} <= {said.kind for said in full.said}
        step = await history.step(1, 2)
        assert [said.kind for said in step.said] == ["reply"]
        for missing in ((9, 1), (1, 9)):
            with pytest.raises(ToolFailed, match="there is no"):
                await history.step(*missing)


async def test_two_writers_of_the_note_cannot_overwrite_each_other(home: Path) -> None:
    cells = [
        "notes.read",
        "notes.write {'text': 'first', 'revision': 0}",
        "notes.write {'text': 'stale', 'revision': 0}",
        f"notes.write {{'text': 'x' * {NOTE_LIMIT + 1}, 'revision': 1}}",
        "notes.read",
    ]
    async with scripted([], calling, home=home) as stage:
        statuses = [(await stage.agent.cell(cell)).status for cell in cells]
        assert statuses == ["ok", "ok", "error", "error", "ok"]
        ends = of(stage.log, "dispatch_ended")
        assert [event.error.code for event in ends if event.error] == ["stale", "too_long"]
        assert (ends[-1].value["revision"], ends[-1].value["text"]) == (1, "first")
    async with scripted([], calling, home=home, session=stage.log.session) as again:
        assert again.log.state.notes is not None
        assert again.log.state.notes.text == "first"


async def test_context_usage_counts_what_the_provider_reported_and_what_is_new(home: Path) -> None:
    usage = {"input": 1_000, "output": 50}
    async with scripted([{"code": "context.usage", "usage": usage}, {"text": "ok"}], calling, home=home) as stage:
        await stage.agent.ask("go")
        (ended,) = of(stage.log, "dispatch_ended")
        assert ended.value == {"used": 1_050, "window": None}
        assert stage.loop.context.used() > 0
