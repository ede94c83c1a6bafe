"""History: what left the window is one call away, word for word."""

from __future__ import annotations

import base64
import functools
from pathlib import Path
from typing import Any

import pytest
from watch import of, shown

from prime import events as ev
from prime import locators
from prime.caps import Limits
from prime.errors import ToolFailed
from prime.events import FORMAT
from prime.history import SLICE, History
from prime.messages import ImagePart, Message, TextPart
from prime.policies.base import Options
from prime.repl.signals import Image
from prime.testing import ScriptedCell, scripted

pytestmark = pytest.mark.anyio

#: A window that nothing is done about.
PLAIN = Options(policy="transcript")


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
        assert {hit["kind"] for hit in first["hits"]} >= {"dispatch_input", "code"}
        assert [hit["seq"] for hit in again["hits"]] == [hit["seq"] for hit in first["hits"]]
        await stage.agent.ask("once more")
        third = of(stage.log, "dispatch_ended")[3].value
        assert {hit["turn"] for hit in third["hits"]} == {1, 2}
        assert not [hit for hit in third["hits"] if hit["name"].startswith("history.")]
        assert {hit["kind"] for hit in third["hits"] if hit["turn"] == 2} >= {"user", "reply"}


async def test_search_in_a_cell_by_hand_does_not_find_itself(home: Path) -> None:
    async with scripted([], calling, home=home) as stage:
        await stage.agent.cell("history.search {'query': 'needle'}")
        (ended,) = of(stage.log, "dispatch_ended")
        assert ended.value["hits"] == ()


async def test_every_hit_names_a_call_that_returns_it(played: list[dict[str, Any]], home: Path) -> None:
    async with scripted(played, calling, home=home) as stage:
        await stage.agent.ask("hide it")
        history = History(stage.log.store)
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
    async with scripted([{"code": "x"}, {"text": "done"}], play, home=home, limits=limits, options=PLAIN) as stage:
        await stage.agent.ask("go")
        result = stage.provider.requests[-1].messages[-1].parts[0].text  # type: ignore[union-attr]
        assert len(result.encode()) <= 1_000
        call = result.partition("`await history.")[2].partition("`")[0]
        expanded = await eval(f"history.{call}", {"history": History(stage.log.store)})
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
        expand, seq = functools.partial(History(stage.log.store).expand, format=FORMAT), len(stage.log) - 1
        assert (await expand(seq, lines="7")).text == "line 7"
        assert (await expand(seq, lines="99-300")).text == "line 99\nline 100"
        expected = "2 of 20 lines match '9$'\n7- line 7\n8- line 8\n9: line 9\n10- line 10\n11- line 11"
        expected += "\n...\n17- line 17\n18- line 18\n19: line 19\n20- line 20"
        assert (await expand(seq, grep="9$", lines="1-20")).text == expected
        assert (await expand(seq, grep="LINE 100")).text.startswith("1 of 100 lines match")
        assert (await expand(seq, grep="absent")).text == "0 of 100 lines match 'absent'"
        wrongs = ("0", "5-2", "x", " ", "101", "200-300")
        for wrong in (*({"lines": lines} for lines in wrongs), {"grep": "("}, {"grep": " "}):
            with pytest.raises(ToolFailed):
                await expand(seq, **wrong)
        with pytest.raises(ToolFailed, match="there is no entry"):
            await expand(10_000)
        for stale in (None, FORMAT + 1):
            with pytest.raises(ToolFailed, match=r"get the number anew from history\.search"):
                await expand(10_000, format=stale)
        for wrong in ({"turn": 1}, {"seq": seq, "turn": 1, "step": 1}, {}, {"call": 1}):
            with pytest.raises(ToolFailed, match="give seq and format, or turn and step"):
                await expand(**wrong)


