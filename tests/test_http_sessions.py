"""Whole sessions over real HTTP, in both dialects, with everything that a model server can do wrong.

The turns of one dialect share a session, a kernel and a server: whatever went wrong before, the next turn works.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from servers import Answer, ModelServer

import prime
from prime import events as ev
from prime.log import read
from prime.messages import Delta, TextPart, text_of
from prime.providers.registry import ANTHROPIC_KEY
from prime.sessions import Sessions

pytestmark = pytest.mark.anyio

CELL = (("call_1", "repl", json.dumps({"code": "print(6 * 7)"})),)
DONE = Answer(text="All of it is done.")
KEY = "sk-canary-4711"

OVERFLOW = {
    "chat": {
        "error": {"code": "context_length_exceeded", "message": "This model's maximum context length is 8192 tokens."}
    },
    "messages": {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "prompt is too long: 9000 tokens > 8192 maximum"},
    },
}


@dataclass
class Line:
    """An agent at one end, a model server at the other."""

    dialect: str
    agent: prime.Agent
    server: ModelServer
    answers: list[Answer]
    home: Path

    async def turn(self, *answers: Answer, ask: str = "go") -> tuple[prime.Answer, list[Any]]:
        """Run one turn with these answers; return what came of it and its events."""
        self.answers[:] = answers
        answer = await self.agent.ask(ask)
        assert self.answers == [], "not every answer was asked for"
        return answer, self.events()

    def events(self) -> list[Any]:
        """Return the events of the newest turn."""
        with Sessions(self.home).read(self.agent.session) as store:
            entries = list(read(store))
        return [entry.event for entry in entries if entry.turn == entries[-1].turn]

    def sent(self) -> str:
        """Return the text of the newest request."""
        return self.server.raw[-1].decode()


@pytest.fixture(scope="module", params=["chat", "messages"])
async def line(
    request: pytest.FixtureRequest, shared_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Line]:
    answers: list[Answer] = []
    with pytest.MonkeyPatch.context() as patch, ModelServer(lambda body: answers.pop(0)) as server:
        patch.setenv(ANTHROPIC_KEY, KEY)
        patch.setenv("PRIME_REPL_API_KEY", KEY)
        where = {"chat": ("compatible/m", server.chat_url), "messages": ("anthropic/m", server.url)}
        model, base_url = where[request.param]
        folder = tmp_path_factory.mktemp("work")
        async with prime.Agent(
            model, base_url=base_url, home=shared_home, cwd=folder, idle_timeout_s=0.4, visible_output_bytes=4_000
        ) as agent:
            yield Line(request.param, agent, server, answers, shared_home)


def of(events: list[Any], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def results(events: list[Any]) -> list[str]:
    return [text_of(event.shown) for event in of(events, ev.CellEnded)]


async def test_a_task_is_done_with_a_cell(line: Line) -> None:
    answer, events = await line.turn(Answer(text="Let me see.", calls=CELL), DONE)
    assert (answer.text, answer.reason) == ("All of it is done.", "completed")
    assert results(events)[0].startswith("42")
    assert answer.usage.output == 14
    assert "42" in line.sent()


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Answer(status=429, body='{"error": {"message": "slow"}}', headers={"Retry-After": "0"}), "rate_limit"),
        (Answer(status=503, body="busy", headers={"Retry-After": "0"}), "server"),
        (Answer(text="a half said sentence that breaks", fault="reset"), "transport"),
        (Answer(text="a half said sentence that is garbled", fault="malformed"), None),
        (Answer(text="a half said sentence and then silence", fault="silence"), "timeout"),
        (Answer(text="a half said sentence that ends early", fault="end"), None),
        (Answer(text="a half said sentence, then an error", fault="error_event"), None),
        (Answer(), "empty"),
    ],
    ids=["429", "503", "reset", "malformed", "silence", "end", "error_event", "empty"],
)
async def test_a_fault_in_the_middle_of_a_task_is_retried_and_the_task_completes(
    line: Line, fault: Answer, code: str | None
) -> None:
    answer, events = await line.turn(Answer(calls=CELL), fault, DONE)
    assert (answer.text, answer.reason) == ("All of it is done.", "completed")
    (failed,) = of(events, ev.RequestFailed)
    (retry,) = of(events, ev.RetryScheduled)
    assert code is None or failed.code == code
    if fault.headers:
        assert retry.delay_s == 0.0
    assert len(results(events)) == 1
    assert "half said" not in line.sent()
    assert len(of(events, ev.ModelReplied)) == 2


@pytest.mark.parametrize("fault", ["end", "reset", "malformed", "silence"])
async def test_half_a_tool_call_never_runs(line: Line, fault: Any) -> None:
    code = "open('never', 'w').write('half a call ran')  # " + "x" * 80
    half = Answer(calls=(("call_1", "repl", json.dumps({"code": code})),), fault=fault)
    answer, events = await line.turn(half, DONE)
    assert answer.reason == "completed"
    assert of(events, ev.CellStarted) == []
    assert of(events, ev.CallRefused) == []


async def test_a_call_cut_by_the_token_limit_never_runs(line: Line) -> None:
    stop = {"chat": "length", "messages": "max_tokens"}[line.dialect]
    cut = Answer(text="I will", calls=(("call_1", "repl", '{"code": "import shutil; shutil.rmt'),), stop=stop)
    answer, events = await line.turn(cut)
    assert (answer.reason, answer.text) == ("max_tokens", "I will")
    assert of(events, ev.CellStarted) == []
    answer, _ = await line.turn(DONE)
    assert answer.reason == "completed"
    assert "shutil" not in line.sent()


async def test_a_request_too_large_is_made_smaller_and_sent_again(line: Line) -> None:
    much = (("call_1", "repl", json.dumps({"code": "print('much output ' * 300)"})),)
    overflow = Answer(status=400, body=json.dumps(OVERFLOW[line.dialect]))
    answer, events = await line.turn(Answer(calls=much), overflow, DONE)
    assert answer.reason == "completed"
    assert [step.outcome for step in of(events, ev.StepEnded)] == ["done", "overflow", "done"]
    assert len(line.server.raw[-1]) < len(line.server.raw[-2])
    assert "history.expand" in line.sent()


async def test_a_key_that_is_refused_ends_the_turn_at_once_and_is_not_shown(line: Line) -> None:
    refused = Answer(status=401, body=json.dumps({"error": {"message": f"bad key {KEY}"}}))
    answer, events = await line.turn(refused)
    assert answer.reason == "error"
    assert answer.detail.startswith("auth: ")
    assert KEY not in answer.detail
    assert len(of(events, ev.RequestFailed)) == 1


async def test_a_server_that_speaks_something_else_is_a_failure_with_a_name(line: Line) -> None:
    wrong = Answer(fault="not_sse", body='{"hello": "there"}')
    line.answers[:] = [wrong]
    async for item in line.agent.stream("go"):
        if isinstance(item, ev.Entry) and isinstance(item.event, ev.RetryScheduled):
            line.agent.interrupt()
    (failed,) = of(line.events(), ev.RequestFailed)
    assert failed.code == "malformed"


async def test_odd_text_of_a_model_does_not_stop_the_session(line: Line) -> None:
    answer, _ = await line.turn(Answer(text="half an emoji \ud83d here", chunk=200))
    assert answer.reason == "completed"
    assert answer.text == "half an emoji \ufffd here"
    for odd in ('{"code": "print(\'\\ud83d\')"}', '{"code": NaN}', '{"code": "1", "more": 1e999}', "[" * 5_000, "{"):
        answer, _ = await line.turn(Answer(calls=(("call_1", "repl", odd),), chunk=200), DONE)
        assert answer.reason == "completed"


async def test_two_calls_with_one_id_are_both_answered(line: Line) -> None:
    twice = (*CELL, ("call_1", "repl", json.dumps({"code": "print('second')"})))
    answer, events = await line.turn(Answer(calls=twice), DONE)
    assert answer.reason == "completed"
    assert [text.splitlines()[0] for text in results(events)] == ["42", "second"]


async def test_cancelling_closes_the_connection_and_sends_nothing_more(line: Line) -> None:
    line.server.gone.clear()
    line.answers[:] = [Answer(text="word " * 500, delay_s=0.01)]
    before = len(line.server.raw)
    async for item in line.agent.stream("talk"):
        if isinstance(item, Delta):
            line.agent.interrupt()
    events = line.events()
    assert of(events, ev.TurnEnded)[0].reason == "cancelled"
    (reply,) = of(events, ev.ModelReplied)
    assert reply.interrupted
    assert isinstance(reply.parts[0], TextPart)
    assert "word" in reply.parts[0].text
    assert await asyncio.to_thread(line.server.gone.wait, 5)
    assert len(line.server.raw) == before + 1
    answer, _ = await line.turn(DONE)
    assert answer.reason == "completed"


async def test_the_session_holds_no_key(line: Line) -> None:
    folder = Sessions(line.home).folder(line.agent.session)
    assert KEY.encode() not in b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())
