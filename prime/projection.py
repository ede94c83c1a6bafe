"""From the log to a model request. Pure.

Everything in a request comes from here: the newest header, and one message for each node of the surface. The digest of
a request is logged with its step, so any stored log can be checked against what was really sent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from prime import events as ev
from prime.messages import Header, Message, Reply, Request, TextPart

#: How a notice of the host is told apart from a person's words.
NOTICE = "[prime-repl notice, generated] "


def message(event: Any) -> Message | None:
    """Return the message of a surface event, None for one that says nothing (an interrupted reply without text)."""
    if isinstance(event, ev.UserSaid):
        return Message(role="user", parts=event.parts)
    if isinstance(event, ev.NoticeGiven):
        return Message(role="user", parts=(TextPart(text=NOTICE + event.text),))
    if isinstance(event, ev.ModelReplied):
        return Message(role="assistant", parts=event.parts) if event.parts else None
    if isinstance(event, ev.CellEnded):
        return Message(role="tool", parts=event.shown, call_id=event.call_id)
    if isinstance(event, ev.CallRefused):
        return Message(role="tool", parts=(TextPart(text=event.text),), call_id=event.call_id)
    if isinstance(event, ev.SurfaceReplaced):
        return event.message
    raise TypeError(f"{type(event).__name__} is not on the surface")


def request(header: Header, entries: Iterable[ev.Entry]) -> Request:
    """Return the request of the surface ``entries``, in surface order, under ``header``."""
    found = (message(entry.event) for entry in entries)
    return Request(header=header, messages=tuple(item for item in found if item is not None))


def query(header: Header, prompt: str) -> Request:
    """Return the request of a query: one prompt beside the conversation."""
    return Request(header=header, messages=(Message(role="user", parts=(TextPart(text=prompt),)),))


def queries(entries: Iterable[ev.Entry]) -> tuple[tuple[Request, Reply], ...]:
    """Return the answered queries of a session with their replies, in the order in which they were asked."""
    found, answers = list[ev.QueryAsked](), dict[int, Reply]()
    for entry in entries:
        event = entry.event
        if isinstance(event, ev.QueryAsked):
            found.append(event)
        elif isinstance(event, ev.QueryEnded) and event.reply is not None:
            answers[event.query] = event.reply
    return tuple((query(event.header, event.prompt), answers[event.query]) for event in found if event.query in answers)


def replies(entries: Iterable[ev.Entry]) -> tuple[Reply, ...]:
    """Return the whole replies of a session in order, as a model that replays it gives them. One that was interrupted
    is left out: its request was never answered."""
    found = (entry.event for entry in entries if isinstance(entry.event, ev.ModelReplied))
    return tuple(
        Reply(parts=event.parts, stop=event.stop, model=event.model, usage=event.usage)
        for event in found
        if not event.interrupted
    )


def digest(sent: Request) -> str:
    """Return the digest of a request, logged with the step that sends it."""
    return join_digests(part_digest(sent.header), map(part_digest, sent.messages))


def join_digests(header: bytes, messages: Iterable[bytes]) -> str:
    """Return the digest of a request from those of its parts: SHA-256 over them, in hex. Being a hash of hashes it
    costs 32 bytes for each message, so a whole log can be checked with every message hashed once."""
    whole = hashlib.sha256(header)
    for item in messages:
        whole.update(item)
    return whole.hexdigest()


def part_digest(part: Header | Message) -> bytes:
    """Return the SHA-256 of a header or message, over its JSON with sorted keys.

    Fields at their defaults are left out, so that a field which a later version adds does not change the digests in
    logs written before it.
    """
    fields = part.model_dump(mode="json", exclude_defaults=True)
    if isinstance(part, Message):
        # the kind of a part is the default of its class, and says what the part is
        fields["parts"] = [
            {"type": item.type, **found} for item, found in zip(part.parts, fields["parts"], strict=True)
        ]
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()
