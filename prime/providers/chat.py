"""OpenAI-compatible Chat Completions: encode a request, decode a stream. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
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
    ShownPart,
    StopReason,
    TextPart,
    Usage,
    text_of,
    thaw,
)
from prime.providers.dialects import Dialect
from prime.providers.failures import failure, from_stream
from prime.providers.wire import count, finished, image_line, parse_event, whole_arguments

_STOPS: dict[str, StopReason] = {
    "stop": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "content_filter": "filter",
}


@dataclass(frozen=True, slots=True)
class Chat:
    """Chat Completions as one server speaks it. ``name`` is the model's name there, ``who`` its name in messages."""

    name: str
    dialect: Dialect
    who: str
    path: str = "/chat/completions"

    def encode(self, request: Request, *, images: bool) -> dict[str, Any]:
        """Return the JSON body; see :class:`prime.providers.wire.Wire`."""
        header = request.header
        messages: list[dict[str, Any]] = []
        if header.system:
            messages.append({"role": "system", "content": header.system})
        for role, group in groupby(request.messages, key=lambda message: message.role):
            if role == "assistant":
                messages.extend(filter(None, (_assistant(message, self.dialect) for message in group)))
            elif role == "user":
                messages.extend({"role": "user", "content": _content(message.parts, images)} for message in group)
            else:
                messages.extend(_results(group, images))
        body: dict[str, Any] = {
            "model": self.name,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if header.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": thaw(tool.parameters),
                    },
                }
                for tool in header.tools
            ]
        parameters = header.parameters
        if parameters.max_tokens is not None:
            body[self.dialect.max_tokens] = parameters.max_tokens
        if parameters.temperature is not None:
            body["temperature"] = parameters.temperature
        if parameters.effort is not None:
            *outer, last = self.dialect.effort
            place = body
            for key in outer:
                place = place.setdefault(key, {})
            place[last] = parameters.effort
        return body

    def headers(self, key: str | None) -> dict[str, str]:
        """Return the bearer header, or nothing without a key."""
        return {"Authorization": f"Bearer {key}"} if key else {}

    def decoder(self, request: Request) -> ChatDecoder:
        """Return a decoder for one reply."""
        del request
        return ChatDecoder(self.dialect, self.who)


def _assistant(message: Message, dialect: Dialect) -> dict[str, Any] | None:
    """One reply as history, or None when nothing of it was kept (a reply cancelled before its first word)."""
    text = text_of(message.parts)
    calls = [part for part in message.parts if isinstance(part, CallPart)]
    if not calls:
        return {"role": "assistant", "content": text} if text else None
    encoded: dict[str, Any] = {"role": "assistant", "content": text or None}
    reasoning = "".join(part.text for part in message.parts if isinstance(part, ReasoningPart))
    if dialect.send_reasoning == "always" or (dialect.send_reasoning == "if_any" and reasoning):
        encoded["reasoning_content"] = reasoning
    encoded["tool_calls"] = [
        {
            "id": call.call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": _arguments_text(call.arguments)},
        }
        for call in calls
    ]
    return encoded


def _arguments_text(raw: str) -> str:
    """The model's own text where it is a JSON object: its bytes are in the server's cache."""
    whole = whole_arguments(raw)
    return json.dumps(whole, ensure_ascii=False) if whole.keys() == {"unparsed"} else raw


def _results(group: Iterable[Message], images: bool) -> Iterable[dict[str, Any]]:
    """A run of tool results. ``tool`` messages hold text only, so their images follow the whole run as a user message
    (nothing may stand between the results of one reply's calls)."""
    pictures: list[Part] = []
    for message in group:
        shown = [part for part in message.parts if isinstance(part, ImagePart)]
        if images:
            content = text_of(message.parts)
            if shown:
                pictures += [TextPart(text=f"[{len(shown)} image(s) of the result of {message.call_id}]"), *shown]
        else:
            content = "\n".join(filter(None, [text_of(message.parts), *map(image_line, shown)]))
        yield {"role": "tool", "tool_call_id": message.call_id, "content": content}
    if pictures:
        yield {"role": "user", "content": _content(tuple(pictures), images)}


def _content(parts: tuple[Part, ...], images: bool) -> str | list[dict[str, Any]]:
    shown: list[ShownPart] = [part for part in parts if isinstance(part, (TextPart, ImagePart))]
    if not images:
        shown = [TextPart(text=image_line(part)) if isinstance(part, ImagePart) else part for part in shown]
    if len(shown) == 1 and isinstance(shown[0], TextPart):
        return shown[0].text
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, TextPart)
        else {"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{part.data}"}}
        for part in shown
    ]


