"""Long sessions through the public names, with a real kernel: what the model can still get at under every policy."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from servers import Answer, ModelServer

import prime
from prime import events as ev
from prime.log import read
from prime.messages import Request, TextPart, text_of
from prime.policies.base import Options
from prime.projection import message
from prime.providers.registry import ANTHROPIC_KEY
from prime.providers.scripted import CHARACTERS_PER_TOKEN, ScriptedProvider
from prime.sessions import Sessions
from prime.testing import ScriptedCell, scripted

pytestmark = pytest.mark.anyio

POLICIES = ("transcript", "fold", "slice", "window", "auto", "stream")
WINDOW = 12_000
TURNS = 6
#: A cell that shows 11,000 characters of what is never folded.
SHOW = "print('def f(x):\\n    return x + 1\\n' * 420)"
#: A build's output with an id in its middle that is said nowhere else.
FLOOD = """\
lines = [f'step {{n}} of build {{{number}}} went well' for n in range(200)]
lines.insert(100, 'id-{number}-' + 'qz' * 3)
print('\\n'.join(lines))
"""


def words(request: Request) -> str:
    return "\n".join(text_of(each.parts) for each in request.messages)


def compose(request: Request) -> dict[str, Any]:
    """Answer only from what is visible; what is not, is looked for."""
    last = request.messages[-1]
    told = [text_of(each.parts) for each in request.messages if each.role == "user"]
    ask = re.findall(r"(build|exam) (\d+)$", "\n".join(told), re.MULTILINE)
    kind, number = ask[-1] if ask else ("build", "0")
    if last.role == "tool" and kind == "build":
        return {"text": f"build {number} is done"}
    if kind == "build":
        return {"code": FLOOD.format(number=number)}
    if (found := re.search(rf"id-{number}-\w+", words(request))) is not None:
        return {"text": found[0]}
    if last.role == "tool":
        return {"text": "UNKNOWN"}
    return {"code": f'found = await history.search("id-{number}-qzqzqz")\nfound.hits[0].snippet'}


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_fact_of_the_first_turn_is_found_again(policy: str, home: Path) -> None:
    provider = ScriptedProvider(compose, context_window=WINDOW)
    options: dict[str, Any] = {"context_policy": policy, "context_retain": 2_000, "home": home, "cwd": home}
    async with prime.Agent(provider, **options) as agent:
        for number in range(1, TURNS + 1):
            assert (await agent.ask(f"build {number}")).text == f"build {number} is done"
        assert (await agent.ask("exam 1")).text == "id-1-qzqzqz"
        sizes = [len(words(request)) / CHARACTERS_PER_TOKEN for request in provider.requests]
        if policy in ("slice", "window", "auto", "stream"):
            assert max(sizes) < WINDOW * 0.8
        # every call that was printed to the model works as it is printed
        printed = set(re.findall(r"history\.\w+\((?:seq=)?\d[^)]*\)", "\n".join(map(words, provider.requests))))
        for call in sorted(printed):
            ended = await agent.cell(f"assert await {call}")
            assert ended.status == "ok", (call, text_of(ended.shown))
    with Sessions(home).read(agent.session) as store:
        made = {entry.event.policy for entry in read(store) if isinstance(entry.event, ev.SurfaceReplaced)}
    if policy in ("slice", "stream"):
        assert "tape" in made
    elif policy in ("window", "auto"):  # in so small a window room is needed before sealing is worth it
        assert "window" in made


async def test_a_model_may_start_a_new_window_and_keeps_its_names(home: Path) -> None:
    def say(request: Request) -> dict[str, Any]:
        steps = len([each for each in provider.requests if each.messages])
        return [
            {"code": f"numbers = list(range(10))\n{SHOW}"},
            {"code": f"await notes.write('sum the numbers', revision=0)\n{SHOW}"},
            {"code": "print(await context.new())"},
            {"code": "sum(numbers)"},
            {"text": "45"},
        ][steps - 1]

    provider = ScriptedProvider(say)
    async with prime.Agent(provider, home=home, cwd=home) as agent:
        assert (await agent.ask("sum them")).text == "45"
        fourth = provider.requests[3].messages
        directory = text_of(fourth[0].parts)
        assert [each.role for each in fourth] == ["user", "assistant", "tool"]
        assert "Alive in the kernel: numbers: list" in directory
        assert "sum the numbers" in directory
        assert "in turn 1, 0 turns ago" in directory
        assert "The open turn is about this input" in directory
        assert "queued: the window is switched" in text_of(fourth[-1].parts)
        assert len(provider.requests[4].messages) == 5  # once


async def test_a_cell_that_gives_back_what_left_is_shown_as_any_other(home: Path) -> None:
    """What is recalled is a result like others, and a later switch takes it away again."""
    provider = ScriptedProvider(compose, context_window=WINDOW)
    async with prime.Agent(provider, context_policy="window", context_retain=500, home=home, cwd=home) as agent:
        for number in range(1, TURNS + 1):
            await agent.ask(f"build {number}")
        assert (await agent.ask("exam 1")).text == "id-1-qzqzqz"
        assert (await agent.ask("exam 2")).text == "id-2-qzqzqz"


async def test_a_fork_and_a_resumed_session_keep_the_window_as_it_was(home: Path) -> None:
    provider = ScriptedProvider(compose, context_window=WINDOW)
    async with prime.Agent(provider, context_policy="slice", home=home, cwd=home) as agent:
        for number in range(1, 4):
            await agent.ask(f"build {number}")
        last = provider.requests[-1].messages
    child = Sessions(home).fork(agent.session)
    for session in (agent.session, child):
        again = ScriptedProvider(compose, context_window=WINDOW)
        async with prime.Agent(again, context_policy="slice", session=session, home=home) as resumed:
            await resumed.ask("build 4")
            sent = again.requests[0].messages
            place = next(n for n, (one, other) in enumerate(zip(last, sent, strict=False)) if one != other)
            assert text_of(sent[place].parts).startswith("[slice tape v1 · turns 3-3")
            assert [each.role for each in sent] == ["user"] * 7


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dialect", ["chat", "messages"])
async def test_a_server_that_refuses_the_size_gets_a_small_request(
    policy: str, dialect: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ANTHROPIC_KEY, "k")
    refusal = {"error": {"code": "context_length_exceeded", "message": "maximum context length is 8192 tokens"}}
    noise = (("call_1", "repl", json.dumps({"code": SHOW})),)
    answers = [
        *(Answer(calls=noise) if n % 2 == 0 else Answer(text="ok") for n in range(6)),
        Answer(calls=noise),
        Answer(status=400, body=json.dumps(refusal)),
        *([Answer(text="[]")] if policy == "stream" else []),  # before its third step it asks for the rules
        Answer(text="all of it"),
        Answer(text="and more"),
    ]
    with ModelServer(lambda body: answers.pop(0)) as server:
        model = "compatible/m" if dialect == "chat" else "anthropic/claude-sonnet-4-5"
        address = server.chat_url if dialect == "chat" else server.url
        options: dict[str, Any] = {"base_url": address, "context_policy": policy, "home": home, "cwd": home}
        async with prime.Agent(model, **options) as agent:
            for _ in range(3):
                assert (await agent.ask("work")).text == "ok"
            assert (await agent.ask("more work")).text == "all of it"
            assert (await agent.ask("go on")).text == "and more"
        refused, again = server.raw[7], server.raw[-2]
        assert len(again) < len(refused) - 5_000
    with Sessions(home).read(agent.session) as store:
        said = [message(entry.event) for entry in read(store) if isinstance(entry.event, ev.SurfaceReplaced)]
    assert any("history.expand" in text_of(each.parts) for each in said if each is not None)


async def test_a_turn_that_is_cancelled_before_its_first_request_seals_nothing(home: Path) -> None:
    async def show(code: str, cell: ScriptedCell) -> object:
        cell.print("def f(x):\n    return x + 1\n" * 200)
        return None

    replies = [{"code": "a"}, {"text": "done"}, {"text": "again"}]
    async with scripted(replies, show, home=home, options=Options(policy="slice")) as stage:
        await stage.agent.ask("go")
        said = (TextPart(text="more"),)
        stage.log.append(ev.InputQueued(input_id="late", kind="inform", parts=said))
        cancelled = asyncio.Event()
        cancelled.set()
        assert (await stage.loop.turn(cancelled)).reason == "cancelled"
        assert list(stage.log.entries(types=("surface_replaced",))) == []
        await stage.agent.ask("now")
        assert len(list(stage.log.entries(types=("surface_replaced",)))) == 1


async def test_words_too_large_for_the_model_end_their_turn_and_are_found_again(home: Path) -> None:
    replies = [{"error": {"code": "overflow", "message": "too long"}}, {"code": "look"}, {"text": "found"}]

    async def look(code: str, cell: ScriptedCell) -> object:
        told = await cell.call("history.turn", n=1)
        return "the needle" in str(told)

    async with scripted(replies, look, home=home) as stage:
        answer = await stage.agent.ask("x " * 8_000 + "the needle " + "y " * 8_000)
        assert (answer.reason, answer.detail) == ("error", "overflow: too long")
        assert list(stage.log.entries(types=("surface_replaced",))) == []
        assert (await stage.agent.ask("what did I say?")).text == "found"
        (ended,) = stage.log.entries(types=("cell_ended",))
        assert text_of(ended.event.shown).startswith("True")
