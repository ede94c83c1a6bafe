"""Requests with their retries: what is tried again, what is waited for, and what of it is in the log."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from watch import happened, kinds, of

from prime.errors import ProviderError
from prime.messages import text_of
from prime.providers.scripted import ScriptedProvider
from prime.request import MAX_RETRY_AFTER_S, RETRIES
from prime.testing import scripted

pytestmark = pytest.mark.anyio


def fails(code: str, **fault: object) -> dict[str, object]:
    return {"error": {"code": code, **fault}}


async def test_a_failure_that_may_pass_is_tried_again_and_both_are_logged_first(home: Path) -> None:
    replies = [fails("server", retry_after_s=0.0, status=503), {"text": "done"}]
    async with scripted(replies, home=home) as stage:
        answer = await stage.agent.ask("go")
    assert (answer.text, answer.reason) == ("done", "completed")
    async with scripted([], home=home, session=stage.log.session) as again:
        (failed,) = of(again.log, "request_failed")
        (retry,) = of(again.log, "retry_scheduled")
    assert (failed.attempt, failed.code, failed.status) == (1, "server", 503)
    assert (retry.attempt, retry.delay_s) == (2, 0.0)


async def test_the_text_of_a_failed_attempt_is_in_no_message(home: Path) -> None:
    replies = [{"text": "half a thou", **fails("transport", retry_after_s=0.0)}, {"text": "done"}, {"text": "again"}]
    async with scripted(replies, home=home) as stage:
        await stage.agent.ask("go")
        await stage.agent.ask("more")
        assert "half" not in str(stage.provider.requests[-1].messages)


async def test_what_cannot_pass_is_not_tried_again_and_is_logged(home: Path) -> None:
    async with scripted([fails("auth", message="no such key")], home=home) as stage:
        answer = await stage.agent.ask("go")
        assert (answer.reason, answer.detail) == ("error", "auth: no such key")
        assert len(stage.provider.requests) == 1
        (failed,) = of(stage.log, "request_failed")
        assert failed.message == "no such key"
        assert of(stage.log, "retry_scheduled") == []
        assert kinds(stage.log)[-2:] == ["step_ended", "turn_ended"]
        assert "model_replied" not in kinds(stage.log)


async def test_it_gives_up_after_the_last_retry(home: Path) -> None:
    replies = [{**fails("rate_limit", retry_after_s=0.0), "repeat": RETRIES + 1}, {"text": "next"}]
    async with scripted(replies, home=home) as stage:
        answer = await stage.agent.ask("go")
        assert answer.reason == "error"
        assert len(stage.provider.requests) == RETRIES + 1
        assert [event.attempt for event in of(stage.log, "request_failed")] == list(range(1, RETRIES + 2))
        assert [event.attempt for event in of(stage.log, "retry_scheduled")] == list(range(2, RETRIES + 2))
        assert (await stage.agent.ask("and now")).text == "next"


@pytest.mark.parametrize("code", ["transport", "server", "rate_limit", "empty", "timeout"])
async def test_the_wait_is_in_the_log_before_it_begins(code: str, home: Path) -> None:
    async with scripted([fails(code, retry_after_s=60.0), {"text": "never"}], home=home) as stage:
        asking = asyncio.create_task(stage.agent.ask("go"))
        await happened(stage.log, "retry_scheduled")
        assert of(stage.log, "retry_scheduled")[0].delay_s == 60.0
        assert not asking.done()
        stage.agent.interrupt()
        async with asyncio.timeout(5):
            answer = await asking
        assert answer.reason == "cancelled"
        assert len(stage.provider.requests) == 1


async def test_without_a_word_of_the_provider_the_first_wait_is_half_a_second(home: Path) -> None:
    async with scripted([fails("server"), {"text": "done"}], home=home) as stage:
        assert (await stage.agent.ask("go")).text == "done"
        (retry,) = of(stage.log, "retry_scheduled")
        assert 0.5 <= retry.delay_s <= 0.6


async def test_a_wait_longer_than_anybody_would_ends_the_turn(home: Path) -> None:
    async with scripted(
        [fails("rate_limit", message="come back tomorrow", retry_after_s=86_400.0)], home=home
    ) as stage:
        answer = await stage.agent.ask("go")
        assert (answer.reason, answer.detail) == ("error", "rate_limit: come back tomorrow")
        assert MAX_RETRY_AFTER_S < 86_400
        assert of(stage.log, "retry_scheduled") == []


async def test_a_cancelled_reply_keeps_its_words_and_drops_its_calls(home: Path) -> None:
    async with scripted([{"text": "I will look.", "code": "1", "hang": True}, {"text": "ok"}], home=home) as stage:
        calling = asyncio.Event()
        stage.loop.live.add(lambda delta: calling.set() if delta.kind == "call" else None)
        asking = asyncio.create_task(stage.agent.ask("go"))
        async with asyncio.timeout(5):
            await calling.wait()
        stage.agent.interrupt()
        assert (await asking).reason == "cancelled"
        (reply,) = of(stage.log, "model_replied")
        assert reply.interrupted
        assert text_of(reply.parts) == "I will look."
        assert len(reply.parts) == 1
        assert kinds(stage.log)[-3:] == ["model_replied", "step_ended", "turn_ended"]
        await stage.agent.ask("go on")
        said = [text_of(message.parts) for message in stage.provider.requests[-1].messages]
        assert said == ["go", "I will look.", "go on"]


async def test_a_cancelled_reply_that_said_nothing_leaves_no_message(home: Path) -> None:
    async with scripted([{"reasoning": "hm", "hang": True}], home=home) as stage:
        asking = asyncio.create_task(stage.agent.ask("go"))
        await happened(stage.log, "step_started")
        await asyncio.sleep(0.01)
        stage.agent.interrupt()
        assert (await asking).reason == "cancelled"
        assert "model_replied" not in kinds(stage.log)


async def test_words_that_no_log_can_hold_do_not_hide_the_failure(home: Path) -> None:
    class Garbled(ScriptedProvider):
        async def reply(self, request: object, on_delta: object) -> object:
            raise ProviderError("bad_request", "odd \udcff bytes", retryable=False)

    async with scripted(Garbled([]), home=home) as stage:
        answer = await stage.agent.ask("go")
        assert (answer.reason, answer.detail) == ("error", "bad_request: odd \ufffd bytes")