@dataclass(slots=True)
class _Call:
    """A call under construction."""

    key: object
    call_id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class ChatDecoder:
    """Assembles one reply from ``chat.completion.chunk`` events."""

    def __init__(self, dialect: Dialect, who: str) -> None:
        self.done = False
        self._dialect = dialect
        self._who = who
        self._id = ""
        self._model = ""
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []
        self._stop: StopReason | None = None
        self._usage: Usage | None = None

    def feed(self, data: str) -> list[Delta]:
        """Take one event; see :class:`prime.providers.wire.Decoder`."""
        if data.strip() == "[DONE]":
            self.done = True
            return []
        event = parse_event(data, who=self._who)
        if event.get("error"):
            raise from_stream(event["error"], who=self._who)
        self._id = self._id or str(event.get("id") or "")
        self._model = self._model or str(event.get("model") or "")
        if isinstance(event.get("usage"), dict):
            self._usage = usage_of(event["usage"], self._dialect)
        try:
            return [delta for choice in event.get("choices") or () for delta in self._choice(choice)]
        except (AttributeError, TypeError, KeyError):
            raise failure("malformed", f"{self._who}: not a Chat Completions event: {data[:80]!r}") from None

    def reply(self) -> Reply:
        """Return the whole reply; see :class:`prime.providers.wire.Decoder`."""
        if self._stop is None and not self.done:
            raise failure("transport", f"{self._who}: the stream ended before the reply was complete")
        parts: list[Part] = []
        if self._reasoning:
            parts.append(ReasoningPart(text="".join(self._reasoning)))
        if self._text:
            parts.append(TextPart(text="".join(self._text)))
        for number, call in enumerate(self._calls):
            call_id = call.call_id or self.call_id(number)
            parts.append(CallPart(call_id=call_id, name=call.name, arguments="".join(call.arguments)))
        return finished(tuple(parts), self._stop or "end", model=self._model, usage=self._usage, who=self._who)

    def call_id(self, number: int) -> str:
        """Return an id for a call that the server gave none: unique in a session because the reply's own id is."""
        return re.sub(r"[^A-Za-z0-9_-]", "-", f"{self._id or 'call'}-{number}")

    def _choice(self, choice: dict[str, Any]) -> Iterable[Delta]:
        piece = choice.get("delta") or {}
        reasoning = piece.get("reasoning_content") or piece.get("reasoning")
        if isinstance(reasoning, str) and reasoning:
            self._reasoning.append(reasoning)
            yield Delta(kind="reasoning", text=reasoning)
        text = piece.get("content") or piece.get("refusal")
        if isinstance(text, str) and text:
            self._text.append(text)
            yield Delta(kind="text", text=text)
        for fragment in piece.get("tool_calls") or ():
            arguments = self._call_piece(fragment)
            if arguments:
                yield Delta(kind="call", text=arguments)
        reason = choice.get("finish_reason")
        if reason == "error":
            raise failure("server", f"{self._who}: the server broke the reply off")
        if reason:
            self._stop = _STOPS.get(reason, "end")

    def _call_piece(self, fragment: dict[str, Any]) -> str:
        function = fragment.get("function") or {}
        # Fragments belong together by index; a server that sends none starts a call with each id or name.
        begins = bool(fragment.get("id") or function.get("name"))
        key: object = fragment.get("index")
        if key is None:
            key = ("call", len(self._calls)) if begins or not self._calls else self._calls[-1].key
        call = next((known for known in self._calls if known.key == key), None)
        if call is None:
            call = _Call(key)
            self._calls.append(call)
        call.call_id = call.call_id or str(fragment.get("id") or "")
        call.name = call.name or str(function.get("name") or "")
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments, ensure_ascii=False)
        if not isinstance(arguments, str):
            return ""
        call.arguments.append(arguments)
        return arguments


def usage_of(usage: dict[str, Any], dialect: Dialect) -> Usage:
    """Return a server's ``usage`` in disjoint buckets; ``prompt_tokens`` includes what came from the cache."""
    read = _first(usage, dialect.cached)
    written = _first(usage, dialect.cache_written)
    return Usage(
        input=max(0, (count(usage, ("prompt_tokens",)) or 0) - read - written),
        cache_read=read,
        cache_write=written,
        output=count(usage, ("completion_tokens",)) or 0,
        reasoning=count(usage, ("completion_tokens_details", "reasoning_tokens")) or 0,
    )


def _first(usage: dict[str, Any], paths: tuple[tuple[str, ...], ...]) -> int:
    found = (count(usage, path) for path in paths)
    return next((number for number in found if number is not None), 0)
