"""Calls in plain text: the one ```python block of a reply is the cell. For models without working tool calls. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from prime.messages import CallPart, Delta, Message, Part, Reply, Request, TextPart, text_of
from prime.providers.chat import Chat, ChatDecoder
from prime.providers.profiles import CODE, REPL_TOOL, Profile, with_example
from prime.providers.wire import Decoder, whole_arguments

#: Added to the system prompt in place of the tool list.
INSTRUCTIONS = """\
To run Python, write one fenced block, and nothing after it:
```python
code
```
What it prints, and the value of its last line, come back in the next message. Write one block at a time. When you \
know the answer, write it in plain words, without a block."""
#: The beginning of a user message that holds what a cell showed.
RESULT = "[output of the block]\n"

_BLOCK = re.compile(r"^[ \t]*```(?:python|py|repl)[ \t]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Profiled:
    """Chat Completions for a local model, the way its profile says. ``fenced`` overrides ``profile.calls``."""

    chat: Chat
    profile: Profile
    fenced: bool

    @property
    def path(self) -> str:
        """Where requests go."""
        return self.chat.path

    def encode(self, request: Request, *, images: bool) -> dict[str, Any]:
        """Return the JSON body; see :class:`prime.providers.wire.Wire`."""
        request = with_example(request, self.profile)
        return self.chat.encode(in_text(request) if self.fenced else request, images=images)

    def headers(self, key: str | None) -> dict[str, str]:
        """Return the headers of Chat Completions."""
        return self.chat.headers(key)

    def decoder(self, request: Request) -> Decoder:
        """Return a decoder; a request without tools is answered by text whatever the text looks like."""
        decoder = self.chat.decoder(request)
        return FencedDecoder(decoder) if self.fenced and request.header.tools else decoder


def in_text(request: Request) -> Request:
    """Return the request without tools: calls become fenced blocks, results user messages. Pure.

    A request that offers no tools is left as it is.
    """
    header = request.header
    if not header.tools:
        return request
    system = f"{header.system}\n\n{INSTRUCTIONS}" if header.system else INSTRUCTIONS
    return Request(
        header=header.model_copy(update={"system": system, "tools": ()}),
        messages=tuple(_message(message) for message in request.messages),
    )


def _message(message: Message) -> Message:
    if message.role == "tool":
        return Message(role="user", parts=(TextPart(text=RESULT), *message.parts)) if message.parts else _no_output()
    if message.role == "user":
        return message
    pieces = [text_of(message.parts)]
    pieces += [f"```python\n{_code(part)}\n```" for part in message.parts if isinstance(part, CallPart)]
    return Message(role="assistant", parts=(TextPart(text="\n".join(filter(None, pieces))),))


def _no_output() -> Message:
    return Message(role="user", parts=(TextPart(text=f"{RESULT}(none)"),))


def _code(call: CallPart) -> str:
    code = whole_arguments(call.arguments).get(CODE, call.arguments)
    return code.rstrip("\n") if isinstance(code, str) else call.arguments


class FencedDecoder:
    """Turns the first block of a reply into a call. What the model wrote after it is dropped: it had not seen the
    output and only guessed at it."""

    def __init__(self, chat: ChatDecoder) -> None:
        self._chat = chat

    @property
    def done(self) -> bool:
        """Whether the server said that the reply is complete."""
        return self._chat.done

    def feed(self, data: str) -> list[Delta]:
        """Take one event; see :class:`prime.providers.wire.Decoder`."""
        return self._chat.feed(data)

    def reply(self) -> Reply:
        """Return the reply with its block as a call of the tool. A block cut by the token limit is a cut call."""
        reply = self._chat.reply()
        text = text_of(reply.parts)
        block = _BLOCK.search(text)
        if block is None:
            return reply
        before = text[: block.start()].strip()
        arguments = json.dumps({CODE: block[1].rstrip("\n")}, ensure_ascii=False)
        parts: list[Part] = [part for part in reply.parts if not isinstance(part, TextPart)]
        if before:
            parts.append(TextPart(text=before))
        parts.append(CallPart(call_id=self._chat.call_id(0), name=REPL_TOOL, arguments=arguments))
        return reply.model_copy(update={"parts": tuple(parts), "stop": "calls" if reply.stop == "end" else reply.stop})
