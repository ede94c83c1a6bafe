"""From the surface to a request: its estimate, its check, and how it becomes smaller."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from stories import kernel_started
from strategies import cell_ended
from turns import session
from watch import happened

from prime import events as ev
from prime.messages import Message, TextPart, Usage
from prime.policies.base import Options
from prime.testing import scripted
from prime.tokens import MARGIN, estimate, estimate_message


@pytest.mark.anyio
async def test_a_resumed_session_sends_the_same_request(home: Path) -> None:
    async with scripted([{"code": "a", "text": "see"}, {"text": "done"}], home=home) as stage:
        await stage.agent.ask("go")
        request = stage.loop.context.request(stage.loop.header)
    async with scripted([], home=home, session=stage.log.session) as again:
        assert again.loop.context.request(stage.loop.header) == request
        assert again.loop.context.check(request)


@pytest.mark.anyio
async def test_the_estimate_starts_from_what_the_provider_reported(home: Path) -> None:
    """What is new is scaled by what the model counted for the request that it reported."""
    usage: dict[str, Any] = {"input": 1_000, "cache_read": 2_500, "cache_write": 500, "output": 50}
    async with scripted([{"text": "done", "usage": usage}, {"text": "x", "hang": True}], home=home) as stage:
        context = stage.loop.context
        fixed = context.used()
        await stage.agent.ask("go")
        assert context.used() == 4_050
        (said, *_) = stage.provider.requests[0].messages
        header = stage.loop.header
        guess = estimate(header.system) + estimate(str(header.tools[0])) + estimate_message(said)
        asking = asyncio.create_task(stage.agent.ask("word " * 100))
        await happened(stage.log, "step_started", 2)
        new = estimate_message(Message(role="user", parts=(TextPart(text="word " * 100),)))
        assert context.used() == 4_050 + round(new * 4_000 / guess)
        asking.cancel()
        await asyncio.wait({asking})
        assert fixed == 0


def test_the_estimate_weighs_digits_and_scripts() -> None:
    assert estimate("") == 0
    assert estimate("1234") == 4
    assert estimate("a" * 42) == pytest.approx(10)
    assert estimate("漢" * 100) == pytest.approx(62)
    assert estimate("a1漢") == pytest.approx(1 / 4.2 + 1 + 0.62)
    assert MARGIN == 1.25


@pytest.mark.parametrize(("prompt", "scale"), [(10**6, 3.0), (1, 0.5), (0, 1.0)])
def test_before_the_first_report_there_is_a_margin_and_no_report_moves_the_estimate_too_far(
    prompt: int, scale: float
) -> None:
    with session(Options(policy="transcript")) as turns:
        turns.begin("word " * 1_000)
        turns.send()
        fixed = estimate(turns.header.system) + estimate(str(turns.header.tools[0]))
        said = estimate_message(turns.requests[0].messages[0])
        assert turns.context.used() == round((fixed + said) * MARGIN)
        usage = Usage(input=prompt, output=7)
        turns.log.append(ev.ModelReplied(parts=(), stop="end", model="m", usage=usage), ev.StepEnded(outcome="done"))
        turns.say("word " * 1_000)
        assert turns.context.used() == prompt + 7 + round(said * scale)
        turns.send()
        turns.log.append(ev.StepEnded(outcome="failed"))
        turns.end()


def test_a_policy_is_told_names_only_while_their_kernel_lives() -> None:
    with session(Options(policy="transcript")) as turns:
        turns.log.append(kernel_started(1))
        turns.log.append(ev.CellStarted(cell="c", call_id=None, code="a = 1"))
        turns.log.append(cell_ended("c", None, generation=1, set={"a": "int"}))
        assert turns.context.view().names == (("a", "int"),)
        turns.log.append(ev.KernelLost(generation=1, reason="killed"))
        assert turns.context.view().names == ()
        turns.log.append(kernel_started(2))
        assert turns.context.view().names == ()  # it has run nothing yet
        turns.log.append(ev.CellStarted(cell="d", call_id=None, code="b = 2"))
        turns.log.append(cell_ended("d", None, generation=2, set={"b": "int"}))
        assert turns.context.view().names == (("b", "int"),)


def test_between_turns_a_request_asks_no_policy() -> None:
    with session(Options(policy="window")) as turns:
        turns.turn("go")
        turns.context.renew()
        entries = len(turns.log)
        turns.context.request(turns.header)
        assert len(turns.log) == entries
        turns.turn("go on")  # what was asked for is not forgotten
        assert [entry.event.about for entry in turns.log.entries(types=("notice_given",))] == ["context_kept"]
