"""The host's record of a cell, and what it makes of a kernel's messages, whatever they hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from prime_kernel.wire import CellDone, Name
from strategies import json_values

from prime.repl.cell import Cell, output
from prime.repl.signals import Ended, HostCall, Image, Lost, Output, Signal

pytestmark = pytest.mark.anyio

DONE = CellDone("c", None, (Name("a", "int"),), ("b",), ("tools.x: failed: no",), 7)


async def all_of(cell: Cell) -> list[Signal]:
    return [signal async for signal in cell.signals()]


def message(kind: str, **content: Any) -> dict[str, Any]:
    return {"header": {"msg_type": kind}, "content": content}


@pytest.mark.parametrize("order", ["rid", "rdi", "ird", "idr", "dri", "dir"])
async def test_a_cell_ends_with_reply_idle_and_report_in_any_order(order: str) -> None:
    cell = Cell("c", 1, 1_000)
    for step in order:
        assert not cell.finished.is_set()
        if step == "r":
            cell.replied({"status": "ok"})
        elif step == "i":
            cell.idled()
        else:
            cell.reported(DONE)
    (ended,) = await all_of(cell)
    assert isinstance(ended, Ended)
    assert (ended.status, ended.set, ended.removed, ended.unawaited, ended.dropped) == (
        "ok",
        DONE.set,
        DONE.removed,
        DONE.unawaited,
        7,
    )


async def test_output_beyond_the_limit_is_counted() -> None:
    cell = Cell("c", 1, 1_000)
    for _ in range(1_000):
        cell.put(Output("stdout", "x" * 100))
    for _ in range(1_000):
        cell.put(Output("stdout", ""))
    cell.lost("gone")
    signals = await all_of(cell)
    outputs = [signal for signal in signals if isinstance(signal, Output)]
    assert 0 < sum(len(o.text) + 64 for o in outputs) <= 1_000
    assert signals[-2] == Lost(1, "gone")
    assert isinstance(signals[-1], Ended)
    assert signals[-1].dropped == 100_000 - sum(len(o.text) for o in outputs)


async def test_calls_crowd_and_make_room() -> None:
    cell = Cell("c", 1, 10)
    for number in range(600):
        cell.put(HostCall(number, "tools.x", {}))
    assert cell.crowded
    cell.lost("gone")
    seen = 0
    async for _ in cell.signals():
        seen += 1
        if seen == 500:
            assert cell.roomy
    assert seen == 602


@pytest.mark.parametrize(("stop", "status"), [(None, "error"), ("interrupted", "interrupted"), ("timeout", "timeout")])
async def test_why_it_was_stopped_is_the_status(stop: Any, status: str) -> None:
    cell = Cell("c", 1, 10)
    cell.stop = stop
    cell.reported(DONE)
    cell.idled()
    cell.replied({"status": "error", "ename": "E", "evalue": "v", "traceback": ["t"]})
    (ended,) = await all_of(cell)
    assert isinstance(ended, Ended)
    assert ended.status == status
    assert ended.error is not None
    assert (ended.error.name, ended.error.message, ended.error.traceback) == ("E", "v", "t")


def test_outputs() -> None:
    assert output(message("stream", name="stderr", text="e"), late=True) == Output("stderr", "e", late=True)
    data = {"text/plain": "p", "image/png": "aGk=\n", "text/html": "<p>"}
    shown = output(message("execute_result", data=data, metadata={"prime_call": 3}), late=False)
    assert shown == Output("result", "p", image=Image("image/png", "aGk="), call=3)
    assert output(message("display_data", data={"text/plain": "p"}), late=False) == Output("display", "p")
    assert output(message("clear_output", wait=True), late=False) == Output("stdout", "\x1b[H\x1b[2J")
    assert output(message("comm_open"), late=False) is None
    data = {"text/plain": "p", "image/svg+xml": "<svg/>"}
    assert output(message("display_data", data=data), late=False) == Output("display", "p", svg="<svg/>")


@given(json_values, json_values)
def test_no_message_makes_it_raise(one: Any, two: Any) -> None:
    for kind in ("stream", "execute_result", "display_data", "other"):
        output(message(kind, data=one, metadata=two, name=one, text=two), late=False)
        output(message(kind, data={"text/plain": one, "image/png": two}, metadata={"prime_call": one}), late=False)
