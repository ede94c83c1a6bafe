"""Provider-neutral messages: what a request is made of and what a reply gives back.

All models are frozen, strict and closed; sequences are tuples and JSON values are deep-frozen, so a message that was
handed out cannot change.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated, Any, Literal

from prime_kernel.lossless import MAX_DEPTH, lossless
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer


def freeze(value: Any) -> Any:
    """Return a deep-frozen copy of a lossless JSON value: lists become tuples, dicts read-only mappings.

    Raises:
        NotLossless: when the value is not lossless JSON (already frozen values are).
    """
    return _frozen(lossless(_thawed(value, 0)))


def thaw(value: Any) -> Any:
    """Return a deep-frozen JSON value as plain lists and dicts."""
    return _thawed(value, 0)


def _thawed(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        return value  # lossless() refuses what is too deep or cyclic, with the place
    kind = type(value)
    if kind is dict or kind is MappingProxyType:
        return {key: _thawed(item, depth + 1) for key, item in value.items()}
    if kind is tuple or kind is list:
        return [_thawed(item, depth + 1) for item in value]
    return value


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return MappingProxyType({key: _frozen(item) for key, item in value.items()})
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return value


#: Any lossless JSON value, deep-frozen.
Json = Annotated[Any, BeforeValidator(freeze), PlainSerializer(thaw)]


class Frozen(BaseModel):
    """Base of every host model: immutable, strict about types, closed to unknown fields."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class TextPart(Frozen):
    """Text."""

    type: Literal["text"] = "text"
    text: str


class ImagePart(Frozen):
    """An image. ``data`` is base64; ``media_type`` is that of a PNG, JPEG, GIF or WebP."""

    type: Literal["image"] = "image"
    media_type: str
    data: str


class ReasoningPart(Frozen):
    """Private reasoning of the model, kept because some providers want it back unchanged within a turn.

    ``signature`` is the provider's proof; ``redacted`` marks text that is the provider's ciphertext.
    """

    type: Literal["reasoning"] = "reasoning"
    text: str
    signature: str | None = None
    redacted: bool = False


class CallPart(Frozen):
    """A tool call asked for by the model. ``arguments`` is the raw text the model wrote, parsed nowhere but in the
    loop."""

    type: Literal["call"] = "call"
    call_id: str
    name: str
    arguments: str


Part = Annotated[TextPart | ImagePart | ReasoningPart | CallPart, Field(discriminator="type")]
#: What a person or a cell can show.
ShownPart = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class Message(Frozen):
    """One message of a request.

    ``role`` is ``user`` (a person, or a notice of the host), ``assistant`` (a reply) or ``tool`` (the result of the
    call ``call_id``).
    """

    role: Literal["user", "assistant", "tool"]
    parts: tuple[Part, ...]
    call_id: str | None = None


class ToolSpec(Frozen):
    """A tool as the model sees it. ``parameters`` is a JSON Schema object; its member order is kept."""

    name: str
    description: str
    parameters: Json


class Parameters(Frozen):
    """Sampling parameters; None leaves the provider's default.

    Attributes:
        max_tokens: most output tokens of one reply.
        effort: reasoning effort, for models that take one (``low``, ``medium``, ``high``).
    """

    max_tokens: int | None = None
    temperature: float | None = None
    effort: str | None = None


class Header(Frozen):
    """What stays the same from request to request: the part that a provider can cache first."""

    model: str
    system: str
    tools: tuple[ToolSpec, ...]
    parameters: Parameters = Parameters()


class Request(Frozen):
    """One whole model request, before any provider's dialect."""

    header: Header
    messages: tuple[Message, ...]


class Usage(Frozen):
    """Tokens of one reply, in disjoint buckets. The prompt is ``input + cache_read + cache_write``.

    Attributes:
        input: prompt tokens billed in full.
        cache_read: prompt tokens served from the provider's cache.
        cache_write: prompt tokens newly written to the cache, where the provider bills that.
        output: generated tokens, reasoning included.
        reasoning: the part of ``output`` that was reasoning, where the provider says so.
    """

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def prompt(self) -> int:
        """All prompt tokens."""
        return self.input + self.cache_read + self.cache_write

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in type(self).model_fields})


#: Why a reply ended: on its own, to have calls answered, cut by the token limit, or withheld by the provider.
StopReason = Literal["end", "calls", "length", "filter"]


class Reply(Frozen):
    """One whole model reply. ``model`` is the name the provider reports; ``usage`` is None when it reported none."""

    parts: tuple[Part, ...]
    stop: StopReason
    model: str
    usage: Usage | None = None


class Delta(Frozen):
    """A piece of a streaming reply, for live listeners and for the prefix that a cancelled reply keeps."""

    kind: Literal["text", "reasoning", "call"]
    text: str


def plain(text: str) -> str:
    """Return ``text`` without lone surrogates, which no log or wire can carry: two halves of a code point that met are
    joined, any other becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def around(before: str, body: str, after: str) -> str:
    """Return three texts as one, each on lines of its own."""
    lines = (text if not text or text.endswith("\n") else f"{text}\n" for text in (before, body, after))
    return "".join(lines).removesuffix("\n")


def text_of(parts: tuple[Part, ...]) -> str:
    """Return the text parts joined."""
    return "".join(part.text for part in parts if isinstance(part, TextPart))
