"""Anthropic's Messages API: encode a request, decode a stream. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from prime.messages import (
    CallPart,
    Delta,
    ImagePart,
    Message,
    Part,
    ReasoningPart,
    Reply,
    Request,
    StopReason,
    TextPart,
    Usage,
    thaw,
)
from prime.providers.failures import failure, from_stream
from prime.providers.wire import count, finished, image_line, parse_event, whole_arguments

#: The API demands a limit. Every current model allows this many output tokens; a cell or an answer needs fewer.
DEFAULT_MAX_TOKENS = 16_384
#: The version of the API that this module speaks.
API_VERSION = "2023-06-01"

_STOPS: dict[str, StopReason] = {
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "filter",
}
#: A breakpoint: everything up to here may be served from the cache next time.
_CACHE = {"type": "ephemeral"}


@dataclass(frozen=True, slots=True)
class Messages:
    """The Messages API for one model. ``name`` is its name there, ``who`` its name in error messages.

    Nothing is cached here without being asked for, so each request has three breakpoints: after the tools, after the
    system prompt (both the same all session) and at its end. The next request repeats everything up to that end,
    where the provider finds the longest prefix it has stored. A breakpoint is not part of what is compared.
    """

    name: str
    who: str
    path: str = "/v1/messages"

    def encode(self, request: Request, *, images: bool) -> dict[str, Any]:
        """Return the JSON body; see :class:`prime.providers.wire.Wire`.

        User text and tool results are one role here, and all results of a reply's calls must be in the message right
        after it: so everything between two replies becomes one message.
        """
        header, parameters = request.header, request.header.parameters
        messages: list[dict[str, Any]] = []
        for assistant, group in groupby(request.messages, key=lambda message: message.role == "assistant"):
            blocks = [block for message in group for block in _blocks(message, images)]
            if blocks and messages and messages[-1]["role"] == ("assistant" if assistant else "user"):
                messages[-1]["content"] += blocks  # Between them stood a message of which nothing was kept.
            elif blocks:
                messages.append({"role": "assistant" if assistant else "user", "content": blocks})
        if messages:
            _mark_end(messages[-1]["content"])
        body: dict[str, Any] = {
            "model": self.name,
            "max_tokens": DEFAULT_MAX_TOKENS if parameters.max_tokens is None else parameters.max_tokens,
            "stream": True,
            "messages": messages,
        }
        if header.system:
            body["system"] = [{"type": "text", "text": header.system, "cache_control": _CACHE}]
        if header.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": thaw(tool.parameters)}
                for tool in header.tools
            ]
            body["tools"][-1]["cache_control"] = _CACHE
        if parameters.effort is not None:
            body["thinking"] = {"type": "adaptive"}
            body["output_config"] = {"effort": parameters.effort}
        elif parameters.temperature is not None:
            body["temperature"] = parameters.temperature  # Refused together with thinking.
        return body

    def headers(self, key: str | None) -> dict[str, str]:
        """Return the version header and, with a key, the key header."""
        return {"anthropic-version": API_VERSION, **({"x-api-key": key} if key else {})}

    def decoder(self, request: Request) -> MessagesDecoder:
        """Return a decoder for one reply."""
        del request
        return MessagesDecoder(self.who)


def _blocks(message: Message, images: bool) -> list[dict[str, Any]]:
    blocks = list(filter(None, (_block(part, images) for part in message.parts)))
    if message.role != "tool":
        return blocks
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": _call_id(message.call_id or "")}
    if blocks:  # An empty text block is refused; a result without content is not.
        result["content"] = blocks
    return [result]


def _block(part: Part, images: bool) -> dict[str, Any] | None:
    match part:
        case TextPart():
            # Text of white space alone is refused.
            return {"type": "text", "text": part.text} if part.text.strip() else None
        case ImagePart() if images:
            return {"type": "image", "source": {"type": "base64", "media_type": part.media_type, "data": part.data}}
        case ImagePart():
            return {"type": "text", "text": image_line(part)}
        case CallPart():
            return {
                "type": "tool_use",
                "id": _call_id(part.call_id),
                "name": part.name,
                "input": whole_arguments(part.arguments),
            }
        case ReasoningPart(redacted=True):
            return {"type": "redacted_thinking", "data": part.text}
        case ReasoningPart(signature=str(signature)):
            return {"type": "thinking", "thinking": part.text, "signature": signature}
        case ReasoningPart():
            return None  # Unsigned: another provider's, or cut before its signature came. It would be refused.


def _call_id(call_id: str) -> str:
    """The API takes only these characters; calls made under another provider may have others in their ids."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", call_id)


def _mark_end(blocks: list[dict[str, Any]]) -> None:
    """Put the breakpoint on the last block that may carry one (thinking may not)."""
    for index in reversed(range(len(blocks))):
        if blocks[index]["type"] not in ("thinking", "redacted_thinking"):
            blocks[index] = {**blocks[index], "cache_control": _CACHE}
            return


