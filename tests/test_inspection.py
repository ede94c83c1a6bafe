"""A look into a running cell: real kernels, whose cells hold the main thread, await, or call the host."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from kernels import Kernel, Seen, kernel
from prime_kernel.wire import Sized

from prime.repl.signals import HostCall, Inspection, Output, Signal

pytestmark = pytest.mark.anyio


@pytest.fixture
async def k(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Kernel]:
    monkeypatch.chdir(tmp_path)
    made = kernel(tmp_path)
    yield made
    await made.repl.close()


async def seen_in(k: Kernel, code: str) -> tuple[Inspection, Seen]:
    """Run a cell, look into it once it has printed something, and let it go on, by creating the file ``go``."""
    ready = asyncio.Event()

    def on(signal: Signal) -> None:
        if isinstance(signal, Output):
            ready.set()

    running = asyncio.create_task(k.cell(code, on=on))
    await ready.wait()
    inspection = await k.repl.inspect()
    await asyncio.to_thread(Path("go").touch)
    assert inspection is not None
    return inspection, await running


def texts(inspection: Inspection) -> dict[str, str]:
    return {each.name: each.text for each in inspection.names}


async def test_there_is_nothing_to_see_before_a_kernel_runs(k: Kernel) -> None:
    assert await k.repl.inspect() is None


async def test_an_idle_kernel_shows_its_names_and_no_place(k: Kernel) -> None:
    await k.cell("rows = [0] * 1000\n_own = 1\nname = 'é' * 12\nimport math\ndef f(): pass\nclass C: pass\nc = C()")
    inspection = await k.repl.inspect()
    assert inspection is not None
    assert inspection.names == (
        Sized("rows", "list[1000]"),
        Sized("name", "str[12]"),
        Sized("math", "module"),
        Sized("f", "function"),
        Sized("C", "type"),
        Sized("c", "C"),
    )
    assert (inspection.cell, inspection.elapsed_s, inspection.stack, inspection.calls) == (None, None, (), ())
    assert inspection.answered
    assert inspection.connection.endswith("kernel.json")


SYNC_LOOP = """
import os
rows = []
def wait():
    while not os.path.exists("go"):
        rows.append(len(rows))
    return len(rows) > 0
print("ready")
wait()
"""

ASLEEP = """
import os, time
print("ready")
while not os.path.exists("go"):
    time.sleep(0.05)
"""

AWAITING = """
import os
async def nap():
    while not os.path.exists("go"):
        await asyncio.sleep(0.01)
print("ready")
await nap()
"""


@pytest.mark.parametrize(
    ("code", "functions", "sources"),
    [
        (SYNC_LOOP, ["<module>", "wait"], ["wait()"]),
        (ASLEEP, ["<module>"], []),
        (AWAITING, ["<module>", "nap"], ["await nap()", "await asyncio.sleep(0.01)"]),
    ],
    ids=["loop", "sleep", "await"],
)
async def test_a_running_cell_is_seen_where_it_is_and_goes_on(
    k: Kernel, code: str, functions: list[str], sources: list[str]
) -> None:
    inspection, seen = await seen_in(k, code)
    assert seen.status == "ok"
    assert inspection.answered
    assert [place.function for place in inspection.stack] == functions
    assert [place.source for place in inspection.stack][: len(sources)] == sources
    assert {place.file for place in inspection.stack} == {"<cell 1>"}
    assert inspection.cell == "cell-1"
    assert inspection.elapsed_s is not None
    assert 0 < inspection.elapsed_s <= seen.ended.duration_s
    assert texts(inspection)["os"] == "module"


async def test_calls_in_flight_are_named(k: Kernel) -> None:
    called = asyncio.Event()

    def on(signal: Signal) -> None:
        if isinstance(signal, HostCall) and signal.target == "tools.never":
            called.set()

    running = asyncio.create_task(k.cell("await tools.echo(value=1)\nawait tools.never()", on=on))
    await called.wait()
    inspection = await k.repl.inspect()
    await k.repl.interrupt()
    await running
    assert inspection is not None
    assert inspection.calls == ("tools.never",)
    assert [place.source for place in inspection.stack] == ["await tools.never()"]


async def test_no_code_of_the_users_is_run_for_a_look(k: Kernel) -> None:
    await k.cell("""
ran = []
class Meta(type):
    __module__ = property(lambda cls: ran.append("module") or "x")
    def __getattribute__(cls, name): ran.append(name); return type.__getattribute__(cls, name)
class Odd(list, metaclass=Meta):
    def __len__(self): ran.append("len"); return 1
    def __getattribute__(self, name): ran.append(name); return list.__getattribute__(self, name)
class ndarray:
    shape = property(lambda self: ran.append("shape"))
ndarray.__module__ = "numpy"
odd, fake = Odd(), ndarray()
ran.clear()
""")
    inspection = await k.repl.inspect()
    assert inspection is not None
    assert texts(inspection)["fake"] == "numpy.ndarray"
    assert texts(inspection)["ran"] == "list[0]"
    assert await k.value("ran") == "[]"


async def test_arrays_and_frames_show_their_shape(k: Kernel) -> None:
    await k.cell("import numpy, pandas\na = numpy.zeros((3, 4))\nt = pandas.DataFrame({'x': [1, 2]})\ns = t['x']")
    inspection = await k.repl.inspect()
    assert inspection is not None
    seen = texts(inspection)
    assert seen["a"] == "numpy.ndarray (3, 4) float64"
    assert seen["t"].endswith("DataFrame (2, 1)")
    assert seen["s"].endswith("Series (2,) int64")


async def test_what_is_shown_is_bounded(k: Kernel) -> None:
    await k.cell("""
for i in range(500):
    globals()[f"n{i}"] = i
globals()["x" * 100_000] = 1
T = type("T" * 100_000, (), {})
n0 = T()
def deep(n):
    if n: return deep(n - 1)
    print("ready")
    import os
    while not os.path.exists("go"): pass
""")
    inspection, seen = await seen_in(k, "deep(900)")
    assert seen.status == "ok"
    assert len(inspection.names) == 200
    assert inspection.further >= 300
    assert max(len(each.name) + len(each.text) for each in inspection.names) <= 400
    assert len(inspection.stack) == 20


def stop(pid: int) -> None:
    process = psutil.Process(pid)
    process.suspend()
    while process.status() != psutil.STATUS_STOPPED:  # it may be another's child, for which nobody here can wait
        time.sleep(0.001)


async def test_a_kernel_that_cannot_answer_is_said_to_be_silent(k: Kernel) -> None:
    """Stopped, it is as silent as one whose interpreter a C call holds."""
    ((started,),) = [(await k.cell("x = 1")).started]
    await asyncio.to_thread(stop, started.pid)
    try:
        silent = await k.repl.inspect()
    finally:
        os.kill(started.pid, signal.SIGCONT)
    assert silent is not None
    assert (silent.answered, silent.names, silent.generation) == (False, (), 1)
    after = await k.repl.inspect()
    assert after is not None
    assert after.names == (Sized("x", "int"),)
