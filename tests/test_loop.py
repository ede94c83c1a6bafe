"""The loop with a scripted model and a scripted kernel, over a real log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from watch import happened, kinds, of, results, shown

from prime import events as ev
from prime.agent import Agent
from prime.caps import Limits
from prime.context import Context
from prime.errors import RequestMismatch
from prime.log import Log
from prime.messages import Header, Message, Request, TextPart, Usage, text_of
from prime.providers.scripted import ScriptedProvider
from prime.store.sqlite import SqliteStore
from prime.testing import ScriptedCell, Stage, scripted

pytestmark = pytest.mark.anyio


async def raising(code: str, cell: ScriptedCell) -> object:
    """Fail for code that begins with ``bad``, else complete with it."""
    if code.startswith("bad"):
        raise ValueError("it does not work")
    return code


def big(size: int) -> Any:
    async def play(code: str, cell: ScriptedCell) -> object:
        cell.print("x" * size)
        return None

    return play


async def test_a_text_answer_is_one_step(home: Path) -> None:
    async with scripted([{"text": "4", "usage": {"input": 10, "output": 2}}], home=home) as stage:
        answer = await stage.agent.ask("2 + 2?")
        assert (answer.text, answer.reason, answer.turn, answer.usage) == (
            "4",
            "completed",
            1,
            Usage(input=10, output=2),
        )
        assert kinds(stage.log) == [
            "session_created",
            "input_queued",
            "turn_started",
            "input_claimed",
            "user_said",
            "header_changed",
            "step_started",
            "model_replied",
            "step_ended",
            "turn_ended",
        ]


async def test_the_header_is_logged_once(home: Path) -> None:
    async with scripted([{"text": "a"}, {"text": "b"}], home=home) as stage:
        await stage.agent.ask("1")
        await stage.agent.ask("2")
        assert len(of(stage.log, "header_changed")) == 1
        first, second = stage.provider.requests
        assert second.messages[: len(first.messages)] == first.messages


async def test_several_cells_of_one_reply_run_in_order(home: Path) -> None:
    async with scripted([{"code": ["one", "two", "three"]}, {"text": "done"}], home=home) as stage:
        await stage.agent.ask("go")
        assert stage.repl.codes == ["one", "two", "three"]
        assert [text.splitlines()[0] for text in results(stage.log)] == ["'one'", "'two'", "'three'"]
        sent = stage.provider.requests[-1].messages[-3:]
        assert [message.call_id for message in sent] == ["call-1-1", "call-1-2", "call-1-3"]


async def test_an_unknown_tool_is_refused_with_the_way_in_the_cell(home: Path) -> None:
    calls = [{"name": "read", "arguments": {"path": "a"}}, {"name": "fly", "arguments": {}}]
    async with scripted([{"code": "one", "call": calls}, {"text": "done"}], home=home) as stage:
        await stage.agent.ask("go")
        read, fly = of(stage.log, "call_refused")
        assert (read.code, read.name) == ("unknown_tool", "read")
        assert "await tools.read(...)" in read.text
        assert "help(tools)" in fly.text
        assert stage.repl.codes == ["one"]
        assert of(stage.log, "dispatch_started") == []
        assert len(results(stage.log)) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "{",
        '{"code": 5}',
        '{"cod": "1"}',
        "[]",
        '"1"',
        '{"code": "\\ud800"}',
        "[" * 100_000,
        '{"code": ' + "9" * 5_000 + "}",
    ],
    ids=["empty", "cut", "number", "misspelt", "list", "text", "surrogate", "deep", "large"],
)
async def test_malformed_arguments_run_nothing_and_say_what_is_expected(arguments: str, home: Path) -> None:
    call = {"name": "repl", "arguments": arguments}
    async with scripted([{"call": call}, {"text": "done"}], home=home) as stage:
        assert (await stage.agent.ask("go")).reason == "completed"
        (refused,) = of(stage.log, "call_refused")
        assert refused.code == "bad_arguments"
        assert '{"code": "..."}' in refused.text
        assert len(refused.text) < 400
        assert stage.repl.codes == []


async def test_cancel_between_two_cells_answers_the_rest_as_not_started(home: Path) -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        stage.agent.interrupt()
        await asyncio.Event().wait()
        return None

    replies = [{"code": ["one", "two"], "call": {"name": "fly"}}, {"text": "next"}]
    async with scripted(replies, play, home=home) as stage:
        answer = await stage.agent.ask("go")
        assert answer.reason == "cancelled"
        assert stage.repl.codes == ["one"]
        (ended,) = of(stage.log, "cell_ended")
        assert ended.status == "interrupted"
        assert "interrupted" in shown(ended)
        assert [event.code for event in of(stage.log, "call_refused")] == ["not_started", "not_started"]
        assert kinds(stage.log)[-2:] == ["step_ended", "turn_ended"]
        assert len(stage.provider.requests) == 1
        # the model sees one result for each of its calls, and the session goes on
        assert (await stage.agent.ask("and?")).text == "next"
        assert [message.role for message in stage.provider.requests[-1].messages] == [
            "user",
            "assistant",
            "tool",
            "tool",
            "tool",
            "user",
        ]


async def test_a_reply_cut_by_the_token_limit_neither_runs_nor_logs_its_call(home: Path) -> None:
    call = {"name": "repl", "arguments": '{"code": "import shutil; shutil.rmtr'}
    async with scripted([{"text": "I", "call": call, "stop": "length"}, {"text": "ok"}], home=home) as stage:
        answer = await stage.agent.ask("go")
        assert answer.reason == "max_tokens"
        assert stage.repl.codes == []
        (reply,) = of(stage.log, "model_replied")
        assert [part.type for part in reply.parts] == ["text"]
        assert (await stage.agent.ask("go on")).text == "ok"


async def test_a_withheld_reply_ends_the_turn(home: Path) -> None:
    async with scripted([{"stop": "filter"}], home=home) as stage:
        answer = await stage.agent.ask("go")
        assert (answer.reason, answer.detail) == ("error", "the provider withheld the reply")


async def test_empty_replies_are_nudged_twice(home: Path) -> None:
    async with scripted([{"repeat": 3}], home=home) as stage:
        answer = await stage.agent.ask("go")
        assert answer.reason == "empty_replies"
        assert [event.about for event in of(stage.log, "notice_given")] == ["empty_reply", "empty_reply"]
        assert "Your last reply was empty" in text_of(stage.provider.requests[-1].messages[-1].parts)


async def test_a_nudged_model_that_answers_has_completed(home: Path) -> None:
    async with scripted([{"reasoning": "hm"}, {"text": "  "}, {"text": "done"}], home=home) as stage:
        assert (await stage.agent.ask("go")).reason == "completed"


async def test_steps_are_capped(home: Path) -> None:
    async with scripted([{"code": "one", "repeat": 9}], home=home, limits=Limits(max_steps=3)) as stage:
        answer = await stage.agent.ask("go")
        assert answer.reason == "max_steps"
        assert len(stage.provider.requests) == 3
        assert len(results(stage.log)) == 3


async def test_a_cell_that_fails_again_and_again_is_corrected_and_then_stopped(home: Path) -> None:
    async with scripted([{"code": "bad", "repeat": 9}], raising, home=home) as stage:
        answer = await stage.agent.ask("go")
        assert answer.reason == "repeated_failure"
        assert stage.repl.codes == ["bad"] * 5
        (notice,) = of(stage.log, "notice_given")
        assert notice.about == "repeated_failure"
        assert "3 times" in notice.text


async def test_wall_time_is_capped_between_steps(home: Path) -> None:
    async def slow(code: str, cell: ScriptedCell) -> object:
        await asyncio.sleep(0.05)
        return None

    async with scripted([{"code": "x", "repeat": 9}], slow, home=home, limits=Limits(max_seconds=0.04)) as stage:
        assert (await stage.agent.ask("go")).reason == "max_seconds"
        assert len(stage.provider.requests) == 1


async def test_money_is_capped_for_the_session(home: Path) -> None:
    usage = {"input": 1_000_000, "output": 0}
    provider = ScriptedProvider([{"code": "x", "usage": usage, "repeat": 9}], model="openai/gpt-4o")
    async with scripted(provider, home=home, limits=Limits(max_cost=4.0)) as stage:
        answer = await stage.agent.ask("go")
        assert answer.reason == "max_cost"
        assert len(stage.provider.requests) == 2
        assert answer.cost is not None
        again = await stage.agent.ask("more")
        assert again.reason == "max_cost"
        assert len(stage.provider.requests) == 2


async def test_overflow_shrinks_what_was_shown_and_tries_once_more(home: Path) -> None:
    replies = [{"code": "x"}, {"error": {"code": "overflow"}}, {"text": "done"}]
    async with scripted(replies, big(5_000), home=home) as stage:
        answer = await stage.agent.ask("go")
        assert (answer.text, answer.reason) == ("done", "completed")
        _, second, third = stage.provider.requests
        assert len(str(third.messages)) < 1_500 < len(str(second.messages))
        stub = text_of(third.messages[-1].parts)
        (ended,) = stage.log.entries(types=("cell_ended",))
        assert f"history.expand(seq={ended.seq}, format=1)" in stub
        assert [event.outcome for event in of(stage.log, "step_ended")] == ["done", "overflow", "done"]


async def test_overflow_never_loops(home: Path) -> None:
    replies = [{"code": "x"}, {"error": {"code": "overflow", "message": "too long"}, "repeat": 9}]
    async with scripted(replies, big(5_000), home=home) as stage:
        answer = await stage.agent.ask("go")
        assert (answer.reason, answer.detail) == ("error", "overflow: too long")
        assert len(stage.provider.requests) == 3


async def test_overflow_of_what_cannot_shrink_ends_the_turn(home: Path) -> None:
    async with scripted([{"error": {"code": "overflow"}}, {"text": "next"}], home=home) as stage:
        assert (await stage.agent.ask("x" * 10_000)).reason == "error"
        assert len(stage.provider.requests) == 1
        assert (await stage.agent.ask("short")).text == "next"


class Leaky(Context):
    """Sends something that was never logged."""

    leaks = True

    def request(self, header: Header) -> Request:
        request = super().request(header)
        if not self.leaks:
            return request
        secret = Message(role="user", parts=(TextPart(text="and do not tell anybody"),))
        return request.model_copy(update={"messages": (*request.messages, secret)})


async def test_a_request_with_something_unlogged_is_never_sent(home: Path) -> None:
    async with (
        scripted([{"text": "done"}], home=home) as stage,
        another(stage, home / "other") as (agent, log, context),
    ):
        with pytest.raises(RequestMismatch):
            context.check(context.request(stage.loop.header))
        answer = await agent.ask("go")
        assert answer.reason == "error"
        assert "never logged" in answer.detail
        assert stage.provider.requests == []
        assert "step_started" not in kinds(log)
        context.leaks = False
        assert (await agent.ask("go")).text == "done"


async def test_a_header_that_was_not_logged_is_never_sent(home: Path) -> None:
    async with scripted([], home=home) as stage:
        request = stage.loop.context.request(stage.loop.header)
        changed = request.model_copy(update={"header": request.header.model_copy(update={"system": "else"})})
        with pytest.raises(RequestMismatch):
            stage.loop.context.check(changed)


@asynccontextmanager
async def another(stage: Stage, file: Path) -> AsyncIterator[tuple[Agent, Log, Leaky]]:
    """Run an agent like the stage's over a log of its own, in ``file``, that leaks."""
    with Log(SqliteStore.create(file, ev.FORMAT)) as log:
        log.append(ev.SessionCreated(session="other", cwd="/", version="0"))
        context = Leaky(log)
        loop = replace(stage.loop, log=log, context=context, cells=replace(stage.loop.cells, log=log))
        async with Agent(loop) as agent:
            yield agent, log, context


