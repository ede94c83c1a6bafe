"""The flood scenario of the benchmark over real HTTP: a server that counts what it receives has the last word on sizes.

Everything between the log and the socket is in it: loop, kernel, tools, policy, encoder, client. The server sees bytes
only; it counts their tokens itself, reports them, and lets the benchmark's model answer from what they show.
"""

from __future__ import annotations

import json
from collections.abc import Coroutine
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from servers import Answer, ModelServer

import prime
from bench.oracle import Oracle, Scenario
from bench.scenarios import s10
from prime.log import read
from prime.messages import CallPart, Header, Message, Reply, Request, TextPart, ToolSpec, text_of
from prime.replayed import recorded
from prime.sessions import Sessions
from prime.tokens import MESSAGE_TOKENS, estimate

pytestmark = pytest.mark.anyio


class Brain:
    """The model behind the server. ``sizes`` are the tokens of each request."""

    def __init__(self, scenario: Scenario) -> None:
        self.oracle = Oracle(scenario, recall=True, compact=False)
        self.sizes: list[int] = []

    def answer(self, body: dict[str, Any]) -> Answer:
        """Count a request and answer it."""
        self.sizes.append(counted(body))
        reply = at_once(self.oracle.reply(neutral(body), lambda delta: None))
        calls = tuple((part.call_id, part.name, part.arguments) for part in reply.parts if isinstance(part, CallPart))
        said = text_of(reply.parts)
        output = round(estimate(said + "".join(name + arguments for _, name, arguments in calls)))
        usage = {"prompt_tokens": self.sizes[-1], "completion_tokens": output}
        return Answer(text=said, calls=calls, usage=usage, chunk=200)


def at_once(coroutine: Coroutine[Any, Any, Reply]) -> Reply:
    """Return the result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        reply: Reply = end.value
        return reply
    raise AssertionError("it waited")


def counted(body: dict[str, Any]) -> int:
    """Return the tokens of a body: what it says, and a frame for each message but the system prompt."""
    first, *messages = body["messages"]
    tools = [list(tool["function"].values()) for tool in body["tools"]]
    total = estimate(first["content"] + json.dumps(tools, ensure_ascii=False))
    for message in messages:
        total += MESSAGE_TOKENS + estimate(message["content"] or "")
        for call in message.get("tool_calls", ()):
            total += estimate(call["function"]["name"] + call["function"]["arguments"])
    return round(total)


def neutral(body: dict[str, Any]) -> Request:
    """Return what a body says, as the benchmark's model reads it."""
    first, *messages = body["messages"]
    tools = tuple(ToolSpec(**tool["function"]) for tool in body["tools"])
    return Request(
        header=Header(model=body["model"], system=first["content"], tools=tools),
        messages=tuple(map(_message, messages)),
    )


def _message(message: dict[str, Any]) -> Message:
    text = [TextPart(text=message["content"])] if message["content"] else []
    calls = [CallPart(call_id=call["id"], **call["function"]) for call in message.get("tool_calls", ())]
    return Message(role=message["role"], parts=(*text, *calls), call_id=message.get("tool_call_id"))


def said(raw: bytes) -> bytes:
    """Return the bytes of a body from its start to the last of its messages."""
    return raw[: raw.rindex(b'],"stream"')]


@pytest.mark.parametrize(("files", "window", "bound"), [(64, 120_000, 32_000), (12, 6_000, 6_000)])
async def test_no_request_is_larger_than_the_bound_and_the_ledger_agrees_with_the_server(
    files: int, window: int, bound: int, home: Path, tmp_path: Path
) -> None:
    """64 files are read one a turn after facts whose sources are gone; at the end the facts are asked for."""
    scenario = replace(s10(files), window=window)
    work = tmp_path / "work"
    for path, text in scenario.files.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text)
    brain = Brain(scenario)
    models = {"data": [{"id": "m", "max_model_len": window}]}
    with ModelServer(brain.answer, models=models) as server:
        options: dict[str, Any] = {"base_url": server.chat_url, "home": home, "cwd": work, "snapshot": "off"}
        async with prime.Agent("compatible/m", **options) as agent:
            for turn in scenario.turns:
                brain.oracle.begin(turn)
                assert (await agent.ask(turn.prompt)).reason == "completed"
    asked = {fact.name: fact.token for turn in scenario.turns for fact in turn.ask}
    assert brain.oracle.answers == asked
    assert scenario.check(lambda path: (work / path).read_text()) == ""
    assert max(brain.sizes) <= bound
    with Sessions(home).read(agent.session) as store:
        ledger = recorded(store)
        replied = [entry.event.usage for entry in read(store, types=("model_replied",))]
        starts = [entry.seq for entry in read(store, types=("step_started",))]
        replaced = [entry.seq for entry in read(store, types=("surface_replaced",))]
    assert len(brain.sizes) == len(ledger.lines) > 2 * files
    for size, line, usage in zip(brain.sizes, ledger.lines, replied, strict=True):
        assert abs(line.prompt - size) <= 1  # the sums are rounded
        assert usage.prompt == size
    assert abs(ledger.total().peak - max(brain.sizes)) <= 1
    rewritten = 0
    for place, (before, after) in enumerate(pairwise(map(said, server.raw))):
        named = any(starts[place] < seq < starts[place + 1] for seq in replaced)
        rewritten += not after.startswith(before)
        assert after.startswith(before) or named
    assert rewritten
