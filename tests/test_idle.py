"""A kernel that nobody uses gives its memory back, and nothing is lost by it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import watch

from prime import guest
from prime.agent import Agent
from prime.app import running
from prime.config import Config
from prime.providers.scripted import ScriptedProvider

pytestmark = pytest.mark.anyio

IDLE_S = 0.3


@asynccontextmanager
async def session(home: Path, **settings: Any) -> AsyncIterator[Agent]:
    config = Config(home=home, guest_environment=guest.environment(os.environ), kernel_idle_s=IDLE_S, **settings)
    async with running(config, home, ScriptedProvider([]), session=None) as agent:
        yield agent


async def shown(agent: Agent, code: str) -> str:
    return watch.shown(await agent.cell(code))


async def process(agent: Agent, code: str) -> psutil.Process:
    """Run a cell that leaves no name behind, and return the process that ran it."""
    text = await shown(agent, f"{code}\nprint(__import__('os').getpid())")
    return psutil.Process(int(text.splitlines()[-1]))


async def ended(gone: psutil.Process) -> None:
    await asyncio.to_thread(gone.wait, 20)


async def test_an_empty_kernel_is_ended_and_the_next_cell_starts_another(home: Path) -> None:
    async with session(home, snapshot="off") as agent:
        await ended(await process(agent, ""))
        assert await agent.inspect() is None
        assert "2" in await shown(agent, "1 + 1")


async def test_variables_are_there_again(home: Path) -> None:
    async with session(home) as agent:
        await shown(agent, "kept = [1]\nsame = kept")
        await ended(await process(agent, "kept.append(2)"))
        text = await shown(agent, "same.append(3)\nprint(kept)")
        assert "[1, 2, 3]" in text
        assert text.startswith("[the kernel was restarted before this cell; all names are as they were")
        await ended(await process(agent, ""))
        assert "[1, 2, 3]" in await shown(agent, "print(kept)")


@pytest.mark.parametrize(
    ("code", "settings"),
    [
        ("kept = 1", {"snapshot": "off"}),
        ("kept = (n for n in range(3))", {}),
        ("import threading\nkept = threading.Event()\nthreading.Thread(target=kept.wait).start()\ndel kept", {}),
        ("async def rest(): await asyncio.sleep(600)\nkept = 1\n_ = asyncio.ensure_future(rest())", {}),
        ("kept = 1\n!(sleep 600 &)", {}),
    ],
)
async def test_a_kernel_that_would_be_missed_is_left_alone(home: Path, code: str, settings: dict[str, Any]) -> None:
    async with session(home, **settings) as agent:
        alive = await process(agent, code)
        await asyncio.sleep(4 * IDLE_S)  # long enough for it to be taken for idle
        assert await process(agent, "") == alive


async def test_a_kernel_that_is_used_is_not_idle(home: Path) -> None:
    async with session(home) as agent:
        alive = await process(agent, "kept = 1")
        assert await process(agent, f"__import__('time').sleep({3 * IDLE_S})") == alive
        for _ in range(8):
            await asyncio.sleep(IDLE_S / 3)
            assert await process(agent, "") == alive
