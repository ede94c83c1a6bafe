"""A recorded session, replayed: the same replies and the same cells give the same log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import prime
from prime.log import read
from prime.providers.scripted import ScriptedProvider
from prime.sessions import Sessions

pytestmark = pytest.mark.anyio

SCRIPT = [
    {"text": "Looking.", "code": ["import math\nx = [n for n in range(5)]\nprint(x)", "1 / 0"]},
    {"call": {"name": "read", "arguments": {"path": "a"}}},
    {"code": "found = await tools.glob(pattern='*')\nlen(found.paths), x[-1]"},
    {"text": "There are files."},
]


async def test_a_replay_does_what_was_recorded(home: Path, tmp_path: Path) -> None:
    async with prime.Agent(ScriptedProvider(SCRIPT), cwd=tmp_path, home=home) as agent:
        answer = await agent.ask("What is there?")
        recorded = agent.session
    async with prime.Agent(f"replay/{recorded[:18]}", cwd=tmp_path, home=home) as agent:
        again = await agent.ask("What is there?")
        replayed = agent.session
    assert again.text == answer.text == "There are files."
    assert _events(home, replayed) == _events(home, recorded)


async def test_a_replay_has_no_further_reply(home: Path, tmp_path: Path) -> None:
    async with prime.Agent(ScriptedProvider([{"text": "Only this."}]), cwd=tmp_path, home=home) as agent:
        await agent.ask("First?")
        recorded = agent.session
    async with prime.Agent(f"replay/{recorded}", cwd=tmp_path, home=home) as agent:
        assert (await agent.ask("First?")).text == "Only this."
        more = await agent.ask("Second?")
    assert more.reason == "error"
    assert "1 replies" in more.detail


async def test_a_replay_of_no_session_names_the_nearest(home: Path, tmp_path: Path) -> None:
    with pytest.raises(prime.PrimeError, match="no session 'nothing'"):
        async with prime.Agent("replay/nothing", cwd=tmp_path, home=home):
            pass


def _events(home: Path, session: str) -> list[dict[str, Any]]:
    """Return a session's events without what differs from run to run: ids, times, the model's name, the process."""
    volatile = {"session", "input_id", "cell", "duration_s", "request", "pid", "header"}
    with Sessions(home).read(session) as store:
        events = [entry.event.model_dump(mode="json") for entry in read(store)]
    return [{name: value for name, value in event.items() if name not in volatile} for event in events]
