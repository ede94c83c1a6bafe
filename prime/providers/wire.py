"""What a dialect is to the network code: a pure encoder and a pure incremental decoder. And what dialects share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from prime_kernel.lossless import lossless

from prime.messages import CallPart, Delta, ImagePart, Part, Reply, Request, StopReason, TextPart, Usage, plain
from prime.providers.failures import failure


class Decoder(Protocol):
    """Takes the data of one server-sent event after the other; knows no network and no time."""

    @property
    def done(self) -> bool:
        """Whether the server said that the reply is complete."""
        ...

    def feed(self, data: str) -> list[Delta]:
        """Take the data of one event and return what it adds.

        Raises:
            ProviderError: ``malformed``, or what an error event inside the stream says.
        """
        ...

    def reply(self) -> Reply:
        """Return the whole reply after the last event.

        Raises:
            ProviderError: ``transport`` when the stream ended early, ``empty`` when there is nothing in the reply.
        """
        ...


class Wire(Protocol):
    """A dialect bound to one model: how a request is written and a reply read."""

    @property
    def path(self) -> str:
        """Where requests go, under the base address."""
        ...

    def encode(self, request: Request, *, images: bool) -> dict[str, Any]:
        """Return the JSON body. The same request gives the same body, member order included, and the body of a
        request that only adds messages begins with the earlier messages unchanged: that is what makes a provider's
        prefix cache hit. ``images`` tells whether the model takes images."""
        ...

    def headers(self, key: str | None) -> dict[str, str]:
        """Return the headers that carry the key."""
        ...

    def decoder(self, request: Request) -> Decoder:
        """Return a decoder for the reply to ``request``."""
        ...


def parse_event(data: str, *, who: str) -> dict[str, Any]:
    """Return the JSON object of one event.

    Raises:
        ProviderError: ``malformed`` when it is none.
    """
    try:
        event = json.loads(data)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise failure("malformed", f"{who}: an event of the stream is not a JSON object: {data[:80]!r}")
    return event


def finished(parts: tuple[Part, ...], stop: StopReason, *, model: str, usage: Usage | None, who: str) -> Reply:
    """Return the reply made of ``parts``.

    Raises:
        ProviderError: ``empty`` when it holds neither text nor a call. Not when it was withheld, or when the token
            limit cut it while it still reasoned: asking again would give the same, so the caller must be told.
    """
    parts = _storable(parts)
    calls = any(isinstance(part, CallPart) for part in parts)
    text = any(isinstance(part, TextPart) and part.text.strip() for part in parts)
    if not calls and not text and stop in ("end", "calls"):
        raise failure("empty", f"{who}: the reply has neither text nor a call")
    if stop == "end" and calls:
        stop = "calls"  # Some servers finish with "stop" whatever the reply holds.
    if stop == "calls" and not calls:
        stop = "end"
    return Reply(parts=parts, stop=stop, model=model, usage=usage)


def _storable(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return the parts as a log can hold them: text that can be encoded, and no call's id twice.

    Servers cut emoji in half at a token's end, and small ones give every call of a reply the same id.
    """
    found: list[Part] = []
    ids: set[str] = set()
    for part in parts:
        if isinstance(part, CallPart):
            call_id = plain(part.call_id)
            while call_id in ids:
                call_id += "_"
            ids.add(call_id)
            changed: dict[str, str] = {
                "call_id": call_id,
                "name": plain(part.name),
                "arguments": plain(part.arguments),
            }
            found.append(part.model_copy(update=changed))
        elif isinstance(part, ImagePart):
            found.append(part)
        else:
            found.append(part.model_copy(update={"text": plain(part.text)}))
    return tuple(found)


def whole_arguments(raw: str) -> dict[str, Any]:
    """Return a call's arguments as the object that history must hold, since servers refuse calls that are none.

    Text that is no JSON object goes back as ``{"unparsed": TEXT}``, so that the model can see its mistake; so does one
    that holds what cannot be written as JSON again (NaN, half a code point, endless nesting).
    """
    try:
        value = lossless(json.loads(raw))
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"unparsed": raw}


def image_line(image: ImagePart) -> str:
    """Return the line that stands for an image where the model takes none."""
    kib = -(-len(image.data) * 3 // 4 // 1024)
    return f"[image not shown, this model takes none: {image.media_type}, {kib} KiB]"


def count(usage: Mapping[str, Any], path: tuple[str, ...]) -> int | None:
    """Return the token count at ``path``, or None where the server gives none."""
    value: Any = usage
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
