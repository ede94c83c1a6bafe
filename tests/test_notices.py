"""Notices: what the host tells the model of what went on beside its cells, over the real loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from watch import happened, kinds, of, until

from prime.errors import PrimeError
from prime.messages import Request, text_of
from prime.notices import Notices
from prime.projection import NOTICE
from prime.testing import ScriptedCell, Stage, scripted
from prime.views.markdown import markdown
from prime.views.transcript import transcript

pytestmark = pytest.mark.anyio


def texts(request: Request) -> list[str]:
    return [text_of(message.parts) for message in request.messages]


def given(stage: Stage) -> list[str]:
    """The notices that the model was given, in order."""
    return [event.text for event in of(stage.log, "notice_given")]


async def ended(stage: Stage, turns: int) -> None:
    await happened(stage.log, "turn_ended", turns)


async def test_a_notice_starts_a_turn_of_its_own_and_is_marked_as_the_hosts(home: Path) -> None:
    async with scripted([{"text": "waiting"}, {"text": "seen"}], home=home) as stage:
        await stage.agent.ask("go")
        Notices(stage.log).give("the job build ended: exit code 0", source="jobs.1")
        await ended(stage, 2)
        assert texts(stage.provider.requests[-1])[-1] == f"{NOTICE}the job build ended: exit code 0"
        assert of(stage.log, "notice_given")[0].about == "jobs.1"
        assert [event.kind for event in of(stage.log, "user_said")] == ["ask"]


async def test_the_next_step_of_a_running_turn_claims_a_notice(home: Path) -> None:
    async def news(code: str, cell: ScriptedCell) -> object:
        stage.agent.notify("news", source="jobs.1")
        return None

    async with scripted([{"code": "1"}, {"text": "done"}], news, home=home) as stage:
        await stage.agent.ask("go")
        assert texts(stage.provider.requests[1])[-1] == f"{NOTICE}news"
        await asyncio.sleep(0.01)
        assert kinds(stage.log).count("turn_started") == 1


async def test_a_notice_at_the_end_of_a_turn_does_not_hold_the_answer_back(home: Path) -> None:
    async with scripted([{"text": "the answer", "delay_s": 0.05}, {"text": "seen"}], home=home) as stage:
        asking = asyncio.create_task(stage.agent.ask("go"))
        await happened(stage.log, "step_started")
        stage.agent.notify("news", source="jobs.1")
        assert (await asking).text == "the answer"
        await ended(stage, 2)
        assert given(stage) == ["news"]


async def test_three_turns_in_a_row_are_woken_and_the_rest_comes_with_the_next_words(home: Path) -> None:
    async with scripted(lambda request: {"text": "ok"}, home=home) as stage:
        await stage.agent.ask("go")
        for number in range(3):
            stage.agent.notify(f"news {number}", source="jobs.1")
            await ended(stage, number + 2)
        stage.agent.notify("news 3", source="jobs.1")
        stage.agent.notify("news 4", source="jobs.2", wake=False)
        await asyncio.sleep(0.02)
        assert kinds(stage.log).count("turn_started") == 4
        await stage.agent.ask("anything new?")
        assert texts(stage.provider.requests[-1])[-3:] == [f"{NOTICE}news 3", f"{NOTICE}news 4", "anything new?"]
        stage.agent.notify("news 5", source="jobs.1")
        await ended(stage, 6)


async def test_what_the_model_has_read_already_is_taken_back(home: Path) -> None:
    async with scripted([{"text": "a"}, {"text": "b"}], home=home) as stage:
        await stage.agent.ask("go")
        notices = Notices(stage.log)
        notices.give("old news", source="jobs.1", wake=False)
        notices.give("more of them", source="jobs.1", wake=False)
        notices.give("news", source="jobs.2", wake=False)
        assert notices.withdraw("jobs.1")
        assert not notices.withdraw("jobs.1")
        await stage.agent.ask("go on")
        assert given(stage) == ["news"]
        assert not notices.withdraw("jobs.2")


async def test_a_notice_is_delivered_once_over_a_resume(home: Path) -> None:
    async with scripted([{"text": "a"}, {"hang": True}], home=home) as stage:
        await stage.agent.ask("go")
        asking = asyncio.create_task(stage.agent.ask("go on"))
        await happened(stage.log, "step_started", 2)
        stage.agent.notify("news", source="jobs.1")
    assert (await asking).reason == "cancelled"
    async with scripted([{"text": "seen"}], home=home, session=stage.log.session) as again:
        await ended(again, 3)
        assert given(again) == ["news"]
    async with scripted([{"text": "never"}], home=home, session=stage.log.session) as third:
        await asyncio.sleep(0.02)
        assert third.provider.requests == []
    with pytest.raises(PrimeError, match="not running"):
        third.agent.notify("late", source="jobs.1")


async def test_without_words_of_a_person_nothing_is_woken(home: Path) -> None:
    async with scripted([{"text": "hello"}], home=home) as stage:
        stage.agent.notify("news", source="jobs.1")
        await asyncio.sleep(0.02)
        assert "turn_started" not in kinds(stage.log)
        await stage.agent.ask("hello")
        assert texts(stage.provider.requests[0]) == [f"{NOTICE}news", "hello"]


async def test_views_show_a_woken_turn(home: Path) -> None:
    async with scripted([{"text": "a"}, {"text": "seen"}], home=home) as stage:
        await stage.agent.ask("go")
        stage.agent.notify("the job build ended", source="jobs.1")
        await until(stage.log, lambda: len(of(stage.log, "turn_ended")) == 2)
        seen = transcript(stage.log.entries())
        assert seen.title == "go"
        assert "the job build ended" in markdown(seen)


async def test_who_waits_for_rest_gets_the_last_words_and_the_usage_of_all_turns(home: Path) -> None:
    usage = {"input": 10, "output": 1}
    replies = [{"text": "a", "usage": usage, "delay_s": 0.05}, {"text": "b", "usage": usage}]
    async with scripted(replies, home=home) as stage:
        asking = asyncio.create_task(stage.agent.ask("go"))
        await happened(stage.log, "step_started")
        stage.agent.notify("news", source="jobs.1")
        first = await asking
        answer = await stage.agent.rest(first)
        assert (first.text, first.usage.input) == ("a", 10)
        assert (answer.text, answer.turn, answer.usage.input) == ("b", 2, 20)
        assert await stage.agent.rest(answer) == answer
