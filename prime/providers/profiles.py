"""What a local model needs to be able to call the one tool: read from ``profiles.yaml``, applied by pure functions."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml
from pydantic import TypeAdapter

from prime.messages import CallPart, Frozen, Message, Request, TextPart

#: The tool that cells go to, and its argument.
REPL_TOOL, CODE = "repl", "code"


class Edit(Frozen):
    """One replacement in a chat template. When a ``needed`` one finds nothing, the template is not the known one."""

    old: str
    new: str
    needed: bool = True


class Shown(Frozen):
    """One message of the worked example: a user's text, a cell, the cell's result, or an answer."""

    user: str | None = None
    code: str | None = None
    result: str | None = None
    text: str | None = None


class Profile(Frozen):
    """One row of ``profiles.yaml``; the fields are described there."""

    name: str
    match: str
    calls: Literal["native", "fenced"]
    template: tuple[Edit, ...] = ()
    example: tuple[Shown, ...] = ()
    context: int
    arguments: tuple[str, ...] = ()


@cache
def profiles() -> tuple[Profile, ...]:
    """Return the rows in order. The last one matches everything."""
    text = files("prime.providers").joinpath("profiles.yaml").read_text(encoding="utf-8")
    return TypeAdapter(tuple[Profile, ...]).validate_json(json.dumps(yaml.safe_load(text)))


def profile_for(name: str) -> Profile:
    """Return the first row that matches a model's own name. Pure."""
    return next(row for row in profiles() if re.search(row.match, name, re.IGNORECASE))


def mend(template: str, profile: Profile) -> str | None:
    """Return the chat template with the profile's edits, or None when it is not the template they were made for."""
    for edit in profile.template:
        if edit.needed and edit.old not in template:
            return None
        template = template.replace(edit.old, edit.new)
    return template


def with_example(request: Request, profile: Profile) -> Request:
    """Return the request with the worked example in front; unchanged when it offers no tool. Pure.

    The example is the same in every request, so it is cached with the system prompt, and it is no part of any log: it
    belongs to how this model is spoken to, as its chat template does.
    """
    if not request.header.tools:
        return request
    return request.model_copy(update={"messages": (*_example(profile), *request.messages)})


def _example(profile: Profile) -> tuple[Message, ...]:
    messages: list[Message] = []
    for number, shown in enumerate(profile.example):
        parts: list[Any] = []
        match shown:
            case Shown(user=str(text)):
                messages.append(Message(role="user", parts=(TextPart(text=text),)))
            case Shown(result=str(text)):
                messages.append(Message(role="tool", call_id=f"example-{number - 1}", parts=(TextPart(text=text),)))
            case Shown(code=str(code)):
                arguments = json.dumps({CODE: code}, ensure_ascii=False)
                parts.append(CallPart(call_id=f"example-{number}", name=REPL_TOOL, arguments=arguments))
            case Shown(text=str(text)):
                parts.append(TextPart(text=text))
        if parts:
            messages.append(Message(role="assistant", parts=tuple(parts)))
    return tuple(messages)
