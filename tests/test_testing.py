"""The shipped doubles behave as the real things do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from prime.errors import CellBusy, KernelStartFailed, ToolFailed
from prime.repl.signals import CallCancelled, Ended, Error, HostCall, Lost, Output, Signal, Started, Value
from prime.testing import ScriptedCell, ScriptedRepl, scripted
from prime.tools.base import tool

pytestmark = pytest.mark.anyio


async def all_of(repl: ScriptedRepl, code: str = "x", timeout_s: float | None = None) -> list[Signal]:
    return [signal async for signal in repl.run(code, cell="c", timeout_s=timeout_s)]


async def test_the_first_cell_starts_it_and_a_cell_ends_once() -> None:
    repl = ScriptedRepl(generation=4)
    first = await all_of(repl)
    assert [type(signal) for signal in first] == [Started, Output, Ended]
    assert [type(signal) for signal in await all_of(repl)] == [Output, Ended]
    assert isinstance(first[0], Started)
    assert first[0].generation == repl.generation == 4


async def test_one_cell_at_a_time() -> None:
    repl = ScriptedRepl()
    cell = repl.run("x", cell="c")
    await anext(cell)
    with pytest.raises(CellBusy):
        await all_of(repl)
    await cell.aclose()
    assert isinstance((await all_of(repl))[-1], Ended)


async def test_a_cell_waits_for_the_answers_of_its_calls() -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        cell.submit("tools.a")
        with pytest.raises(ToolFailed, match="no"):
            await cell.call("tools.b")
        return None

    repl = ScriptedRepl(play)
    seen: list[Signal] = []
    async for signal in repl.run("x", cell="c"):
        seen.append(signal)
        if isinstance(signal, HostCall) and signal.call == 2:
            await repl.answer(2, Error("x", "no"))
            asyncio.get_running_loop().call_later(0.01, lambda: asyncio.ensure_future(repl.answer(1, Value(1))))
    assert isinstance(seen[-1], Ended)
    assert repl.answers == [(2, Error("x", "no")), (1, Value(1))]


async def test_an_interrupt_gives_open_calls_up() -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        await cell.submit("tools.a")
        return None

    repl = ScriptedRepl(play)
    seen: list[Signal] = []
    async for signal in repl.run("x", cell="c"):
        seen.append(signal)
        if isinstance(signal, HostCall):
            stopping = asyncio.ensure_future(repl.interrupt())
        if isinstance(signal, CallCancelled):
            await repl.answer(signal.call, Error("cancelled", ""))
    await stopping
    assert isinstance(seen[-1], Ended)
    assert seen[-1].status == "interrupted"


async def test_death_is_told_and_the_next_cell_starts_a_new_one() -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        cell.die("no memory")

    repl = ScriptedRepl(play)
    assert [type(signal) for signal in await all_of(repl)] == [Started, Lost, Ended]
    assert [type(signal) for signal in await all_of(repl)] == [Started, Lost, Ended]
    assert repl.generation == 2


async def test_a_closed_one_starts_nothing() -> None:
    repl = ScriptedRepl()
    await repl.close()
    with pytest.raises(KernelStartFailed):
        await all_of(repl)


async def test_the_example_of_the_module_works(tmp_path: Path) -> None:
    @tool
    def lookup(id: int) -> dict[str, str]:
        """One customer by id."""
        return {"name": f"customer {id}"}

    async def play(code: str, cell: ScriptedCell) -> object:
        page = await cell.call("tools.lookup", id=7)
        cell.print(page["name"])
        return None

    async with scripted([{"code": "..."}, {"text": "done"}], play, home=tmp_path, tools=[lookup]) as stage:
        assert (await stage.agent.ask("Who is 7?")).text == "done"
        assert "customer 7" in str(stage.provider.requests[-1].messages)