async def test_output_is_expanded_as_it_was_shown_and_raw_as_it_was_written(home: Path) -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        cell.print("\r 10%", stream="stderr")
        cell.print("\r100%\x1b[3", stream="stderr")
        cell.print("1mred\x1b[0m\n")
        return None

    async with scripted([], play, home=home) as stage:
        assert shown(await stage.agent.cell("x")) == "100%red"
        expand, seq = functools.partial(History(stage.log.store).expand, format=FORMAT), len(stage.log) - 1
        assert (await expand(seq)).text == "100%red\n"
        assert (await History(stage.log.store).read(seq)).text == "\r 10%\r100%\x1b[31mred\x1b[0m\n"


async def test_a_pattern_that_takes_forever_is_an_error(home: Path) -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        cell.print("a" * 60 + "b")
        return None

    async with scripted([], play, home=home) as stage:
        await stage.agent.cell("x")
        with pytest.raises(ToolFailed, match="takes too long"):
            await History(stage.log.store).expand(len(stage.log) - 1, format=FORMAT, grep="(a|aa)+$")


async def test_a_turn_and_a_step_are_told_again(played: list[dict[str, Any]], home: Path) -> None:
    async with scripted(played, calling, home=home) as stage:
        await stage.agent.ask("hide it")
        await stage.agent.ask("where is it?")
        history = History(stage.log.store)
        dialogue = await history.turn(1)
        assert [(said.kind, said.text) for said in dialogue.said if said.kind != "result"] == [
            ("user", "hide it"),
            ("reply", "Let me see."),
            ("reply", "The answer is haystack."),
        ]
        assert "turn 1 · completed · 2 steps · 1 cells" in dialogue.status
        (line,) = [said.text for said in dialogue.said if said.kind == "result"]
        assert "1 calls in it: history.step(turn=1, step=1)" in line
        for same in ("1", "slice-turn-1"):
            assert await history.turn(same) == dialogue
        full = await history.turn(1, "full")
        assert {"code", "output", "dispatch_input", "dispatch_output"} <= {said.kind for said in full.said}
        assert {said.name for said in full.said} == {"", "tools.write"}
        for unknown, known in ((9, "it has the turns 1 to 2"), (0, "1 to 2"), ("x", "is no turn")):
            with pytest.raises(ToolFailed, match=known):
                await history.turn(unknown)
        step = await history.step(1, 2)
        assert [said.kind for said in step.said] == ["reply"]
        for missing in ((9, 1), (1, 9)):
            with pytest.raises(ToolFailed, match="there is no"):
                await history.step(*missing)


async def test_a_page_of_a_turn_is_small_and_each_call_on_it_returns_the_whole(home: Path) -> None:
    outputs = {"a": "first\n" * 9_000, "b": "second 数据 😀\n" * 900, "bad": ""}

    async def play(code: str, cell: ScriptedCell) -> object:
        cell.print(outputs[code])
        if code == "bad":
            raise ValueError("no")
        return None

    async with scripted([{"code": ["a", "b", "bad"]}, {"text": "done"}], play, home=home) as stage:
        await stage.agent.ask("go")
        history = History(stage.log.store)
        page = await history.turn(1)
        assert sum(len(said.text) for said in page.said) < 500
        lines = [said.text for said in page.said if said.kind == "result"]
        texts = [(await called(history, line)).text for line in lines]
        assert texts[:2] == [outputs["a"], outputs["b"]]
        assert "ValueError: no" in texts[2]
        for call in (1, 2, 3):
            assert (await history.expand(turn=1, step=1, call=call)).text == texts[call - 1]
        assert (await history.expand(turn=1, step=1)).text == texts[0]
        with pytest.raises(ToolFailed, match="has 3 results; there is no 4"):
            await history.expand(turn=1, step=1, call=4)


