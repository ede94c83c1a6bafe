"""One cell from its code to its result, with a scripted kernel."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
from watch import happened, kinds, of, shown

from prime.caps import Limits
from prime.errors import KernelStartFailed
from prime.messages import ImagePart, TextPart, text_of
from prime.repl.signals import Image, Output, Signal
from prime.testing import ScriptedCell, ScriptedRepl, scripted
from prime.tools.base import tool

pytestmark = pytest.mark.anyio


async def plays(code: str, cell: ScriptedCell) -> object:
    """Do what the code says in one word."""
    match code.split():
        case ["bind", *names]:
            cell.bind(**dict.fromkeys(names, "int"))
        case ["unbind", *names]:
            cell.unbind(*names)
        case ["syntax"]:
            raise SyntaxError("line 1, column 3")
        case ["die"]:
            cell.die("killed by signal 9")
        case ["hang"]:
            await asyncio.Event().wait()
        case ["stubborn"]:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.Event().wait()
        case _:
            return code
    return None


async def test_the_cell_after_a_loss_says_so_once_and_names_what_is_gone(home: Path) -> None:
    async with scripted([], plays, home=home) as stage:
        run = stage.agent.cell
        await run("bind a b c")
        await run("unbind b")
        died = await run("die")
        assert died.status == "died"
        assert "killed by signal 9" in shown(died)
        assert "restarted" not in shown(died)
        refused = await run("syntax")
        assert refused.generation is None
        assert "restarted" not in shown(refused)
        first = await run("bind d")
        assert first.generation == 2
        assert "Gone: a, c." in shown(first)
        assert "restarted" not in shown(await run("more"))
        assert [event.generation for event in of(stage.log, "kernel_lost")] == [1]


async def test_a_kernel_lost_between_two_cells_is_told_to_the_next(home: Path) -> None:
    async with scripted([], plays, home=home) as stage:
        await stage.agent.cell("bind a")
        stage.repl.die("out of memory")
        ended = await stage.agent.cell("x")
        assert "Gone: a." in shown(ended)
        assert [event.reason for event in of(stage.log, "kernel_lost")] == ["out of memory"]
        assert [event.generation for event in of(stage.log, "kernel_started")] == [1, 2]


async def test_the_first_cell_that_runs_carries_the_notice_also_when_it_fails(home: Path) -> None:
    async with scripted([], plays, home=home) as stage:
        await stage.agent.cell("bind a")
        await stage.agent.cell("die")
        assert "Gone: a." in shown(await stage.agent.cell("die"))
        second = shown(await stage.agent.cell("x"))
        assert "restarted" in second
        assert "Gone" not in second


async def test_a_resumed_and_a_forked_session_have_lost_their_names(home: Path) -> None:
    async with scripted([], plays, home=home) as stage:
        await stage.agent.cell("bind a")
    async with scripted([], plays, home=home, session=stage.log.session) as again:
        ended = await again.agent.cell("x")
        assert ended.generation == 2
        assert "Gone: a." in shown(ended)
        assert "restarted" not in shown(await again.agent.cell("x"))


async def test_the_first_cell_of_a_session_has_lost_nothing(home: Path) -> None:
    async with scripted([], plays, home=home) as stage:
        assert shown(await stage.agent.cell("syntax")) == "SyntaxError: line 1, column 3"
        assert shown(await stage.agent.cell("x")) == "'x'"


async def test_a_cell_past_its_time_is_stopped(home: Path) -> None:
    async with scripted([], plays, home=home, limits=Limits(cell_timeout_s=0.02)) as stage:
        ended = await stage.agent.cell("hang")
        assert ended.status == "timeout"
        assert "time limit" in shown(ended)


async def test_a_cell_that_does_not_stop_is_killed_with_its_kernel(home: Path) -> None:
    async with scripted([], plays, home=home, limits=Limits(cell_timeout_s=0.02)) as stage:
        ended = await stage.agent.cell("stubborn")
        assert ended.status == "killed"
        assert kinds(stage.log)[-2:] == ["kernel_lost", "cell_ended"]


async def test_a_kernel_that_cannot_start_is_a_result(home: Path) -> None:
    class Broken(ScriptedRepl):
        async def _start(self) -> object:
            raise KernelStartFailed("there is no ipykernel; install it")

    async with scripted([{"code": "x"}, {"text": "so be it"}], Broken(), home=home) as stage:
        assert (await stage.agent.ask("go")).text == "so be it"
        (ended,) = of(stage.log, "cell_ended")
        assert (ended.status, ended.generation) == ("died", None)
        assert "there is no ipykernel; install it" in shown(ended)


async def test_output_is_logged_whole_and_late_output_is_not_shown(home: Path) -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        cell.print("from before\n", late=True)
        cell.print("out\n")
        cell.print("err\n", stream="stderr")
        return None

    async with scripted([], play, home=home) as stage:
        assert shown(await stage.agent.cell("x")) == "out\nerr"
        outputs = [(event.stream, event.text, event.late) for event in of(stage.log, "cell_output")]
        assert outputs == [("stdout", "from before\n", True), ("stdout", "out\n", False), ("stderr", "err\n", False)]


async def test_text_that_no_log_can_hold_is_shown_as_far_as_it_can_be(home: Path) -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        cell.print("a\ud800b\n")
        raise ValueError("bad \udcff name")

    async with scripted([], play, home=home) as stage:
        ended = await stage.agent.cell("x")
        assert shown(ended) == "a\ufffdb\nValueError: bad \ufffd name"


async def test_an_image_goes_into_the_request(home: Path) -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        cell.show("<Figure>", image=Image("image/png", "AAAA"))
        return None

    async with scripted([{"code": "x"}, {"text": "a cat"}], play, home=home) as stage:
        await stage.agent.ask("what is it?")
        text, image = stage.provider.requests[-1].messages[-1].parts
        assert image == ImagePart(media_type="image/png", data="AAAA")
        assert isinstance(text, TextPart)
        assert "[image 1: image/png]" in text.text


async def test_an_svg_is_drawn_and_its_source_is_kept(home: Path) -> None:
    source = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9"/></svg>'

    class Drawing(ScriptedRepl):
        async def run(self, code: str, *, cell: str, timeout_s: float | None = None) -> AsyncGenerator[Signal, None]:
            async with aclosing(super().run(code, cell=cell, timeout_s=timeout_s)) as signals:
                async for signal in signals:
                    yield replace(signal, svg=code) if isinstance(signal, Output) else signal

    async def play(code: str, cell: ScriptedCell) -> object:
        cell.show("<Vector>")
        return None

    async with scripted([], Drawing(play), home=home) as stage:
        drawn = await stage.agent.cell(source)
        assert shown(drawn) == "<Vector>\n[image 1: image/png]"
        assert isinstance(drawn.shown[1], ImagePart)
        (output,) = of(stage.log, "cell_output")
        assert (output.svg, output.image) == (source, drawn.shown[1])
        bad = await stage.agent.cell("<page>")
        assert shown(bad) == ("<Vector>\n[svg image of 6 characters, not shown: it cannot be drawn here; render a png]")


def brief(arguments: dict[str, object], value: dict[str, object]) -> str:
    return f"{arguments['word']}: {value['length']} letters"


@tool(for_model=brief, parallel=True, effects=False)
def measure(word: str) -> dict[str, object]:
    """Measure a word."""
    return {"length": len(word), "media_type": "image/png", "image": "AAAA"}


async def test_a_tools_own_form_is_shown_for_its_untouched_value_only(home: Path) -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        value = await cell.call("tools.measure", word="four")
        cell.show(repr(value), call=cell.last_call if code == "untouched" else None)
        return None

    async with scripted([], play, home=home, tools=[measure]) as stage:
        untouched = await stage.agent.cell("untouched")
        assert shown(untouched).startswith("four: 4 letters")
        assert untouched.shown[1:] == (ImagePart(media_type="image/png", data="AAAA"),)
        touched = await stage.agent.cell("touched")
        assert "'length': 4" in shown(touched)
        assert len(touched.shown) == 1
        # the log says what the text is, so that a policy can condense it as such
        own, plain = of(stage.log, "cell_output")
        assert (own.target, own.arguments) == ("tools.measure", {"word": "four"})
        assert (plain.target, plain.arguments) == (None, None)


async def test_the_words_around_an_output_are_known(home: Path) -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        if code == "die":
            cell.die("gone")
        return 5

    async with scripted([{"code": "die"}, {"code": "x"}, {"text": "done"}], play, home=home) as stage:
        await stage.agent.ask("go")
        _, ended = of(stage.log, "cell_ended")
        assert ended.before.startswith("[the kernel was restarted")
        assert ended.after.startswith("[context: ")
        assert shown(ended) == f"{ended.before}\n5\n{ended.after}"


async def test_a_call_that_failed_or_waits_for_an_earlier_one_shows_in_the_plain_form(home: Path) -> None:
    gate = asyncio.Event()

    @tool(parallel=True, effects=False)
    async def wait() -> int:
        """Wait."""
        await gate.wait()
        return 1

    async def play(code: str, cell: ScriptedCell) -> object:
        slow = cell.submit("tools.wait")
        await cell.call("tools.measure", word="four")
        cell.show("plain", call=cell.last_call)
        await asyncio.sleep(0.01)
        gate.set()
        await slow
        return None

    async with scripted([], play, home=home, tools=[measure, wait]) as stage:
        assert shown(await stage.agent.cell("x")) == "plain"
        assert [event.call for event in of(stage.log, "dispatch_ended")] == [1, 2]


async def test_an_interrupt_stops_the_calls_of_the_cell_inside_it(home: Path) -> None:
    @tool(parallel=True, effects=False)
    async def forever() -> int:
        """Never end."""
        await asyncio.Event().wait()
        return 1

    async def play(code: str, cell: ScriptedCell) -> object:
        await asyncio.gather(*(cell.submit("tools.forever") for _ in range(20)))
        return None

    async with scripted([{"code": "x"}], play, home=home, tools=[forever]) as stage:
        asking = asyncio.create_task(stage.agent.ask("go"))
        await happened(stage.log, "dispatch_started", 16)
        stage.agent.interrupt()
        assert (await asking).reason == "cancelled"
        (ended,) = of(stage.log, "cell_ended")
        assert ended.calls == 20
        assert "may have had effects" in shown(ended)
        # the four that waited never began and left nothing; each of the others has its end inside the cell
        assert len(of(stage.log, "dispatch_started")) == len(of(stage.log, "dispatch_ended")) == 16
        assert sorted(call for call, _ in stage.repl.answers) == list(range(1, 21))


async def test_the_calls_of_a_kernel_that_died_are_stopped(home: Path) -> None:
    @tool(parallel=True, effects=False)
    async def forever() -> int:
        """Never end."""
        await asyncio.Event().wait()
        return 1

    async def play(code: str, cell: ScriptedCell) -> object:
        cell.submit("tools.forever")
        await happened(stage.log, "dispatch_started")
        cell.die("killed by signal 9")

    async with scripted([], play, home=home, tools=[forever]) as stage, asyncio.timeout(10):
        ended = await stage.agent.cell("x")
        assert ended.status == "died"
        assert "may have had effects" in shown(ended)
        assert of(stage.log, "dispatch_ended")[0].error.code == "cancelled"


async def test_a_tool_that_ends_the_program_does_not_end_the_agent(home: Path) -> None:
    @tool
    def leave() -> None:
        """Leave."""
        sys.exit(3)

    async def play(code: str, cell: ScriptedCell) -> object:
        return await cell.call("tools.leave")

    async with scripted([], play, home=home, tools=[leave]) as stage:
        assert (await stage.agent.cell("x")).status == "error"
        assert of(stage.log, "dispatch_ended")[0].error.code == "failed"


async def test_a_rendering_that_breaks_does_not_break_the_cell(home: Path) -> None:
    @tool(for_model=lambda arguments, value: 1 / 0)  # type: ignore[arg-type,return-value]
    def one() -> int:
        """One."""
        return 1

    async def play(code: str, cell: ScriptedCell) -> object:
        await cell.call("tools.one")
        cell.show("1", call=cell.last_call)
        return None

    async with scripted([], play, home=home, tools=[one]) as stage:
        assert text_of((await stage.agent.cell("x")).shown) == "1"
