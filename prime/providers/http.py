"""The only network code of the providers: one POST, one stream of events, and what can go wrong with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

import httpx
from httpx_sse import EventSource, SSEError

from prime.errors import ProviderError
from prime.messages import Delta, Reply, Request
from prime.providers.failures import failure, from_status
from prime.providers.wire import Wire

#: Most bytes read of an error answer; the words that matter are at its beginning.
_ERROR_BYTES = 64 * 1024
#: Seconds given to the rest of a stream after its end mark, so that the connection can be used again.
_DRAIN_S = 1.0
#: Seconds given to a self-hosted server to say what its window is.
_ASK_S = 2.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, in seconds.

    Attributes:
        connect_s: for a connection.
        idle_s: for the next byte of an answer; a stream that is silent for longer has failed. A server on a CPU
            says nothing while it reads a long prompt, so local models need much more than hosted ones.
    """

    connect_s: float = 10.0
    idle_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is served.

    Attributes:
        base_url: the address that a dialect's path is added to.
        key: the secret, or None.
        loopback: the server is on this machine, so no proxy may stand between.
        self_hosted: the server can be asked for the window of its model.
    """

    base_url: str
    key: str | None = None
    loopback: bool = False
    self_hosted: bool = False

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r}, key={'set' if self.key else None})"


class HttpProvider:
    """A :class:`~prime.providers.base.Provider` that speaks ``wire`` to a server.

    ``context_window`` of a self-hosted model may become known by :meth:`learn`, at the latest with the first request.
    """

    def __init__(
        self,
        model: str,
        wire: Wire,
        endpoint: Endpoint,
        *,
        patience: Patience = Patience(),
        context_window: int | None = None,
        images: bool = False,
    ) -> None:
        self.model = model
        self.context_window = context_window
        self.images = images
        self._wire = wire
        self._endpoint = endpoint
        self._patience = patience
        self._asked = not endpoint.self_hosted or context_window is not None
        self._client = httpx.AsyncClient(
            headers={"accept": "text/event-stream", "content-type": "application/json", **wire.headers(endpoint.key)},
            timeout=httpx.Timeout(patience.idle_s, connect=patience.connect_s, pool=None),
            # llama.cpp closes a connection just after the end of a stream, often too late to be noticed before the next
            # request uses it. On loopback a new connection costs nothing.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0 if endpoint.loopback else None),
            trust_env=not endpoint.loopback,
        )

    async def reply(self, request: Request, on_delta: Callable[[Delta], None]) -> Reply:
        """Send one request; see :class:`prime.providers.base.Provider`."""
        try:
            return await self._reply(request, on_delta)
        except ProviderError as error:
            # some servers repeat the key that they refuse, and errors are logged and shown
            if self._endpoint.key is None or self._endpoint.key not in str(error):
                raise
            words = str(error).replace(self._endpoint.key, "[key]")
            raise failure(error.code, words, retry_after_s=error.retry_after_s, status=error.status) from None

    async def _reply(self, request: Request, on_delta: Callable[[Delta], None]) -> Reply:
        await self.learn()
        body = json_bytes(self._wire.encode(request, images=self.images))
        decoder = self._wire.decoder(request)
        async with aclosing(self._events(self._endpoint.base_url + self._wire.path, body)) as events:
            async for data in events:
                for delta in decoder.feed(data):
                    on_delta(delta)
                if decoder.done:
                    await _drain(events)
                    break
        return decoder.reply()

    async def learn(self) -> None:
        """Ask a self-hosted server for the model's window, once. Does nothing for other servers."""
        if not self._asked:
            self._asked = True
            name = self.model.partition("/")[2]
            self.context_window = await window_of(self._client, self._endpoint.base_url, name)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _events(self, url: str, body: bytes) -> AsyncGenerator[str, None]:
        """Yield the data of each server-sent event.

        Raises:
            ProviderError: for everything that can go wrong on the way.
        """
        try:
            async with self._client.stream("POST", url, content=body) as response:
                if not response.is_success:
                    await self._refuse(response)
                async for event in EventSource(response).aiter_sse():
                    if event.data:
                        yield event.data
        except SSEError:
            kind = response.headers.get("content-type", "no type")
            raise failure("malformed", f"{self.model}: the answer is not an event stream but {kind}") from None
        except httpx.ConnectTimeout:
            wait = f"{self._patience.connect_s:g} s"
            raise failure("transport", f"{self.model}: no connection to {url} within {wait}") from None
        except httpx.TimeoutException:
            wait = f"{self._patience.idle_s:g} s"
            raise failure("timeout", f"{self.model}: the server was silent for {wait}") from None
        except httpx.ConnectError as error:
            raise failure("transport", f"{self.model}: cannot connect to {url}: {error or 'refused'}") from None
        except httpx.DecodingError as error:
            raise failure("malformed", f"{self.model}: undecodable answer: {error}") from None
        except httpx.HTTPError as error:
            words = str(error) or type(error).__name__
            raise failure("transport", f"{self.model}: the connection broke: {words}") from None

    async def _refuse(self, response: httpx.Response) -> NoReturn:
        received = bytearray()
        async for piece in response.aiter_bytes():
            received += piece
            if len(received) >= _ERROR_BYTES:
                break
        text = received[:_ERROR_BYTES].decode("utf-8", "replace")
        raise from_status(response.status_code, text, response.headers, who=self.model, now=datetime.now(UTC))


def json_bytes(body: dict[str, Any]) -> bytes:
    """Return ``body`` as the bytes that are sent: no spaces, members in the order they were built in."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


async def window_of(client: httpx.AsyncClient, base_url: str, name: str) -> int | None:
    """Ask a self-hosted server for the context window of its model ``name``, in tokens.

    llama.cpp says it at ``/props``, vLLM as ``max_model_len`` in ``/v1/models``. None when the server does not know;
    a request must not fail because of that question.
    """
    root = base_url.removesuffix("/v1")
    props = await get_json(client, f"{root}/props", _ASK_S)
    settings = props.get("default_generation_settings")
    if isinstance(settings, dict) and isinstance(settings.get("n_ctx"), int):
        return int(settings["n_ctx"])
    listed = (await get_json(client, f"{base_url}/models", _ASK_S)).get("data")
    rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    window = next((row.get("max_model_len") for row in rows if row.get("id") == name), None)
    return window if isinstance(window, int) else None


async def get_json(client: httpx.AsyncClient, url: str, timeout_s: float) -> dict[str, Any]:
    """Return the JSON object at ``url``; empty when there is none or no answer within ``timeout_s`` seconds."""
    try:
        response = await client.get(url, timeout=timeout_s)
        data = response.json() if response.is_success else None
    except (httpx.HTTPError, ValueError):
        return {}  # Nobody there, or somebody who speaks something else: both mean that there is nothing to learn.
    return data if isinstance(data, dict) else {}


async def _drain(events: AsyncGenerator[str, None]) -> None:
    """Read to the end of a complete stream. A server that keeps it open loses the connection, nothing else."""
    try:
        async with asyncio.timeout(_DRAIN_S):
            async for _ in events:
                pass
    except (TimeoutError, ProviderError):
        return  # The reply is whole; what becomes of its connection is of no interest.
