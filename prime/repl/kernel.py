"""The repl: a persistent IPython kernel as a stream of signals. See :class:`prime.repl.signals.Repl`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from prime_kernel.wire import Binding, Setup
from zmq import ZMQError

from prime.errors import CellBusy, KernelStartFailed
from prime.repl.cell import Cell
from prime.repl.deadline import Deadline
from prime.repl.live import LiveKernel
from prime.repl.pool import Pool
from prime.repl.process import Launch, Unusable
from prime.repl.signals import Ended, HostCall, Inspection, Lost, Outcome, Saved, Signal, Snapshot, Started

#: Default caps of one cell: host calls, and bytes of output.
MAX_CALLS = 10_000
OUTPUT_LIMIT = 16 * 1024 * 1024

#: The host keeps at most this many times the output limit of a cell. The kernel caps at the limit itself; this is for
#: one that does not, with room for what images and messages grow by on their way.
_HOST_CAP = 2

#: The interrupt ladder: SIGINT every this many seconds, and SIGKILL after that many.
_INTERRUPT_EVERY_S = 0.1
_KILL_AFTER_S = 2.0

#: Seconds before the second and the third try to start a kernel.
_BACK_OFF_S = (0.2, 1.0)


class KernelRepl:
    """A :class:`~prime.repl.signals.Repl` over kernel processes of this machine, one at a time, started when needed."""

    def __init__(
        self,
        bindings: tuple[Binding, ...],
        launch: Launch,
        *,
        waits: Collection[str] = (),
        generation: int = 1,
        max_calls: int = MAX_CALLS,
        output_limit: int = OUTPUT_LIMIT,
        pool: Pool | None = None,
    ) -> None:
        """Prepare a repl; nothing is started yet.

        Args:
            bindings: the host calls offered to cells.
            launch: how kernel processes are started.
            waits: the targets of those that wait for what has limits of its own: while one is open, a cell's deadline
                counts only the processor time of the kernel.
            generation: the number of the first kernel process.
            max_calls: host calls one cell may make.
            output_limit: bytes of output one cell may publish.
            pool: the kernels beside which it starts its own; by default it is alone.
        """
        self._setup = Setup(bindings, max_calls, output_limit, secrets.token_hex(16))
        self._launch = launch
        self._waits = frozenset(waits)
        self._pool = pool or Pool()
        self._generation = generation
        self._live: LiveKernel | None = None
        self._started: Started | None = None  # not yet yielded
        self._snapshot: Snapshot | None = None
        self._starting: asyncio.Task[None] | None = None
        self._cell: Cell | None = None
        self._deadline: Deadline | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._parting: asyncio.Task[None] | None = None
        self._saving: asyncio.Future[None] | None = None
        self._busy = False
        self._early = asyncio.Event()  # interrupted before the cell was submitted
        self._closed = False

    @property
    def alive(self) -> bool:
        """Whether a kernel process lives."""
        return self._live is not None and not self._live.lost.done()

    async def run(self, code: str, *, cell: str, timeout_s: float | None = None) -> AsyncGenerator[Signal, None]:
        """See :meth:`prime.repl.signals.Repl.run`. Closing the iterator early stops the cell.

        After ``CallCancelled`` an answer to the call is still owed: the cell ends when every call is answered.
        """
        if self._saving is not None:
            await asyncio.wait({self._saving})
        if self._busy:
            raise CellBusy("a cell is running in this kernel; wait for its end or interrupt it")
        self._busy = True
        self._early.clear()
        try:
            if self._parting is not None:
                await self._parting
            live = self._live
            if live is not None and not await live.check():
                self._live = None
                await live.close()
                # a prewarmed kernel that nobody has heard of is not missed either
                announced, self._started = self._started is None, None
                if announced:
                    yield Lost(live.generation, live.lost.result())
            await self._ensure()
            if self._started is not None:
                started, self._started = self._started, None
                yield started
            if self._early.is_set():
                yield Ended("interrupted", None, None, (), (), (), 0, 0.0)
                return
            assert self._live is not None
            self._pool.used(self)
            async with aclosing(self._run(self._live, code, cell, timeout_s)) as signals:
                async for signal in signals:
                    yield signal
        finally:
            self._busy = False

    async def answer(self, call: int, outcome: Outcome) -> None:
        """See :meth:`prime.repl.signals.Repl.answer`."""
        if self._deadline is not None:
            self._deadline.end(call)
        if self._live is not None:
            self._live.answer(call, outcome)

    def hold(self, call: int, held: bool) -> None:
        """See :meth:`prime.repl.signals.Repl.hold`."""
        if self._deadline is not None:
            (self._deadline.begin if held else self._deadline.end)(("held", call))

    async def interrupt(self) -> None:
        """See :meth:`prime.repl.signals.Repl.interrupt`. A cell whose kernel is still starting is not run at all; the
        start goes on, for the next one."""
        if self._busy and self._cell is None:
            self._early.set()
        await self._stop("interrupted")

    async def inspect(self) -> Inspection | None:
        """See :meth:`prime.repl.signals.Repl.inspect`."""
        return None if self._live is None else await self._live.inspect()

    async def save(self, path: Path) -> Saved | None:
        """See :meth:`prime.repl.signals.Repl.save`."""
        if self._busy:
            raise CellBusy("a cell is running in this kernel; its variables can be saved when it has ended")
        if self._live is None or self._live.lost.done():
            return None
        self._busy = True
        self._saving = asyncio.get_running_loop().create_future()
        try:
            return await self._live.save(path)
        finally:
            self._busy = False
            self._saving.set_result(None)
            self._saving = None

    def restore(self, snapshot: Snapshot) -> None:
        """See :meth:`prime.repl.signals.Repl.restore`."""
        self._snapshot = snapshot

    async def prewarm(self) -> None:
        """See :meth:`prime.repl.signals.Repl.prewarm`."""
        if self._live is None and self._starting is None and not self._closed:
            self._starting = asyncio.ensure_future(self._start())

    async def give_up(self, reason: str, *, saved: bool = False) -> bool:
        """See :meth:`prime.repl.signals.Repl.give_up`."""
        live = self._live
        if live is None or self._busy or live.has_children or not (saved or await self._empty(live)) or self._busy:
            return False
        self._parting = asyncio.ensure_future(live.close(reason))
        await asyncio.shield(self._parting)
        return True

    async def _empty(self, live: LiveKernel) -> bool:
        found = await live.inspect()
        return found is not None and found.answered and not found.names

    async def close(self) -> None:
        """See :meth:`prime.repl.signals.Repl.close`."""
        self._closed = True
        self._pool.leave(self)
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            with suppress(asyncio.CancelledError, KernelStartFailed):  # cancelled, or it failed by itself
                await starting
        live, self._live = self._live, None
        if live is not None:
            if self._cell is not None:
                self._cell.stop = self._cell.stop or "interrupted"
            await live.close()

    async def _run(
        self, live: LiveKernel, code: str, cell: str, timeout_s: float | None
    ) -> AsyncGenerator[Signal, None]:
        current = self._cell = Cell(cell, live.generation, _HOST_CAP * self._setup.output_limit)
        if timeout_s is not None:
            self._deadline = Deadline(timeout_s, live.cpu_s, partial(self._stop_soon, "timeout"))
        try:
            live.run(current, code)
            async for signal in current.signals():
                live.delivered()
                if isinstance(signal, HostCall) and signal.target in self._waits and self._deadline is not None:
                    self._deadline.begin(signal.call)
                if isinstance(signal, Ended):
                    self._cell = None
                yield signal
        finally:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            if not current.finished.is_set():  # nobody listens any more
                await self._stop("interrupted")
            live.rest()
            self._cell = None
            if self._stopping is not None:
                await self._stopping
                self._stopping = None
            if live.lost.done() and self._live is live:
                self._live = None
                await live.close()

    def _stop_soon(self, status: Literal["interrupted", "timeout"]) -> None:
        if self._stopping is None and self._cell is not None:
            self._stopping = asyncio.ensure_future(self._climb(self._cell, status))

    async def _stop(self, status: Literal["interrupted", "timeout"]) -> None:
        self._stop_soon(status)
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    async def _climb(self, cell: Cell, status: Literal["interrupted", "timeout"]) -> None:
        """Climb the interrupt ladder until ``cell`` has ended."""
        live = self._live
        if live is None or cell.finished.is_set():
            return
        cell.stop = status
        for _ in range(round(_KILL_AFTER_S / _INTERRUPT_EVERY_S)):
            live.interrupt()
            try:
                async with asyncio.timeout(_INTERRUPT_EVERY_S):
                    await cell.finished.wait()
            except TimeoutError:
                continue
            return
        await live.kill(f"the cell did not stop within {_KILL_AFTER_S:g} s of its interrupt, so the kernel was killed")

    async def _ensure(self) -> None:
        """Have a live kernel, unless the cell is interrupted before."""
        if self._closed:
            raise KernelStartFailed("this repl is closed; make a new one")
        if self._live is not None:
            return
        await self.prewarm()
        assert self._starting is not None
        starting, interrupted = self._starting, asyncio.ensure_future(self._early.wait())
        try:
            await asyncio.wait({starting, interrupted}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            interrupted.cancel()
        if starting.cancelled():
            raise KernelStartFailed("this repl was closed while its kernel started")
        if starting.done():
            self._starting = None
            await starting

    async def _start(self) -> None:
        """Start a kernel when it is its turn, trying three times."""
        async with self._pool.starting(self):
            for pause in (*_BACK_OFF_S, None):
                try:
                    await self._try()
                except Unusable:
                    raise
                except KernelStartFailed as error:
                    if pause is None:
                        tries = len(_BACK_OFF_S) + 1
                        raise KernelStartFailed(f"no kernel after {tries} tries; the last one: {error}") from None
                    await asyncio.sleep(pause)
                else:
                    self._starting = None  # a failure stays, for the cell that asks
                    return

    async def _try(self) -> None:
        """Start a kernel and have it restore what it is to. One that is lost by that is replaced by an empty one."""
        live, started = await self._launched()
        restored = None
        if self._snapshot is not None:
            try:
                restored = await live.restore(self._snapshot)
            except BaseException:
                await live.close()
                raise
            if live.lost.done():
                await live.close()
                live, started = await self._launched()
        self._live, self._started = live, replace(started, restored=restored)
        self._generation += 1

    async def _launched(self) -> tuple[LiveKernel, Started]:
        try:
            live = LiveKernel(self._generation, self._setup, self._launch, self._pool.template)
            try:
                return live, await live.start()
            except BaseException:
                await live.close()
                raise
        except (OSError, ZMQError) as error:
            raise KernelStartFailed(f"no folder or socket can be made for it: {error}") from error
