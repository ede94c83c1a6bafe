"""A query: one request beside the conversation. It is in the log before it leaves, with its digest, and its usage
counts as the session's."""

from __future__ import annotations

import asyncio

from prime import events as ev
from prime import projection
from prime.agent_events import QueryError
from prime.errors import ProviderError
from prime.live import Live
from prime.log import Log
from prime.messages import Header, Reply, plain
from prime.providers.base import Provider
from prime.request import Interrupted, send


async def ask(
    provider: Provider,
    log: Log,
    header: Header,
    prompt: str,
    *,
    about: str | None = None,
    cancel: asyncio.Event | None = None,
) -> Reply | Interrupted:
    """Ask ``prompt`` under ``header`` and return the reply, or what there was of it when ``cancel`` was set. ``about``
    says what the host asks for, None for a cell.

    Raises:
        ProviderError: it failed for good.
    """
    request = projection.query(header, prompt)
    number = len(log)
    digest = projection.digest(request)
    log.append(ev.QueryAsked(query=number, header=header, prompt=prompt, request=digest, about=about), durable=True)
    error = QueryError(code="cancelled", message="the query was stopped before it was answered")
    reply: Reply | None = None
    try:
        sent = await send(provider, request, log, Live(), cancel or asyncio.Event(), number)
        reply = sent if isinstance(sent, Reply) else None
        return sent
    except ProviderError as failure:
        error = QueryError(code=failure.code, message=plain(str(failure)))
        raise
    finally:
        log.append(ev.QueryEnded(query=number, model=header.model, reply=reply, error=None if reply else error))
