"""One agent: a session, a model, a kernel and its tools, and the inbox through which one talks to it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import TracebackType
from typing import Protocol

from prime import events as ev
from prime.errors import PrimeError
from prime.loop import Loop
from prime.messages import Delta, ImagePart, ShownPart, TextPart, Usage, text_of
from prime.notices import Notices
from prime.repl.signals import Inspection
from prime.state import State

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of an ask.

    Attributes:
        text: the last words of the model in the turn, empty when it said none.
        reason: how the turn ended; ``completed`` is the good case.
        detail: one line about any other reason.
        turn: the turn's number.
        usage: tokens of the turn.
        cost: its price in US dollars, None when the model's price is unknown.
        session: the session's id.
    """

    text: str
    reason: ev.TurnReason
    detail: str
    turn: int
    usage: Usage
    cost: Decimal | None
    session: str


class Company(Protocol):
    """The agents that work for one."""

    @property
    def active(self) -> bool:
        """Whether one of them is at work, or will be."""
        ...

    async def news(self) -> None:
        """Wait until one of them has settled."""
        ...


class Agent:
    """Talks to a loop. Use as an async context manager: it runs turns for as long as the block lasts."""

    def __init__(
        self,
        loop: Loop,
        settled: Callable[[], Awaitable[object]] | None = None,
        company: Company | None = None,
    ) -> None:
        """``settled`` is awaited after each turn and each cell run by hand, before the next; ``company`` are those that
        work for this agent, None for nobody."""
        self._loop = loop
        self._settled = settled
        self._company = company
        self._log = loop.log
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._wake = asyncio.Event()
        self._cancel = asyncio.Event()
        self._idle = asyncio.Lock()
        self._rest = asyncio.Event()
        self._ended: ev.TurnEnded | None = None
        self._driver: asyncio.Task[None] | None = None
        self._unobserve: Callable[[], None] = lambda: None

    @property
    def session(self) -> str:
        """The session's id."""
        return self._log.session

    @property
    def state(self) -> State:
        """What the log says so far, to read: names, the note, usage, what is open."""
        return self._log.state

    async def __aenter__(self) -> Agent:
        self._driver = asyncio.create_task(self._drive())
        self._unobserve = self._log.observe(self._hear)
        self._wake.set()  # for what a process queued that died before it ran it
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unobserve()
        self._cancel.set()
        if self._driver is not None:
            async with self._idle:  # a running turn ends first, with its brackets closed
                self._driver.cancel()
            await asyncio.wait({self._driver})

    async def ask(self, text: str, images: Sequence[ImagePart] = ()) -> Answer:
        """Say something and wait for the turn that answers it.

        Cancelling the wait withdraws the input, or ends its turn when that has begun.
        """
        input_id = self._queue("ask", text, images)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[input_id] = answer
        try:
            return await answer
        except asyncio.CancelledError:
            # an answered one has no turn any more: the one that runs now is somebody else's
            answered = answer.done() and not answer.cancelled()
            if not answered and not self.withdraw(input_id):
                self.interrupt()
                async with self._idle:
                    pass
            raise
        finally:
            self._waiting.pop(input_id, None)

    async def stream(self, text: str, images: Sequence[ImagePart] = ()) -> AsyncGenerator[ev.Entry | Delta, None]:
        """Say something and yield what happens until the turn that answers it has ended: each log entry as it is
        stored, and between them the pieces of the replies as they arrive. The last one is the entry of its end."""
        seen: asyncio.Queue[ev.Entry | Delta] = asyncio.Queue()
        unobserve = self.observe(seen.put_nowait)
        asking = asyncio.create_task(self.ask(text, images))
        try:
            while not asking.done() or not seen.empty():
                item = asyncio.ensure_future(seen.get())
                try:
                    await asyncio.wait({item, asking}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not item.done():
                        item.cancel()
                if item.done():
                    yield item.result()
            await asking
        finally:
            unobserve()
            if not asking.done():
                asking.cancel()
                await asyncio.wait({asking})

    async def done(self) -> None:
        """Wait until there is nothing left to do: no turn runs or is due, and nobody works for this agent.

        Raises:
            PrimeError: it has stopped.
        """
        while True:
            while not self._rest.is_set():  # it may be cleared again before a waiter runs
                await self._rest.wait()
            self._check_running()
            if self._company is None or not self._company.active:
                return
            await self._company.news()

    @property
    def accompanied(self) -> bool:
        """Whether others are at work for this agent."""
        return self._company is not None and self._company.active

    def steer(self, text: str, images: Sequence[ImagePart] = ()) -> str:
        """Say something that joins the running turn at its next step, or starts one. Return the input's id."""
        return self._queue("steer", text, images)

    def inform(self, text: str, images: Sequence[ImagePart] = ()) -> str:
        """Say something that waits for the next step or turn and starts none by itself. Return the input's id."""
        return self._queue("inform", text, images)

    def notify(self, text: str, *, source: str, wake: bool = True) -> str:
        """Have the host say something; see :meth:`prime.notices.Notices.give`. Return the input's id."""
        self._check_running()
        return Notices(self._log).give(text, source=source, wake=wake)

    def withdraw(self, input_id: str) -> bool:
        """Take back an input that no turn has claimed; return whether that was in time."""
        if not any(item.input_id == input_id for item in self._log.state.inbox.pending):
            return False
        self._log.append(ev.InputWithdrawn(input_id=input_id), durable=True)
        return True

    def interrupt(self) -> None:
        """End the running turn: the request or cell stops, every bracket closes. Without one it does nothing."""
        if self._idle.locked():
            self._cancel.set()

    async def rest(self, answer: Answer) -> Answer:
        """Wait until there is nothing left to do, as :meth:`done` does. Return what came of all turns from that of
        ``answer`` on: the last words, how the last one ended, and the usage of all."""
        await self.done()
        if self._ended is None or answer.turn == self._log.state.trace.turn:
            return answer
        begun = self._log.entries(types=("turn_started",))
        return self._answer(next(entry.seq for entry in begun if entry.turn == answer.turn), self._ended)

    async def inspect(self) -> Inspection | None:
        """Return what goes on in the kernel, at any time and without disturbing it; None when there is none."""
        return await self._loop.cells.repl.inspect()

    async def cell(self, code: str) -> ev.CellEnded:
        """Run a cell by hand in the agent's kernel, after the running turn; the model is not told.

        Cancelling the wait stops the cell; its end is in the log all the same.
        """
        async with self._idle:
            self._check_running()
            self._cancel = asyncio.Event()
            running = asyncio.create_task(self._loop.cells.run(code, None, self._cancel))
            try:
                ended = await asyncio.shield(running)
                if self._settled is not None:
                    await self._settled()
                return ended
            except asyncio.CancelledError:
                self._cancel.set()
                await asyncio.wait({running})
                raise

    def observe(self, observer: Callable[[ev.Entry | Delta], None]) -> Callable[[], None]:
        """Have ``observer`` called with each log entry as it is stored and with each piece of a reply as it arrives,
        whoever began the turn; return how to stop that. What it raises is reported and disturbs nobody."""
        unobserve, unhear = self._log.observe(observer), self._loop.live.add(observer)

        def stop() -> None:
            unobserve()
            unhear()

        return stop

    def _queue(self, kind: ev.InputKind, text: str, images: Sequence[ImagePart]) -> str:
        self._check_running()
        parts: tuple[ShownPart, ...] = (TextPart(text=text), *images)
        input_id = secrets.token_hex(8)
        self._log.append(ev.InputQueued(input_id=input_id, kind=kind, parts=parts), durable=True)
        return input_id

    def _hear(self, entry: ev.Entry) -> None:
        if isinstance(entry.event, ev.InputQueued):  # whoever said it
            self._rest.clear()
            self._wake.set()

    def _check_running(self) -> None:
        if self._driver is None or self._driver.done():
            raise PrimeError("the agent is not running; use `async with`")

    async def _drive(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._log.state.inbox.wakes:
                    async with self._idle:
                        if self._log.state.inbox.wakes:  # while it waited the input may have been withdrawn
                            await self._turn()
                self._rest.set()
        except asyncio.CancelledError:
            self._fail(self._waiting, PrimeError("the agent was closed"))
            raise
        except Exception as error:
            # the brackets could not be closed: the log cannot be written, so nothing more can be run
            _logger.exception("the agent of session %s has stopped", self.session)
            self._fail(self._waiting, error)
        finally:
            self._rest.set()

    def _fail(self, input_ids: Iterable[str], error: Exception) -> bool:
        failed = [answer for each in input_ids if (answer := self._waiting.get(each)) and not answer.done()]
        for answer in failed:
            answer.set_exception(error)
        return bool(failed)

    async def _turn(self) -> None:
        start = len(self._log)
        self._cancel = asyncio.Event()
        try:
            ended = await self._loop.turn(self._cancel)
        except Exception as error:
            if not self._log.state.trace.quiet:
                raise
            if not self._fail(self._claimed(start), error):
                _logger.exception("a turn of session %s failed", self.session)
            return
        self._ended = ended
        answer = self._answer(start, ended)
        for input_id in self._claimed(start):
            waiting = self._waiting.get(input_id)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
        if self._settled is not None:
            await self._settled()

    def _claimed(self, start: int) -> list[str]:
        return [entry.event.input_id for entry in self._log.entries(start, types=("input_claimed",))]

    def _answer(self, start: int, ended: ev.TurnEnded) -> Answer:
        replies = [entry.event for entry in self._log.entries(start, types=("model_replied",))]
        texts = [text for reply in replies if (text := text_of(reply.parts))]
        queries = [entry.event.reply for entry in self._log.entries(start, types=("query_ended",))]
        usage = sum((reply.usage for reply in (*replies, *queries) if reply and reply.usage is not None), Usage())
        return Answer(
            text=texts[-1] if texts else "",
            reason=ended.reason,
            detail=ended.detail,
            turn=self._log.state.trace.turn,
            usage=usage,
            cost=self._loop.cells.limits.prices.cost(self._loop.provider.model, usage),
            session=self._log.session,
        )
