"""Another Jupyter client that is attached to the kernel of a running repl."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import visitor
from kernels import Kernel, kernel

from prime.repl.signals import Output, Signal

pytestmark = pytest.mark.anyio

#: A cell that says it runs, by the file ``here``, and ends when there is the file ``go``.
HOLDS = "import os, time\nopen('here', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)\n"


@pytest.fixture
async def k(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Kernel]:
    monkeypatch.chdir(tmp_path)
    made = kernel(tmp_path)
    yield made
    await made.repl.close()


async def visit(k: Kernel, *codes: str) -> list[list[str]]:
    """Run cells from another process; see :mod:`visitor`."""
    inspection = await k.repl.inspect()
    assert inspection is not None
    process = await asyncio.create_subprocess_exec(
        sys.executable, visitor.__file__, inspection.connection, *codes, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    answers: list[list[str]] = json.loads(output)
    return answers


def wait_for(path: Path) -> None:
    for _ in range(3_000):
        if path.exists():
            return
        time.sleep(0.01)
    raise TimeoutError(path)


async def test_a_client_sees_the_agents_names_and_may_not_call_the_host(k: Kernel) -> None:
    await k.cell("rows = [1, 2, 3]\nasync def saved(): return await tools.echo(value=7)")
    plain, rows, call, saved, bound = await visit(
        k, "1 + 1", "rows", "tools.echo(value=1)", "await saved()", "mine = 5\nprint('from outside')"
    )
    assert plain == ["ok", "", "", "2"]
    assert rows == ["ok", "", "", "[1, 2, 3]"]
    for status, name, message, _ in (call, saved):
        assert (status, name) == ("error", "StaleLease")
        assert "a client that is attached to this kernel" in message
    assert bound == ["ok", "", "", "from outside\n"]
    after = await k.cell("print('agent'); await saved() + mine")
    assert after.status == "ok"
    assert after.ended.set == ()
    assert [output.text for output in after.outputs] == ["agent\n", "12"]


async def test_a_client_waits_for_the_agents_cell_and_their_output_is_kept_apart(k: Kernel) -> None:
    await k.cell("x = 1")
    ready = asyncio.Event()

    def on(signal: Signal) -> None:
        if isinstance(signal, Output):
            ready.set()

    running = asyncio.create_task(k.cell(f"print('one')\n{HOLDS}print('two')", on=on))
    await ready.wait()
    visiting = asyncio.create_task(visit(k, "print('visitor')"))
    await asyncio.sleep(0)
    await asyncio.to_thread(Path("go").touch)
    seen = await running
    following = await k.cell("print('three')")
    assert await visiting == [["ok", "", "", "visitor\n"]]
    assert [output.text for output in seen.outputs] == ["one\ntwo\n"]
    assert [output.text for output in following.outputs] == ["three\n"]


async def test_an_error_of_a_client_does_not_abort_the_cell_that_waits_behind_it(k: Kernel) -> None:
    await k.cell("x = 1")
    visiting = asyncio.create_task(visit(k, f"{HOLDS}print('visitor')\n1 / 0"))
    await asyncio.to_thread(wait_for, Path("here"))
    running = asyncio.create_task(k.cell("print('behind')"))
    sources = []
    while sources != ["while not os.path.exists('go'): time.sleep(0.01)"]:  # it may still close the file before that
        inspection = await k.repl.inspect()
        assert inspection is not None
        sources = [place.source for place in inspection.stack]
    await asyncio.to_thread(Path("go").touch)
    seen = await running
    ((status, name, _, shown),) = await visiting
    assert (status, name, shown) == ("error", "ZeroDivisionError", "visitor\n")
    assert seen.status == "ok"
    assert [output.text for output in seen.outputs] == ["behind\n"]


async def test_an_interrupt_of_a_waiting_cell_stops_the_clients_cell_too(k: Kernel) -> None:
    await k.cell("x = 1")
    visiting = asyncio.create_task(visit(k, HOLDS))
    await asyncio.to_thread(wait_for, Path("here"))
    running = asyncio.create_task(k.cell("time.sleep(60)"))
    inspection = await k.repl.inspect()
    assert inspection is not None
    assert inspection.cell == "cell-2"
    await k.repl.interrupt()
    seen = await running
    ((status, name, *_),) = await visiting
    assert (status, name) == ("error", "CellInterrupt")
    assert seen.status == "interrupted"
    assert await k.value("x") == "1"


async def test_a_client_may_not_end_the_kernel(k: Kernel) -> None:
    await k.cell("x = 1")
    refused, after = await visit(k, visitor.SHUT_DOWN, "x + 1")
    assert refused[:2] == ["error", "PermissionError"]
    assert "close the session instead" in refused[2]
    assert after == ["ok", "", "", "2"]
    seen = await k.cell("x")
    assert (seen.status, seen.result, seen.lost, seen.started) == ("ok", "1", [], [])


async def test_what_a_client_prints_does_not_count_against_the_agents_output(tmp_path: Path) -> None:
    k = kernel(tmp_path, output_limit=10_000)
    try:
        await k.cell("print('x' * 9_990)")
        assert await visit(k, "print('y' * 5_000)") == [["ok", "", "", "y" * 5_000 + "\n"]]
        assert (await k.cell("print('z')")).text() == "z\n"
    finally:
        await k.repl.close()
