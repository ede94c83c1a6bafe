"""Many kernels beside each other, real ones: the gate, the limit, and what may be closed for another."""

from __future__ import annotations

import asyncio
import resource
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import psutil
import pytest
from kernels import Kernel, kernel, needs_numbers_of_the_host

from prime.errors import KernelStartFailed, TooManyKernels
from prime.repl.pool import Pool

pytestmark = pytest.mark.anyio


class Kernels:
    """Kernels of one pool, closed at the end."""

    def __init__(self, stack: AsyncExitStack, cwd: Path, pool: Pool) -> None:
        self._stack, self._cwd, self._pool = stack, cwd, pool

    def new(self) -> Kernel:
        made = kernel(self._cwd, pool=self._pool)
        self._stack.push_async_callback(made.repl.close)
        return made


async def test_thirty_two_at_once_all_get_ready(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs_numbers_of_the_host()
    async with AsyncExitStack() as stack:
        family = Kernels(stack, tmp_path, Pool())
        every = [family.new() for _ in range(32)]
        pids = [int(pid) for pid in await asyncio.gather(*(each.value("import os; os.getpid()") for each in every))]
        assert len(set(pids)) == 32
        own = sum(psutil.Process(pid).memory_full_info().uss for pid in pids)
        with capsys.disabled():
            print(f"\n32 kernels: {own / 32_000_000:.0f} MB of memory of its own each")


async def test_no_more_start_at_once_than_may_and_in_order(tmp_path: Path) -> None:
    pool, order, at_once, most = Pool(starts=2), [], 0, 0

    class Member:
        alive = False

        async def give_up(self, reason: str) -> bool:
            return False

    async def start(number: int) -> None:
        nonlocal at_once, most
        async with pool.starting(Member()):
            order.append(number)
            at_once, most = at_once + 1, max(most, at_once + 1)
            await asyncio.sleep(0)
            at_once -= 1

    starts = [asyncio.ensure_future(start(number)) for number in range(10)]
    await asyncio.sleep(0)
    starts[5].cancel()
    await asyncio.gather(*starts, return_exceptions=True)
    assert order == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert most == 2


async def test_a_start_that_waits_ends_with_its_cell_or_its_repl(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        pool = Pool(starts=1)
        family = Kernels(stack, tmp_path, pool)
        interrupted, closed, left = family.new(), family.new(), family.new()
        async with pool.starting(family.new().repl):
            running = [asyncio.ensure_future(each.cell("1")) for each in (interrupted, closed, left)]
            await asyncio.sleep(0)
            await interrupted.repl.interrupt()
            seen = await running[0]
            assert (seen.status, seen.ended.generation, len(seen.signals)) == ("interrupted", None, 1)
            await closed.repl.close()
            with pytest.raises(KernelStartFailed, match="closed while its kernel started"):
                await running[1]
            running[2].cancel()
            with suppress(asyncio.CancelledError):
                await running[2]
        assert await left.value("2") == "2"
        assert await interrupted.value("3") == "3"


async def test_over_the_limit_the_least_used_empty_one_is_closed(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        family = Kernels(stack, tmp_path, Pool(max_kernels=3))
        holds, older, newer, another = (family.new() for _ in range(4))
        await holds.cell("kept = 1")
        await newer.cell("1")
        await older.cell("1")
        await newer.cell("2")
        assert await another.value("3") == "3"
        assert (holds.repl.alive, older.repl.alive, newer.repl.alive) == (True, False, True)
        again = await older.cell("4")
        assert again.lost[0].reason == "closed while idle and empty, to make room for another kernel"
        assert (again.result, again.started[0].generation) == ("4", 2)
        assert await holds.value("kept") == "1"


@pytest.mark.parametrize(
    "code", ["kept = 1", "import subprocess; subprocess.Popen(['sleep', '600']).pid\ndel subprocess"]
)
async def test_what_is_needed_is_not_closed(tmp_path: Path, code: str) -> None:
    async with AsyncExitStack() as stack:
        family = Kernels(stack, tmp_path, Pool(max_kernels=1))
        needed, another = family.new(), family.new()
        await needed.cell(code)
        with pytest.raises(TooManyKernels, match=r"^all 1 kernels are alive, .*close an agent .* max_kernels$"):
            await another.cell("1")
        assert needed.repl.alive
        await needed.repl.close()
        assert await another.value("1") == "1"


async def test_one_that_runs_a_cell_is_not_closed(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        family = Kernels(stack, tmp_path, Pool(max_kernels=1))
        busy, another = family.new(), family.new()
        ready = asyncio.Event()
        code = "print('ready', flush=True)\nawait asyncio.sleep(60)"
        cell = asyncio.ensure_future(busy.cell(code, on=lambda said: ready.set()))
        await ready.wait()
        with pytest.raises(TooManyKernels):
            await another.cell("1")
        await busy.repl.interrupt()
        assert (await cell).status == "interrupted"


async def test_want_of_descriptors_is_tried_again_and_then_told(tmp_path: Path) -> None:
    running = kernel(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with tempfile.TemporaryFile() as last:
        resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 3, hard))
        try:
            with pytest.raises(KernelStartFailed, match=r"no kernel after 3 tries; .*: .*Too many open files"):
                await running.cell("1")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        assert await running.value("1") == "1"
    finally:
        await running.repl.close()


async def test_no_folder_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(
        KernelStartFailed, match=r"no kernel after 3 tries; the last one: no folder or socket .*missing"
    ):
        await kernel(tmp_path).cell("1")
