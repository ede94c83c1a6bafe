"""A real HTTP server that plays a model: both dialects, scripted answers, and every fault a provider can have.

It runs in a thread on a free loopback port, so whole sessions can be driven against it through the public API::

    with ModelServer([Answer(text="hello"), Answer(fault="reset")]) as server:
        ...  # base address of Chat Completions: server.chat_url; of the Messages API: server.url
    assert server.bodies[0]["messages"] == ...
"""

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

#: ``reset``: the connection breaks in mid-stream. ``end``: the stream ends properly but early, without a
#: finish reason or end mark (with ``calls``: half a call). ``malformed``: an event that is not JSON. ``silence``:
#: nothing more until the client goes away. ``error_event``: an error inside the stream. ``not_sse``: a JSON answer.
#: ``linger``: the whole answer, but the connection stays open after its end mark.
Fault = Literal["reset", "end", "malformed", "silence", "error_event", "not_sse", "linger"]


@dataclass(frozen=True)
class Answer:
    """What one request gets.

    Attributes:
        calls: (id, name, arguments) of each tool call.
        stop: the dialect's own word; by default the one that fits.
        usage: the dialect's own ``usage`` object; by default small fixed counts.
        status, body, headers: an HTTP error instead of a stream when ``status`` is not 200.
        fault: what goes wrong, after half of the events that the answer would have.
        error: the error object of ``error_event``.
        delay_s: seconds before each event.
        chunk: characters of one event.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    stop: str | None = None
    usage: dict[str, Any] | None = None
    status: int = 200
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    fault: Fault | None = None
    error: dict[str, Any] = field(default_factory=lambda: {"type": "overloaded_error", "message": "Overloaded"})
    delay_s: float = 0.0
    chunk: int = 8


class ModelServer:
    """Answers POST number N with answer number N, or with what a function makes of the request's body.

    Attributes:
        bodies: the JSON bodies of all requests, in the order of their arrival; ``raw`` the same as bytes.
        headers: their headers, lower-case names.
        paths: where they went.
        ports: the client's port of each request, which tells connections apart.
        gone: set when a client closed its connection before the answer was complete.
        url: the address of the server.
    """

    def __init__(
        self,
        answers: Sequence[Answer] | Callable[[dict[str, Any]], Answer],
        *,
        models: dict[str, Any] | None = None,
        props: dict[str, Any] | None = None,
        port: int = 0,
    ) -> None:
        self.raw: list[bytes] = []
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.ports: list[int] = []
        self.gone = threading.Event()
        self._answers = answers
        self._got = {"/v1/models": models, "/props": props, "/health": {"status": "ok"}}
        self._socket = socket.create_server(("127.0.0.1", port))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        # Raising inside the app is how it breaks a connection; uvicorn need not report that.
        config = uvicorn.Config(
            self._app,
            interface="asgi3",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_graceful_shutdown=0,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self.run)

    @property
    def chat_url(self) -> str:
        """The base address of Chat Completions."""
        return f"{self.url}/v1"

    def run(self) -> None:
        """Serve in this thread until the process ends."""
        self._server.run(sockets=[self._socket])

    def __enter__(self) -> Self:
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL + 1)
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method == "GET":
            found = self._got.get(request.url.path)
            await JSONResponse(found if found is not None else {}, 200 if found else 404)(scope, receive, send)
            return
        raw = await request.body()
        self.raw.append(raw)
        self.bodies.append(json.loads(raw))
        self.headers.append(dict(request.headers))
        self.paths.append(request.url.path)
        self.ports.append(scope["client"][1])
        answer = self._next()
        if answer.status != 200 or answer.fault == "not_sse":
            headers = [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
            headers.append((b"content-type", b"application/json"))
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            await send({"type": "http.response.body", "body": answer.body.encode()})
            return
        events = list(messages_events(answer) if request.url.path.endswith("/messages") else chat_events(answer))
        watch = asyncio.create_task(self._watch(receive))
        try:
            await self._stream(answer, events, send, watch)
        finally:
            watch.cancel()

    def _next(self) -> Answer:
        if callable(self._answers):
            return self._answers(self.bodies[-1])
        if len(self.bodies) > len(self._answers):
            message = f"the test has {len(self._answers)} answers and this is request {len(self.bodies)}"
            return Answer(status=400, body=json.dumps({"error": {"message": message}}))
        return self._answers[len(self.bodies) - 1]

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone.set()

    async def _stream(self, answer: Answer, events: list[str], send: Send, watch: asyncio.Task[None]) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        cut = len(events) if answer.fault in (None, "linger") else len(events) // 2
        for event in events[:cut]:
            if answer.delay_s:
                await asyncio.wait([watch], timeout=answer.delay_s)
            if watch.done():
                return
            await send({"type": "http.response.body", "body": event.encode(), "more_body": True})
        match answer.fault:
            case "reset":
                raise ConnectionResetError("scripted")
            case "silence" | "linger":
                await watch
                return
            case "malformed":
                await send({"type": "http.response.body", "body": b"data: {oops\n\n", "more_body": True})
            case "error_event":
                wrong = {"type": "error", "error": answer.error}
                await send({"type": "http.response.body", "body": _event(wrong).encode(), "more_body": True})
        watch.cancel()
        await send({"type": "http.response.body", "body": b""})


def chat_events(answer: Answer) -> Iterator[str]:
    """The events of a Chat Completions stream."""

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _event({"id": "chatcmpl-1", "model": "served-model", "choices": [choice]})

    yield chunk({"role": "assistant", "content": None})
    for piece in _pieces(answer.reasoning, answer.chunk):
        yield chunk({"reasoning_content": piece})
    for piece in _pieces(answer.text, answer.chunk):
        yield chunk({"content": piece})
    for index, (call_id, name, arguments) in enumerate(answer.calls):
        function = {"name": name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]})
        for piece in _pieces(arguments, answer.chunk):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, answer.stop or ("tool_calls" if answer.calls else "stop"))
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18} if answer.usage is None else answer.usage
    yield _event({"id": "chatcmpl-1", "model": "served-model", "choices": [], "usage": usage})
    yield "data: [DONE]\n\n"


def messages_events(answer: Answer) -> Iterator[str]:
    """The events of a Messages stream."""

    def block(index: int, start: dict[str, Any], deltas: list[dict[str, Any]]) -> Iterator[str]:
        yield _event({"type": "content_block_start", "index": index, "content_block": start})
        for delta in deltas:
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})

    usage = {"input_tokens": 11, "output_tokens": 7} if answer.usage is None else answer.usage
    first = {**usage, "output_tokens": 1}
    yield _event({"type": "message_start", "message": {"id": "msg_1", "model": "served-model", "usage": first}})
    yield _event({"type": "ping"})
    index = 0
    if answer.reasoning:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(answer.reasoning, answer.chunk)]
        deltas.append({"type": "signature_delta", "signature": "signed"})
        yield from block(index, {"type": "thinking", "thinking": "", "signature": ""}, deltas)
        index += 1
    if answer.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(answer.text, answer.chunk)]
        yield from block(index, {"type": "text", "text": ""}, deltas)
        index += 1
    for call_id, name, arguments in answer.calls:
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in _pieces(arguments, answer.chunk)]
        yield from block(index, {"type": "tool_use", "id": call_id, "name": name, "input": {}}, deltas)
        index += 1
    stop = answer.stop or ("tool_use" if answer.calls else "end_turn")
    last = {"output_tokens": usage.get("output_tokens", 0)}
    yield _event({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": last})
    yield _event({"type": "message_stop"})


def _event(data: dict[str, Any]) -> str:
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n"


def _pieces(text: str, size: int) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]
