"""An agent whose model and kernel are scripts: for tests of tools, prompts and programs that use an agent.

Only the two ends are scripted. The log, the loop, the dispatch of calls and the tools are the real ones.

    async def play(code, cell):
        page = await cell.call("tools.lookup", id=7)
        cell.print(page["name"])

    async with scripted([{"code": "..."}, {"text": "done"}], play, home=tmp_path, tools=[lookup]) as stage:
        assert (await stage.agent.ask("Who is 7?")).text == "done"
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from prime_kernel.wire import Name

from prime import prompt
from prime.agent import Agent
from prime.beside import Beside
from prime.caps import Limits
from prime.cell import Cells
from prime.context import Context
from prime.contract import Contract
from prime.errors import CellBusy, KernelStartFailed, ToolFailed
from prime.history import History
from prime.live import Live
from prime.log import Log
from prime.loop import Loop
from prime.messages import Header, Request
from prime.policies.base import Options
from prime.providers.script import ReplyLike
from prime.providers.scripted import ScriptedProvider
from prime.recall import ContextInfo, Notes
from prime.repl.signals import (
    CallCancelled,
    Ended,
    Error,
    Failed,
    HostCall,
    Image,
    Lost,
    Outcome,
    Output,
    Signal,
    Snapshot,
    Started,
    Status,
)
from prime.sessions import Sessions
from prime.shown import context_line
from prime.tools.base import Tool
from prime.tools.catalogue import BUILTIN, Catalogue
from prime.tools.workspace import Workspace

#: What a cell does: a coroutine function of its code and a :class:`ScriptedCell`. A value that it returns is the
#: completion; an exception is the program's error, a ``SyntaxError`` refuses the cell before it runs.
Play = Callable[[str, "ScriptedCell"], Awaitable[object]]

#: Seconds that a cell may take to stop before its kernel counts as killed.
GRACE_S = 0.5


async def echo(code: str, cell: ScriptedCell) -> object:
    """Complete with the code itself."""
    return code


class ScriptedRepl:
    """A :class:`~prime.repl.signals.Repl` without a process, which behaves as a kernel does.

    The first cell starts it, as does the first after a death. A cell ends when its play has ended and each of its calls
    is answered. An interrupt or the deadline raises ``CancelledError`` in the play and gives up its open calls; a play
    that does not stop within :data:`GRACE_S` is killed with its kernel.

    Attributes:
        codes: the code of every cell that was run, oldest first.
        answers: every answer that came, also one that nobody waits for.
        generation: number of the newest kernel process, 0 before the first.
    """

    def __init__(self, play: Play = echo, *, generation: int = 1, ready: asyncio.Event | None = None) -> None:
        """``generation`` is the number of the first kernel process; with ``ready``, starting one lasts until it is
        set."""
        self.codes: list[str] = []
        self.answers: list[tuple[int, Outcome]] = []
        self.generation = generation - 1
        self._play = play
        self._ready = ready
        self._alive = False
        self._lost: str | None = None
        self._calls = 0
        self._busy = False
        self._closed = False
        self._cell: ScriptedCell | None = None

    async def run(self, code: str, *, cell: str, timeout_s: float | None = None) -> AsyncGenerator[Signal, None]:
        """See :meth:`prime.repl.signals.Repl.run`."""
        if self._busy:
            raise CellBusy("a cell is running in this kernel; wait for its end or interrupt it")
        self._busy = True
        try:
            if self._lost is not None:
                reason, self._lost = self._lost, None
                yield Lost(self.generation, reason)
            if not self._alive:
                yield await self._start()
            self.codes.append(code)
            current = self._cell = ScriptedCell(self.generation, self._calls)
            current.begin(self._play, code, timeout_s)
            while True:
                signal = await current.signals.get()
                if isinstance(signal, Lost):
                    self._alive = False
                yield signal
                if isinstance(signal, Ended):
                    return
        finally:
            if (begun := self._cell) is not None:
                await begun.stop("interrupted")
                self._calls = begun.last_call
            self._cell = None
            self._busy = False

    async def answer(self, call: int, outcome: Outcome) -> None:
        """See :meth:`prime.repl.signals.Repl.answer`."""
        self.answers.append((call, outcome))
        if self._cell is not None:
            self._cell.answered(call, outcome)

    def hold(self, call: int, held: bool) -> None:
        """Do nothing: a scripted deadline counts every second."""

    async def interrupt(self) -> None:
        """See :meth:`prime.repl.signals.Repl.interrupt`."""
        if self._cell is not None:
            await self._cell.stop("interrupted")

    async def inspect(self) -> None:
        """See :meth:`prime.repl.signals.Repl.inspect`: there is no process to look into."""

    async def save(self, path: Path) -> None:
        """See :meth:`prime.repl.signals.Repl.save`: there is no process."""

    def restore(self, snapshot: Snapshot) -> None:
        """See :meth:`prime.repl.signals.Repl.restore`: there are no variables."""

    async def give_up(self, reason: str, *, saved: bool = False) -> bool:
        """Do nothing: there is no process."""
        return False

    async def prewarm(self) -> None:
        """Do nothing: there is no process."""

    async def close(self) -> None:
        """See :meth:`prime.repl.signals.Repl.close`."""
        self._closed = True
        await self.interrupt()

    def die(self, reason: str) -> None:
        """Lose the kernel between two cells; the next cell reports it."""
        if self._alive:
            self._alive, self._lost = False, reason

    async def _start(self) -> Started:
        if self._closed:
            raise KernelStartFailed("this repl is closed; make a new one")
        if self._ready is not None:
            await self._ready.wait()
        self._alive = True
        self.generation += 1
        return Started(self.generation, 0, "scripted", "3", "0", "0", "scripted")


class ScriptedCell:
    """What a play may do. Each method says it to the host at once."""

    def __init__(self, generation: int, last_call: int) -> None:
        self.signals: asyncio.Queue[Signal] = asyncio.Queue()
        self.last_call = last_call
        self._generation = generation
        self._open: dict[int, asyncio.Future[Outcome]] = {}
        self._set: list[Name] = []
        self._removed: list[str] = []
        self._stop: Literal["interrupted", "timeout"] | None = None
        self._started = time.monotonic()
        self._over = False
        self._task: asyncio.Task[None] | None = None

    def print(self, text: str, *, stream: Literal["stdout", "stderr"] = "stdout", late: bool = False) -> None:
        """Write ``text``, as it is. ``late`` marks the output of work that an older cell left behind."""
        self.signals.put_nowait(Output(stream, text, late=late))

    def show(self, text: str, *, image: Image | None = None, call: int | None = None) -> None:
        """Show a completion; ``call`` says that it is the untouched value of that call."""
        self.signals.put_nowait(Output("result", text, image=image, call=call))

    def bind(self, **names: str) -> None:
        """Bind names, given with their types."""
        self._set += [Name(name, kind) for name, kind in names.items()]

    def unbind(self, *names: str) -> None:
        """Remove names."""
        self._removed += names

    def submit(self, target: str, /, **arguments: Any) -> asyncio.Future[Outcome]:
        """Make a host call, numbered :attr:`last_call`, and return its coming outcome."""
        self.last_call += 1
        future = self._open[self.last_call] = asyncio.get_running_loop().create_future()
        self.signals.put_nowait(HostCall(self.last_call, target, arguments))
        return future

    async def call(self, target: str, /, **arguments: Any) -> Any:
        """Make a host call and return its value.

        Raises:
            ToolFailed: it failed, with its code.
        """
        outcome = await self.submit(target, **arguments)
        if isinstance(outcome, Error):
            raise ToolFailed(outcome.code, outcome.message)
        return outcome.value

    def cancel(self, call: int) -> None:
        """Say that nobody waits for a call any more; its answer is still owed."""
        self.signals.put_nowait(CallCancelled(call))

    def die(self, reason: str) -> NoReturn:
        """End the kernel here."""
        raise _Died(reason)

    def begin(self, play: Play, code: str, timeout_s: float | None) -> None:
        """Run ``play`` from now on; :class:`ScriptedRepl` does that."""
        self._task = asyncio.create_task(self._run(play, code, timeout_s))

    def answered(self, call: int, outcome: Outcome) -> None:
        """Take an answer; :class:`ScriptedRepl` passes it on."""
        future = self._open.pop(call, None)
        if future is not None and not future.done():
            future.set_result(outcome)

    async def stop(self, status: Literal["interrupted", "timeout"]) -> None:
        """Stop the play, the second time without effect; :class:`ScriptedRepl` does that."""
        assert self._task is not None
        if self._stop is None and not self._task.done():
            self._stop = status
            self._task.cancel()
            _, stubborn = await asyncio.wait({self._task}, timeout=GRACE_S)
            if stubborn:
                self._end("killed", Failed("Killed", "it did not stop", ""), lost="it did not stop")
                self._task.cancel()

    async def _run(self, play: Play, code: str, timeout_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        deadline = None
        if timeout_s is not None:
            deadline = loop.call_later(timeout_s, lambda: asyncio.ensure_future(self.stop("timeout")))
        status, error = await self._play(play, code)
        if status == "died":
            assert error is not None
            self._end(status, error, lost=error.message)
        else:
            waiting = set(self._open.values())
            if status != "ok":
                for call in self._open:
                    self.cancel(call)
            if waiting:
                await asyncio.wait(waiting)
            self._end(status, error)
        if deadline is not None:
            deadline.cancel()

    async def _play(self, play: Play, code: str) -> tuple[Status, Failed | None]:
        try:
            value = await play(code, self)
        except asyncio.CancelledError:
            return self._stop or "interrupted", None
        except _Died as error:
            return "died", Failed("Died", str(error), "")
        except Exception as error:
            status: Status = "refused" if isinstance(error, SyntaxError) else "error"
            text = f"{type(error).__name__}: {error}"
            return status, Failed(type(error).__name__, str(error), text)
        if value is not None:
            self.show(repr(value))
        return self._stop or "ok", None

    def _end(self, status: Status, error: Failed | None, lost: str | None = None) -> None:
        if self._over:
            return
        self._over = True
        if lost is not None:
            self.signals.put_nowait(Lost(self._generation, lost))
        seconds = time.monotonic() - self._started
        ended = Ended(status, self._generation, error, tuple(self._set), tuple(self._removed), (), 0, seconds)
        self.signals.put_nowait(ended)


class _Died(Exception):
    """The play ended its kernel."""


@dataclass(frozen=True)
class Stage:
    """A running agent and what it is made of."""

    agent: Agent
    loop: Loop
    log: Log
    provider: ScriptedProvider
    repl: ScriptedRepl


@asynccontextmanager
async def scripted(
    replies: Sequence[ReplyLike] | Callable[[Request], ReplyLike] | ScriptedProvider,
    play: Play | ScriptedRepl = echo,
    *,
    home: Path,
    tools: Iterable[Tool] = (),
    limits: Limits = Limits(),  # noqa: B008 - frozen
    session: str | None = None,
    options: Options = Options(),  # noqa: B008 - frozen
) -> AsyncIterator[Stage]:
    """Run an agent over a real session below ``home`` with a scripted model and kernel; close it at the end.

    Args:
        replies: what the model says; see :class:`~prime.providers.scripted.ScriptedProvider`.
        play: what every cell does, or a whole repl.
        home: the data directory; tools work there too.
        tools: tools beside the built-in ones.
        limits: the caps of its turns.
        session: a session to go on with, a new one by default.
        options: how the window is kept.
    """
    provider = replies if isinstance(replies, ScriptedProvider) else ScriptedProvider(replies)
    sessions = Sessions(home)
    with sessions.open(session) if session is not None else sessions.create(home) as log:
        repl = (
            play if isinstance(play, ScriptedRepl) else ScriptedRepl(play, generation=log.state.kernel.generation + 1)
        )
        context = Context(log, options, window=lambda: provider.context_window)
        recall = (
            *History(log.store).tools(),
            *Notes(log).tools(),
            *ContextInfo(context.used, context.window, context.renew).tools(),
        )
        beside = Beside(log, sessions.folder(log.state.session))
        catalogue = Catalogue((*BUILTIN, *recall, *beside.tools(), *tools))
        workspace = Workspace(home, permitted=Contract(log, options.stream).permit)
        cells = Cells(log, repl, catalogue, workspace, limits, lambda: context_line(context.used(), context.window()))
        system = prompt.system(
            catalogue.bindings(),
            visible_output_bytes=limits.visible_output_bytes,
            cell_timeout_s=limits.cell_timeout_s,
        )
        header = Header(model=provider.model, system=system, tools=(prompt.tool(),))
        loop = Loop(log, context, provider, cells, header, Live())
        try:
            async with beside, Agent(loop) as agent:
                yield Stage(agent, loop, log, provider, repl)
        finally:
            await repl.close()
