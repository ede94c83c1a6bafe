"""The loop: a turn is steps until nothing is owed; a step is one model request and the cells that it asks for.

Everything the loop knows between two steps it reads from the log. Every await can be cut short by ``cancel``, and
whatever happens the brackets close and each call of the model gets exactly one result.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from prime import caps, prompt
from prime import events as ev
from prime.cell import Cells
from prime.context import Context
from prime.errors import PrimeError, ProviderError
from prime.inbox import words
from prime.live import Live
from prime.log import Log
from prime.messages import CallPart, Header, Part, Reply, TextPart, plain, text_of
from prime.providers.base import Provider
from prime.query import ask
from prime.repair import closers, not_started
from prime.request import Interrupted, send
from prime.side import RULES

_CANCELLED = caps.Stop("cancelled", "")
_COMPLETED = caps.Stop("completed", "")


@dataclass(frozen=True)
class Loop:
    """Runs turns of one session. ``header`` starts every request; ``live`` hears a reply while it arrives;
    ``allowance`` says before each step whether others with a say in it stop the turn."""

    log: Log
    context: Context
    provider: Provider
    cells: Cells
    header: Header
    live: Live
    allowance: Callable[[], caps.Stop | None] = lambda: None

    async def turn(self, cancel: asyncio.Event) -> ev.TurnEnded:
        """Run one turn over what waits in the inbox and return how it ended.

        An error of ours ends it with reason ``error``; any other exception closes the brackets too, and is raised.
        """
        (started, *_) = self.log.append(ev.TurnStarted(), *self._claims(opening=True), durable=True)
        try:
            stop = await self._steps(started.seq, cancel)
        except PrimeError as error:
            stop = caps.Stop("error", str(error))
        except BaseException as error:
            self._close(caps.Stop("error", f"{type(error).__name__}: {error}"))
            raise
        return self._close(stop)

    async def _steps(self, start: int, cancel: asyncio.Event) -> caps.Stop:
        while True:
            if cancel.is_set():
                return _CANCELLED
            verdict = self.allowance() or caps.check(self._entries(start), self.cells.limits, self._spent())
            if isinstance(verdict, caps.Stop):
                return verdict
            if verdict is not None:
                self._notice(verdict)
            # only now: what a turn that ends here had claimed would never be answered
            if claims := self._claims(opening=False):
                self.log.append(*claims)
            stop = await self._step(start, cancel)
            if stop is not None and not (stop == _COMPLETED and self.log.state.inbox.steers):
                return stop

    async def _step(self, start: int, cancel: asyncio.Event) -> caps.Stop | None:
        """Run one step; None when the model is owed the next one."""
        await self._question(cancel)
        if cancel.is_set():
            return _CANCELLED
        request = self.context.request(self.header)
        begun = ev.StepStarted(request=self.context.check(request), messages=len(request.messages))
        self.log.append(begun, durable=True)
        try:
            reply = await send(self.provider, request, self.log, self.live, cancel)
        except ProviderError as error:
            return self._failed(error, start)
        if isinstance(reply, Interrupted):
            if reply.text:
                self._replied((TextPart(text=plain(reply.text)),), None, interrupted=True)
            self.log.append(ev.StepEnded(outcome="cancelled"))
            return _CANCELLED
        await self._reply(reply, cancel)
        called = any(isinstance(part, CallPart) for part in reply.parts)
        self.log.append(ev.StepEnded(outcome="cancelled" if called and cancel.is_set() else "done"))
        if reply.stop == "length":
            return caps.Stop("max_tokens", "the reply was cut by the model's token limit; its cells did not run")
        if reply.stop == "filter":
            return caps.Stop("error", "the provider withheld the reply")
        if called:
            return None
        if text_of(reply.parts).strip():
            return _COMPLETED
        verdict = caps.empty(self._entries(start))
        if isinstance(verdict, caps.Stop):
            return verdict
        self._notice(verdict)
        return None

    async def _question(self, cancel: asyncio.Event) -> None:
        """Ask what the context policy wants to know first. A question that fails fails alone: the log says so, and the
        policy goes on without an answer."""
        question = self.context.question(self.header)
        if question is None:
            return
        with contextlib.suppress(ProviderError):
            await ask(self.provider, self.log, question.header, question.prompt, about=RULES, cancel=cancel)

    async def _reply(self, reply: Reply, cancel: asyncio.Event) -> None:
        """Log a reply and answer each of its calls, in order. A call cut by the token limit is not even logged."""
        cut = reply.stop == "length"
        parts = tuple(part for part in reply.parts if not (cut and isinstance(part, CallPart)))
        self._replied(parts, reply)
        for part in parts:
            if not isinstance(part, CallPart):
                continue
            if cancel.is_set():
                self.log.append(not_started(part.call_id))
            elif isinstance(found := self._code(part), str):
                await self.cells.run(found, part.call_id, cancel)
            else:
                self.log.append(found)

    def _code(self, call: CallPart) -> str | ev.CallRefused:
        """Return the cell that a call asks for, or the refusal of one that asks for something else."""
        if call.name != prompt.REPL:
            known = any(tool.target == f"tools.{call.name}" for tool in self.cells.catalogue)
            route = f"`await tools.{call.name}(...)`" if known else "`help(tools)`"
            text = f"There is no tool {call.name!r}: the only one is repl(code). Inside a cell write {route}."
            return ev.CallRefused(call_id=call.call_id, name=call.name, code="unknown_tool", text=text)
        try:
            code = json.loads(call.arguments)["code"]
            code.encode()
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            text = f'The arguments of repl must be {{"code": "..."}} and nothing ran ({type(error).__name__}: {error}).'
            return ev.CallRefused(call_id=call.call_id, name=call.name, code="bad_arguments", text=text)
        return str(code)

    def _replied(self, parts: tuple[Part, ...], reply: Reply | None, *, interrupted: bool = False) -> None:
        self.log.append(
            ev.ModelReplied(
                parts=parts,
                stop=reply.stop if reply else "end",
                model=reply.model if reply else self.provider.model,
                usage=reply.usage if reply else None,
                interrupted=interrupted,
            )
        )

    def _failed(self, error: ProviderError, start: int) -> caps.Stop | None:
        overflow = error.code == "overflow"
        self.log.append(ev.StepEnded(outcome="overflow" if overflow else "failed"))
        # again once, and only when the request really became smaller
        if overflow and not self._refused_before(start) and self.context.recover():
            return None
        return caps.Stop("error", f"{error.code}: {error}")

    def _refused_before(self, start: int) -> bool:
        *earlier, _ = self.log.entries(start, types=("step_ended",))
        return bool(earlier) and earlier[-1].event.outcome == "overflow"

    def _claims(self, *, opening: bool) -> list[object]:
        claims: list[object] = []
        for item in self.log.state.inbox.due(opening=opening):
            claims += (ev.InputClaimed(input_id=item.input_id), words(item))
        return claims

    def _spent(self) -> Decimal | None:
        return self.cells.limits.prices.total(self.log.state.usage)

    def _entries(self, start: int) -> list[ev.Entry]:
        return list(self.log.entries(start, types=caps.TYPES))

    def _notice(self, correct: caps.Correct) -> None:
        self.log.append(ev.NoticeGiven(about=correct.about, text=correct.text))

    def _close(self, stop: caps.Stop) -> ev.TurnEnded:
        state = self.log.state
        *inner, _ = closers(state.trace, state.kernel.running)
        ended = ev.TurnEnded(reason=stop.reason, detail=plain(stop.detail))
        self.log.append(*inner, ended, durable=True)
        return ended
