"""From the surface to a request: its estimate, its check, and how it becomes smaller."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import cell_ended
from watch import of

from prime import events as ev
from prime.messages import ImagePart, Message, TextPart, text_of
from prime.policies.overflow import KEEP, shrink
from prime.testing import ScriptedCell, scripted
from prime.tokens import MARGIN, estimate, estimate_message

PICTURE = ImagePart(media_type="image/png", data="AAAA")


def surface(*texts: str, images: int = 0) -> list[ev.Entry]:
    found = []
    for number, text in enumerate(texts):
        shown = (TextPart(text=text), *[PICTURE] * images)
        found.append(ev.Entry("s", number * 2, 0, 1, 1, cell_ended(f"c{number}", f"call-{number}", shown=shown)))
        found.append(ev.Entry("s", number * 2 + 1, 0, 1, 1, ev.NoticeGiven(about="x", text=text)))
    return found


@given(st.lists(st.text(max_size=2_000), max_size=6))
def test_shrinking_makes_every_long_result_shorter_and_leaves_the_rest(texts: list[str]) -> None:
    operations = shrink(surface(*texts))
    assert [operation.start for operation in operations] == [n * 2 for n, text in enumerate(texts) if len(text) > KEEP]
    for operation in operations:
        whole = texts[operation.start // 2]
        assert len(text_of(operation.message.parts)) < len(whole)
        assert f"history.expand(seq={operation.start}, format=1)" in text_of(operation.message.parts)
        assert operation.message.call_id == f"call-{operation.start // 2}"


def test_shrinking_gives_images_up_too() -> None:
    (operation,) = shrink(surface("short", images=2))
    assert [part.type for part in operation.message.parts] == ["text"]


def test_a_cell_by_hand_is_not_on_the_surface_and_not_shrunk() -> None:
    by_hand = ev.Entry("s", 0, 0, None, None, cell_ended("c", None, shown=(TextPart(text="x" * 5_000),)))
    assert shrink([by_hand]) == ()


@pytest.mark.anyio
async def test_what_was_shrunk_is_not_shrunk_again(home: Path) -> None:
    async def play(code: str, cell: ScriptedCell) -> object:
        cell.print("x" * 3_000)
        return None

    async with scripted([{"code": ["a", "b"]}, {"text": "done"}, {"text": "more"}], play, home=home) as stage:
        await stage.agent.ask("go")
        context = stage.loop.context
        before = context.used()
        assert context.shrink()
        assert not context.shrink()
        assert len(of(stage.log, "surface_replaced")) == 2
        await stage.agent.ask("again")
        assert len(str(stage.provider.requests[-1].messages)) < 3_000
        assert before > 0


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
    usage: dict[str, Any] = {"input": 100, "cache_read": 800, "cache_write": 50, "output": 50}
    async with scripted([{"text": "done", "usage": usage}, {"text": "x", "hang": True}], home=home) as stage:
        context = stage.loop.context
        fixed = context.used()
        await stage.agent.ask("go")
        assert context.used() == 1_000
        asking = asyncio.create_task(stage.agent.ask("word " * 100))
        await asyncio.sleep(0.05)
        new = estimate_message(Message(role="user", parts=(TextPart(text="word " * 100),)))
        assert context.used() == 1_000 + round(new)
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
