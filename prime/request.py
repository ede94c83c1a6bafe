"""One model request with its retries. Nothing is retried silently: every failure and every wait is in the log."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)

from prime import events as ev
from prime.errors import ProviderError
from prime.log import Log
from prime.messages import Delta, Reply, Request, plain
from prime.providers.base import Provider

#: Tries after the first, and seconds of the shortest and the longest wait of ours (design: log, "Turn and step").
RETRIES, MIN_WAIT_S, MAX_WAIT_S = 5, 0.5, 10.0
#: Longest wait that a provider may ask for; a longer one ends the turn, with its words.
MAX_RETRY_AFTER_S = 120.0

_backoff = wait_exponential(multiplier=MIN_WAIT_S, max=MAX_WAIT_S) + wait_random(0, MIN_WAIT_S / 5)


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The request was cancelled; ``text`` is what had been said until then."""

    text: str


async def send(
    provider: Provider,
    request: Request,
    log: Log,
    live: Callable[[Delta], None],
    cancel: asyncio.Event,
    query: int | None = None,
) -> Reply | Interrupted:
    """Send ``request`` and return its reply, or what there was of it when ``cancel`` was set. ``query`` is its number
    when it is not the step's.

    Raises:
        ProviderError: it failed for good; each attempt is in the log.
    """
    stopped = asyncio.create_task(cancel.wait())
    numbers = itertools.count(1)

    async def attempt() -> Reply | Interrupted:
        said: list[str] = []

        def hear(delta: Delta) -> None:
            if delta.kind == "text":
                said.append(delta.text)
            live(delta)

        if cancel.is_set():
            return Interrupted("")
        number = next(numbers)
        reply = asyncio.create_task(provider.reply(request, hear))
        try:
            await asyncio.wait({reply, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if reply.done():
                return reply.result()
            return Interrupted("".join(said))
        except ProviderError as error:
            log.append(_failed(error, number, query))
            raise
        finally:
            await _give_up(reply)

    async def pause(seconds: float) -> None:
        await asyncio.wait({stopped}, timeout=seconds)

    def scheduled(state: RetryCallState) -> None:
        delay_s = float(state.upcoming_sleep)
        log.append(ev.RetryScheduled(attempt=state.attempt_number + 1, delay_s=delay_s, query=query), durable=True)

    retrying = AsyncRetrying(
        retry=retry_if_exception(_again),
        stop=stop_after_attempt(1 + RETRIES),
        wait=_wait,
        before_sleep=scheduled,
        sleep=pause,
        reraise=True,
    )
    try:
        return await retrying(attempt)
    finally:
        stopped.cancel()


async def _give_up(reply: asyncio.Task[Reply]) -> None:
    reply.cancel()
    await asyncio.wait({reply})
    if not reply.cancelled():
        reply.exception()  # a request given up may still fail; that interests nobody


def _failed(error: ProviderError, attempt: int, query: int | None) -> ev.RequestFailed:
    message = plain(str(error))
    return ev.RequestFailed(attempt=attempt, code=error.code, message=message, status=error.status, query=query)


def _again(error: BaseException) -> bool:
    return isinstance(error, ProviderError) and error.retryable and (error.retry_after_s or 0) <= MAX_RETRY_AFTER_S


def _wait(state: RetryCallState) -> float:
    error = _error(state)
    return error.retry_after_s if error.retry_after_s is not None else _backoff(state)


def _error(state: RetryCallState) -> ProviderError:
    error = state.outcome.exception() if state.outcome is not None else None
    assert isinstance(error, ProviderError)
    return error