async def test_what_a_policy_replaced_resolves_to_its_originals(home: Path) -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        cell.print("the whole output\n" * 100)
        return None

    async with scripted([{"text": "Look:", "code": "x"}, {"text": "done"}], play, home=home) as stage:
        await stage.agent.ask("go")
        log, history = stage.log, History(stage.log.store)
        (ended,) = log.entries(types=("cell_ended",))

        def replace(start: int, end: int, *sources: int, call_id: str | None = None) -> int:
            role = "tool" if call_id else "user"
            message = Message(role=role, parts=(TextPart(text="a view"),), call_id=call_id)
            event = ev.SurfaceReplaced(start=start, end=end, sources=sources, message=message, policy="test")
            return log.append(event)[0].seq

        view = replace(ended.seq, ended.seq, ended.seq, call_id=ended.event.call_id)
        again = replace(view, view, view, call_id=ended.event.call_id)
        for seq in (view, again):
            expanded = await history.expand(seq, format=FORMAT)
            assert (expanded.seq, expanded.text) == (ended.seq, "the whole output\n" * 100)
        seqs = log.state.surface.seqs
        tape = replace(seqs[1], seqs[-1], *seqs[1:])
        directory = (await history.expand(tape, format=FORMAT)).text.splitlines()
        assert len(directory) == 1 + len(seqs[1:])
        found = [(await called(history, line)).text for line in directory[1:]]
        assert found == ["Look:", "the whole output\n" * 100, "done"]
        assert (await history.read(tape)).text == "a view"


async def test_the_whole_log_can_be_paged_through_and_read(home: Path) -> None:
    whole = "".join(f"line {number} 数据😀\n" for number in range(3_000))

    async def play(code: str, cell: ScriptedCell) -> object:
        cell.print(whole)
        return None

    replies = [{"text": "Look:", "code": "x"}, {"text": "done"}]
    async with scripted(replies, play, home=home, options=PLAIN) as stage:
        await stage.agent.ask("go")
        history = History(stage.log.store)
        kinds, page = [], await history.browse(limit=2)
        while True:
            kinds += [item.kind for item in page.items]
            if page.next is None:
                break
            page = await called(history, page.next)
        assert kinds == ["reply", "output", "code", "reply", "user"]
        (item,) = (await history.browse("LINE 2999 数")).items
        assert "line 2999 数据😀" in item.preview
        part = await called(history, item.call)
        pieces = [part.text]
        while part.next is not None:
            part = await called(history, part.next)
            pieces.append(part.text)
        assert "".join(pieces) == whole
        assert {len(piece) for piece in pieces[:-1]} == {SLICE}
        for wrong in ({"before": -1}, {"before": 10_000}):
            with pytest.raises(ToolFailed, match="is no entry"):
                await history.browse(**wrong)
        (header,) = stage.log.entries(types=("header_changed",))
        with pytest.raises(ToolFailed, match="a header_changed, which has no text of its own"):
            await history.read(header.seq)
        with pytest.raises(ToolFailed, match="beyond the end"):
            await history.read(item.seq, len(whole) + 1)


async def test_what_a_refused_call_wanted_can_be_read(home: Path) -> None:
    replies = [{"text": "Look:", "call": {"name": "other", "arguments": '{"lost": "never"}'}}, {"text": "done"}]
    async with scripted(replies, home=home) as stage:
        await stage.agent.ask("go")
        (replied, _) = stage.log.entries(types=("model_replied",))
        history = History(stage.log.store)
        assert (await history.read(replied.seq)).text == 'Look:\nother({"lost": "never"})'
        assert (await history.expand(replied.seq, format=FORMAT)).text == "Look:"


async def test_reasoning_stays_private(home: Path) -> None:
    async with scripted([{"reasoning": "the secret thought", "text": "an answer"}], home=home) as stage:
        await stage.agent.ask("go")
        history = History(stage.log.store)
        assert (await history.search("secret")).hits == ()
        assert (await history.browse("secret")).items == ()
        assert "secret" not in str(await history.turn(1, "full"))


async def test_what_the_model_reads_is_short(home: Path) -> None:
    async with scripted([{"text": "an answer"}, {"text": "more"}], home=home) as stage:
        await stage.agent.ask("go")
        history = History(stage.log.store)
        views = {tool.target: tool for tool in history.tools()}
        for target, value in (
            ("history.search", await history.search("answer")),
            ("history.turn", await history.turn(1)),
            ("history.browse", await history.browse()),
            ("history.read", await history.read(await seq_of(history, "answer"))),
        ):
            text = views[target].for_model({}, views[target].canonical(value))
            assert "an answer" in text
            assert len(text) < 400