class Buggy(ScriptedProvider):
    """Breaks at the first request."""

    async def reply(self, request: Request, on_delta: Any) -> Any:
        if not self.requests:
            self.requests.append(request)
            raise ZeroDivisionError("a bug")
        return await super().reply(request, on_delta)


async def test_a_bug_in_a_turn_closes_it_reaches_the_caller_and_stops_nothing_else(home: Path) -> None:
    async with scripted(Buggy([{"text": "unused"}, {"text": "next"}]), home=home) as stage:
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await stage.agent.ask("go")
        (ended,) = of(stage.log, "turn_ended")
        assert (ended.reason, ended.detail) == ("error", "ZeroDivisionError: a bug")
        assert stage.log.state.trace.quiet
        assert (await stage.agent.ask("go")).text == "next"


async def test_a_bug_in_a_turn_that_nobody_waits_for_is_reported(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with scripted(Buggy([{"text": "unused"}, {"text": "next"}]), home=home) as stage:
        stage.agent.steer("go")
        await happened(stage.log, "turn_ended")
        assert (await stage.agent.ask("go")).text == "next"
        assert "a bug" in caplog.text


async def test_a_tool_that_breaks_is_an_error_of_the_call(home: Path) -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        return await cell.call("tools.read", path="missing")

    async with scripted([{"code": "x"}, {"text": "done"}], play, home=home) as stage:
        assert (await stage.agent.ask("go")).reason == "completed"
        (ended,) = of(stage.log, "dispatch_ended")
        assert ended.error.code == "not_found"
        assert of(stage.log, "cell_ended")[0].status == "error"


async def test_steering_joins_at_the_next_step(home: Path) -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        stage.agent.steer("in blue")
        return None

    async with scripted([{"code": "x"}, {"text": "done"}], play, home=home) as stage:
        answer = await stage.agent.ask("paint")
        assert (answer.turn, answer.text) == (1, "done")
        assert text_of(stage.provider.requests[-1].messages[-1].parts) == "in blue"


async def test_steering_that_comes_with_the_last_word_keeps_the_turn_going(home: Path) -> None:
    async with scripted([{"text": "done"}, {"text": "done in blue"}], home=home) as stage:
        stage.log.observe(lambda entry: None)
        stage.loop.live.add(lambda delta: stage.agent.steer("in blue") if len(stage.provider.requests) == 1 else None)
        answer = await stage.agent.ask("paint")
        assert (answer.turn, answer.text) == (1, "done in blue")


async def test_what_only_informs_neither_starts_a_turn_nor_keeps_one_going(home: Path) -> None:
    async with scripted([{"text": "a"}, {"text": "b"}], home=home) as stage:
        stage.agent.inform("before")
        await asyncio.sleep(0.01)
        assert "turn_started" not in kinds(stage.log)
        told: list[str] = []
        stage.loop.live.add(lambda delta: told.append(stage.agent.inform("during")) if not told else None)
        await stage.agent.ask("one")
        assert len(stage.provider.requests) == 1
        assert [text_of(message.parts) for message in stage.provider.requests[0].messages] == ["before", "one"]
        await stage.agent.ask("two")
        assert [text_of(message.parts) for message in stage.provider.requests[1].messages[-2:]] == ["during", "two"]


@pytest.mark.parametrize("ending", ["cancel", "cap"])
async def test_steering_that_the_turn_can_no_longer_answer_gets_a_turn_of_its_own(ending: str, home: Path) -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        stage.agent.steer("in blue")
        if ending == "cancel":
            stage.agent.interrupt()
            await asyncio.Event().wait()
        return None

    replies = [{"code": "x"}, {"text": "done in blue"}]
    async with scripted(replies, play, home=home, limits=Limits(max_steps=1)) as stage:
        answer = await stage.agent.ask("paint")
        assert answer.reason == ("cancelled" if ending == "cancel" else "max_steps")
        await happened(stage.log, "turn_ended", 2)
        assert of(stage.log, "turn_ended")[1].reason == "completed"
        assert text_of(stage.provider.requests[-1].messages[-1].parts) == "in blue"


async def test_every_result_ends_with_the_size_of_the_context(home: Path) -> None:
    provider = ScriptedProvider(
        [{"code": "x", "usage": {"input": 900, "output": 100}}, {"text": "done"}], context_window=8_000
    )
    async with scripted(provider, home=home) as stage:
        await stage.agent.ask("go")
        (result,) = results(stage.log)
        assert result.splitlines()[-1] == "[context: 1,000 of 8,000 tokens]"
