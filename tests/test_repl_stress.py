"""The REPL under stress: a small part of ``python -m bench.stress``, and what its full runs have found."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kernels import Kernel, kernel

from bench.cells import kinds, specimen
from bench.stress import interrupts, shop, survive
from prime import events as ev

pytestmark = pytest.mark.anyio


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Kernel]:
    """A kernel shared by the cells of one test: what a test leaves behind in its kernel would disturb others."""
    running = kernel(tmp_path)
    yield running
    await running.repl.close()


async def test_sixty_interrupts_at_any_moment(tmp_path: Path) -> None:
    found = await interrupts(60, 7, tmp_path)
    assert sum(sum(statuses.values()) for statuses in found.statuses.values()) == 60


async def test_a_hundred_and_fifty_random_cells(tmp_path: Path) -> None:
    survival = await survive(150, 7, tmp_path)
    assert sum(survival.statuses.values()) == 150


async def test_cells_of_every_kind_end_as_they_must(tmp_path: Path) -> None:
    luck = random.Random(3)
    async with shop(tmp_path) as opened:
        for kind in kinds():
            for _ in range(2):
                cell = specimen(kind, luck)
                ended = await opened.cells.run(cell.code, None, asyncio.Event())
                assert ended.status in cell.ends, (kind, cell.code, ended)


@pytest.mark.parametrize(
    ("child", "code"),
    [
        ("pass", 0),
        ("sys.exit()", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('bye')", 1),
        ("1 / 0", 1),
        ("os._exit(4)", 4),
        ("await asyncio.sleep(0)", 70),
        ("await asyncio.sleep(60)", 1),
        ("await tools.echo(1)", 1),
    ],
)
@pytest.mark.parametrize("awaits", ["", "await asyncio.sleep(0)\n"])
async def test_a_forked_child_ends_with_the_cell_at_the_latest(
    shared: Kernel, awaits: str, child: str, code: int
) -> None:
    forking = f"import os, sys\npid = os.fork()\nif pid == 0:\n    {child}\nelse:\n"
    waiting = "    status = os.waitpid(pid, 0)[1]"
    seen = await shared.cell(f"{awaits}{forking}{waiting}", timeout_s=20)
    assert (seen.status, seen.lost) == ("ok", [])
    assert await shared.value("os.waitstatus_to_exitcode(status)") == str(code)


@pytest.mark.parametrize(
    ("forking", "code"),
    [
        ("pid = await asyncio.to_thread(os.fork)", 0),
        ("def f(): return os.fork() or 1 / 0\npid = await asyncio.to_thread(f)", 1),
        ("async def f(): return os.fork()\npid = await asyncio.ensure_future(f())", 70),
        ("t = threading.Thread(target=lambda: globals().update(pid=os.fork()))\nt.start()\nt.join()", 0),
    ],
)
async def test_a_child_forked_beside_the_cell_ends_too(shared: Kernel, forking: str, code: int) -> None:
    seen = await shared.cell(f"import os, threading\n{forking}\nstatus = os.waitpid(pid, 0)[1]", timeout_s=20)
    assert (seen.status, seen.lost) == ("ok", [])
    assert await shared.value("os.waitstatus_to_exitcode(status)") == str(code)


async def test_a_forked_child_prints_and_its_error_is_shown(shared: Kernel) -> None:
    seen = await shared.cell(
        "import os\npid = os.fork()\nif pid == 0:\n    print('child')\n    1 / 0\nelse: os.waitpid(pid, 0)"
    )
    assert seen.text() == "child\n"
    assert "ZeroDivisionError" in seen.text("stderr")


@pytest.mark.parametrize(
    "ends",
    [
        "async def f(): sys.exit(3)\nt = asyncio.ensure_future(f())",
        "async def f(): raise KeyboardInterrupt\nt = asyncio.ensure_future(f())",
        "asyncio.get_running_loop().call_soon(sys.exit)",
        "asyncio.get_running_loop().stop()",
    ],
)
async def test_what_ends_the_event_loop_does_not_end_the_kernel(shared: Kernel, ends: str) -> None:
    seen = await shared.cell(f"import sys\nkept = 1\n{ends}\nawait asyncio.sleep(0.05)\nprint('went on')", timeout_s=20)
    assert (seen.status, seen.text(), seen.lost) == ("ok", "went on\n", [])
    await shared.cell(f"{ends}\nNone")  # between cells, too
    assert await shared.value("kept") == "1"


@pytest.mark.parametrize("handler", ["signal.SIG_DFL", "signal.SIG_IGN", "print"])
async def test_a_cell_cannot_take_the_interrupt_away_from_later_ones(shared: Kernel, handler: str) -> None:
    await shared.cell(f"import signal\nkept = 1\nprevious = signal.signal(signal.SIGINT, {handler})")
    seen = await shared.interrupted("print('ready', flush=True)\nwhile True: pass")
    assert (seen.status, seen.lost) == ("interrupted", [])
    assert await shared.value("kept") == "1"


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_a_closed_standard_descriptor_is_open_again_in_the_next_cell(shared: Kernel, number: int) -> None:
    await shared.cell(f"import os\nbefore = os.fstat({number})\nos.close({number})")
    assert await shared.value(f"os.path.samestat(os.fstat({number}), before)") == "True"
    assert await shared.value("os.system('echo x >&2; cat')") == "0"


async def test_half_a_character_in_the_code_is_replaced(tmp_path: Path) -> None:
    async with shop(tmp_path) as opened:
        ended = await opened.cells.run("x = '\ud800'\nx == '\ufffd'", None, asyncio.Event())
        (started,) = opened.log.entries(types=("cell_started",))
    assert ended.status == "ok"
    assert "True" in "".join(part.text for part in ended.shown if part.type == "text")
    assert isinstance(started.event, ev.CellStarted)
    assert started.event.code.startswith("x = '\ufffd'")