async def seq_of(history: History, query: str) -> int:
    return (await history.search(query)).hits[0].seq


async def called(history: History, text: str) -> Any:
    """Evaluate the first call that a text names."""
    return await eval(locators.calls(text)[0], {"history": history})


async def test_each_picture_comes_back_by_the_call_that_is_named_and_is_seen(home: Path) -> None:
    def picture(content: str) -> str:
        return base64.b64encode(content.encode()).decode()

    async def play(code: str, cell: ScriptedCell) -> object:
        if code == "draw":
            cell.print("two of them:\n")
            for content in ("one", "two"):
                cell.show("", image=Image("image/jpeg", picture(content)))
            return None
        await cell.call("history.read", **eval(code))
        cell.show("", call=cell.last_call)
        return None

    asked = [ImagePart(media_type="image/png", data=picture("asked"))]
    script = [{"code": "draw"}, {"text": "done"}]
    async with scripted(script, play, home=home, options=PLAIN) as stage:
        await stage.agent.ask("look", asked)
        history = History(stage.log.store)
        said, drawn = (next(iter(stage.log.entries(types=(kind,)))).seq for kind in ("user_said", "cell_ended"))
        expanded = await history.expand(drawn, format=FORMAT)
        written = await history.read(drawn)
        assert expanded.picture == written.picture == f"history.read({drawn}, picture=1)"
        names = {"history": history}
        first = await eval(expanded.picture, names)
        second = await eval(first.next, names)
        assert [(each.media_type, each.image) for each in (first, second)] == [
            ("image/jpeg", picture("one")),
            ("image/jpeg", picture("two")),
        ]
        assert second.next is None
        with pytest.raises(ToolFailed, match=f"entry {drawn} has 2 pictures; there is no 3"):
            await history.read(drawn, picture=3)
        assert (await history.read(said, picture=1)).image == picture("asked")  # type: ignore[union-attr]
        for view in ("dialogue", "full"):
            told = str(await history.turn(1, view))  # type: ignore[arg-type]
            assert f"1 pictures: history.read({said}, picture=1)" in told
            assert f"2 pictures: history.read({drawn}, picture=1)" in told
        ended = await stage.agent.cell(f"dict(seq={drawn}, picture=1)")
        assert shown(ended) == f"[picture 1 of 2 · image/jpeg · {first.next}]\n[image 1: image/jpeg]"
        assert ended.shown[1:] == (ImagePart(media_type="image/jpeg", data=picture("one")),)


async def test_a_picture_alone_is_listed(home: Path) -> None:
    async with scripted([{"text": "I see."}], home=home, options=PLAIN) as stage:
        await stage.agent.ask("", [ImagePart(media_type="image/png", data="AAAA")])
        history = History(stage.log.store)
        item = (await history.browse()).items[-1]
        assert (item.kind, item.size, item.preview) == ("user", 0, "")
        alone = await eval(item.call, {"history": history})
        assert (await eval(alone.picture, {"history": history})).image == "AAAA"


async def test_what_a_refused_call_asked_for_is_in_the_whole_of_its_step(home: Path) -> None:
    wanted = '{"to": "the moon'
    calls = [{"name": "repl", "arguments": {"code": "1"}}, {"name": "fly", "arguments": wanted}]
    async with scripted([{"call": calls}, {"text": "done"}], home=home, options=PLAIN) as stage:
        await stage.agent.ask("go")
        history = History(stage.log.store)
        *_, line = [said.text for said in (await history.turn(1)).said if said.kind == "result"]
        assert line.endswith("what was asked for: history.step(turn=1, step=1)]")
        for told in (await history.step(turn=1, step=1), await history.turn(1, view="full")):
            kinds = [said.kind for said in told.said if said.step == 1]
            assert kinds == ["reply", "code", "output", "call", "error"]
            (asked,) = [said for said in told.said if said.kind == "call"]
            assert (asked.name, asked.text) == ("fly", wanted)
            assert f"fly({wanted})" in (await history.read(asked.seq)).text  # type: ignore[union-attr]