@dataclass(slots=True)
class _Open:
    """A content block under construction: how it started, and the pieces that followed by kind."""

    start: dict[str, Any]
    pieces: dict[str, list[str]] = field(default_factory=dict)

    def joined(self, kind: str) -> str:
        return "".join(self.pieces.get(kind, ()))


class MessagesDecoder:
    """Assembles one reply from the events of a Messages stream."""

    def __init__(self, who: str) -> None:
        self.done = False
        self._who = who
        self._model = ""
        self._blocks: dict[int, _Open] = {}
        self._stop: StopReason | None = None
        self._usage: dict[str, Any] = {}

    def feed(self, data: str) -> list[Delta]:
        """Take one event; see :class:`prime.providers.wire.Decoder`. Unknown events are skipped, as the API asks."""
        event = parse_event(data, who=self._who)
        if event.get("type") == "error":
            raise from_stream(event.get("error"), who=self._who)
        take: dict[str, Callable[[dict[str, Any]], Iterable[Delta]]] = {
            "message_start": self._started,
            "content_block_start": self._block_started,
            "content_block_delta": self._block_grew,
            "message_delta": self._ended,
            "message_stop": self._finished,
        }
        known = take.get(str(event.get("type")))
        if known is None:
            return []
        try:
            return list(known(event))
        except (AttributeError, TypeError, KeyError):
            raise failure("malformed", f"{self._who}: not a Messages event: {data[:80]!r}") from None

    def reply(self) -> Reply:
        """Return the whole reply; see :class:`prime.providers.wire.Decoder`."""
        if not self.done:
            raise failure("transport", f"{self._who}: the stream ended before the reply was complete")
        parts = [part for _, block in sorted(self._blocks.items()) if (part := _part(block)) is not None]
        return finished(
            tuple(parts), self._stop or "end", model=self._model, usage=usage_of(self._usage), who=self._who
        )

    def _started(self, event: dict[str, Any]) -> Iterable[Delta]:
        self._model = str(event["message"].get("model") or "")
        self._usage.update(event["message"].get("usage") or {})
        return ()

    def _block_started(self, event: dict[str, Any]) -> Iterable[Delta]:
        self._blocks[event["index"]] = _Open(dict(event["content_block"]))
        return ()

    def _block_grew(self, event: dict[str, Any]) -> Iterable[Delta]:
        piece = event["delta"]
        kind = str(piece["type"])
        text = piece.get(_PIECES.get(kind, ""))
        if not isinstance(text, str) or not text:
            return
        self._blocks[event["index"]].pieces.setdefault(kind, []).append(text)
        match kind:
            case "text_delta":
                yield Delta(kind="text", text=text)
            case "thinking_delta":
                yield Delta(kind="reasoning", text=text)
            case "input_json_delta":
                yield Delta(kind="call", text=text)

    def _ended(self, event: dict[str, Any]) -> Iterable[Delta]:
        reason = event["delta"].get("stop_reason")
        if reason:
            self._stop = _STOPS.get(reason, "end")
        # Cumulative: the counts of the last event replace those of the first.
        self._usage.update({name: value for name, value in (event.get("usage") or {}).items() if value is not None})
        return ()

    def _finished(self, event: dict[str, Any]) -> Iterable[Delta]:
        del event
        self.done = True
        return ()


#: Which member of a delta holds its text, by the delta's type.
_PIECES = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


def _part(block: _Open) -> Part | None:
    start = block.start
    match start.get("type"):
        case "text":
            text = str(start.get("text") or "") + block.joined("text_delta")
            return TextPart(text=text) if text else None
        case "thinking":
            signature = str(start.get("signature") or "") + block.joined("signature_delta")
            thinking = str(start.get("thinking") or "") + block.joined("thinking_delta")
            return ReasoningPart(text=thinking, signature=signature or None)
        case "redacted_thinking":
            return ReasoningPart(text=str(start.get("data") or ""), redacted=True)
        case "tool_use":
            # A call without arguments may stream none at all.
            arguments = block.joined("input_json_delta") or "{}"
            return CallPart(call_id=str(start.get("id")), name=str(start.get("name")), arguments=arguments)
        case _:
            return None


def usage_of(usage: dict[str, Any]) -> Usage | None:
    """Return the stream's usage; its buckets are disjoint already. None when the server sent none."""
    if not usage:
        return None
    return Usage(
        input=count(usage, ("input_tokens",)) or 0,
        cache_read=count(usage, ("cache_read_input_tokens",)) or 0,
        cache_write=count(usage, ("cache_creation_input_tokens",)) or 0,
        output=count(usage, ("output_tokens",)) or 0,
    )
