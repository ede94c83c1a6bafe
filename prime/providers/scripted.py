"""A model that plays a script: the shipped test double, and the model of the demo when no other is there."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from prime.messages import (
    CallPart,
    Delta,
    Message,
    Part,
    ReasoningPart,
    Reply,
    Request,
    TextPart,
    Usage,
    text_of,
    thaw,
)
from prime.providers.failures import failure
from prime.providers.script import Pattern, ReplyLike, ScriptedReply, parse, read_script

#: The tool that ``code`` calls, and the name of its argument.
REPL_TOOL = "repl"
#: Characters counted as one token where a script gives no usage. A convention: the figures must be steady, not right.
CHARACTERS_PER_TOKEN = 4
_CALL_ID = re.compile(r"call-(\d+)-\d+")


class ScriptedProvider:
    """A :class:`~prime.providers.base.Provider` whose replies are written down beforehand.

    ``script`` is a list of entries (see :class:`~prime.providers.script.ScriptedReply`; plain dicts will do), one for
    each request, or a function that makes the entry for a request. Replies stream in deltas like those of any model.
    A request after the last entry fails with ``bad_request``.

    Attributes:
        requests: every request received, oldest first.

    Raises:
        ConfigError: an entry is wrong; the line names its place.
    """

    def __init__(
        self,
        script: Sequence[ReplyLike] | Callable[[Request], ReplyLike],
        *,
        model: str = "scripted/replies",
        context_window: int | None = None,
        images: bool = False,
    ) -> None:
        self.model = model
        self.context_window = context_window
        self.images = images
        self.requests: list[Request] = []
        self._compose = script if callable(script) else self._next
        self._entries: tuple[ScriptedReply, ...] = ()
        if not callable(script):
            entries = (_entry(item, model, f"replies[{index}]") for index, item in enumerate(script))
            self._entries = tuple(entry for entry in entries for _ in range(entry.repeat))

    @classmethod
    def read(cls, path: str | Path) -> ScriptedProvider:
        """Return the model of a script file, named ``scripted/PATH``.

        Raises:
            ConfigError: the file cannot be read or is wrong; one line names the place.
        """
        script = read_script(path)
        return cls(script.replies, model=f"scripted/{path}", context_window=script.context_window, images=script.images)

    async def reply(self, request: Request, on_delta: Callable[[Delta], None]) -> Reply:
        """Play the next entry.

        Raises:
            ProviderError: the entry says so, the script is at its end, or the request is not the expected one.
        """
        # Everything that counts requests comes before the first await, so that requests at the same time stay in order.
        self.requests.append(request)
        number = len(self.requests)
        entry = _entry(self._compose(request), self.model, f"reply {number}")
        _check_expectations(entry, request, f"{self.model}: reply {number}")
        reply = compose(entry, request, number=number, model=self.model)
        await stream(reply.parts, on_delta, chunk=entry.chunk, delay_s=entry.delay_s)
        if entry.hang:
            await asyncio.Event().wait()
        if entry.error is not None:
            fault = entry.error
            message = fault.message or f"{self.model}: reply {number} is scripted to fail ({fault.code})"
            raise failure(fault.code, message, retry_after_s=fault.retry_after_s, status=fault.status)
        return reply

    async def close(self) -> None:
        """Do nothing: a script holds no resources."""

    def _next(self, request: Request) -> ScriptedReply:
        number = len(self.requests)
        if number > len(self._entries):
            raise failure(
                "bad_request",
                f"{self.model}: the script has {len(self._entries)} replies and this is request {number}; add a reply",
            )
        return self._entries[number - 1]


def compose(entry: ScriptedReply, request: Request, *, number: int, model: str) -> Reply:
    """Return the whole reply of a script entry. Pure.

    Call ids are ``call-N-I``: N is ``number``, or one more than the highest N in the request when a script starts
    again in a session that already has calls; I counts the calls of the reply from 1.
    """
    seen = (_CALL_ID.fullmatch(part.call_id) for part in _parts(request) if isinstance(part, CallPart))
    n = max([number, *(int(match[1]) + 1 for match in seen if match)])
    wanted = [(REPL_TOOL, json.dumps({"code": code}, ensure_ascii=False)) for code in entry.code]
    wanted += [(call.name, call.text) for call in entry.call]
    parts: list[Part] = []
    if entry.reasoning:
        parts.append(ReasoningPart(text=entry.reasoning))
    if entry.text:
        parts.append(TextPart(text=entry.text))
    for i, (name, arguments) in enumerate(wanted, 1):
        parts.append(CallPart(call_id=f"call-{n}-{i}", name=name, arguments=arguments))
    return Reply(
        parts=tuple(parts),
        stop=entry.stop or ("calls" if wanted else "end"),
        model=model,
        usage=entry.usage or estimate(request, tuple(parts)),
    )


def estimate(request: Request, parts: tuple[Part, ...]) -> Usage:
    """Return the usage of a reply that gives none: characters / 4, rounded up, nothing cached. Pure."""
    header = request.header
    tools = json.dumps([[tool.name, tool.description, thaw(tool.parameters)] for tool in header.tools])
    prompt = len(header.system) + len(tools) + sum(map(_characters, _parts(request)))
    reasoning = sum(_characters(part) for part in parts if isinstance(part, ReasoningPart))
    return Usage(input=_tokens(prompt), output=_tokens(sum(map(_characters, parts))), reasoning=_tokens(reasoning))


async def stream(
    parts: tuple[Part, ...], on_delta: Callable[[Delta], None], *, chunk: int, delay_s: float = 0.0
) -> None:
    """Give ``parts`` to ``on_delta`` in pieces of ``chunk`` characters, waiting ``delay_s`` seconds before each.

    Control goes back to the event loop at every piece, so the stream can be cancelled anywhere.
    """
    for part in parts:
        kind: Literal["text", "reasoning", "call"] = "text"
        match part:
            case TextPart():
                text = part.text
            case ReasoningPart():
                kind, text = "reasoning", part.text
            case CallPart():
                kind, text = "call", part.arguments
            case _:
                continue
        for start in range(0, len(text), chunk):
            await asyncio.sleep(delay_s)
            on_delta(Delta(kind=kind, text=text[start : start + chunk]))


def _entry(item: ReplyLike, source: str, place: str) -> ScriptedReply:
    return item if isinstance(item, ScriptedReply) else parse(ScriptedReply, item, source, place)


def _check_expectations(entry: ScriptedReply, request: Request, where: str) -> None:
    shown = "\n".join(text_of(message.parts) for message in _last_messages(request))
    for wanted in entry.expect:
        if isinstance(wanted, Pattern):
            found, name = re.search(wanted.regex, shown) is not None, f"/{wanted.regex}/"
        else:
            found, name = wanted in shown, repr(wanted)
        if not found:
            raise failure("bad_request", f"{where} expects {name} in the last messages, which end in {shown[-200:]!r}")


def _last_messages(request: Request) -> tuple[Message, ...]:
    """The messages after the last reply: what this request is about."""
    start = 0
    for index, message in enumerate(request.messages):
        if message.role == "assistant":
            start = index + 1
    return request.messages[start:]


def _parts(request: Request) -> Iterator[Part]:
    for message in request.messages:
        yield from message.parts


def _characters(part: Part) -> int:
    match part:
        case CallPart():
            return len(part.name) + len(part.arguments)
        case TextPart() | ReasoningPart():
            return len(part.text)
        case _:
            return len(part.data)


def _tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)
