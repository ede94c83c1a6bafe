"""Recall: what left the window is one call away, and only that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from watch import of

from prime.recall import NOTE_LIMIT, Notes
from prime.sessions import Sessions
from prime.testing import ScriptedCell, scripted

pytestmark = pytest.mark.anyio


async def calling(code: str, cell: ScriptedCell) -> object:
    """Evaluate a call such as ``history.search('word')`` and show its value."""
    target, _, arguments = code.partition(" ")
    given: dict[str, Any] = eval(arguments or "{}")
    return await cell.call(target, **given)


async def test_two_writers_of_the_note_cannot_overwrite_each_other(home: Path) -> None:
    cells = [
        "notes.read",
        "notes.write {'text': 'first', 'revision': 0}",
        "notes.write {'text': 'stale', 'revision': 0}",
        f"notes.write {{'text': 'x' * {NOTE_LIMIT + 1}, 'revision': 1}}",
        "notes.read",
    ]
    async with scripted([], calling, home=home) as stage:
        statuses = [(await stage.agent.cell(cell)).status for cell in cells]
        assert statuses == ["ok", "ok", "error", "error", "ok"]
        ends = of(stage.log, "dispatch_ended")
        assert [event.error.code for event in ends if event.error] == ["stale", "too_long"]
        assert (ends[-1].value["revision"], ends[-1].value["text"]) == (1, "first")
    async with scripted([], calling, home=home, session=stage.log.session) as again:
        assert again.log.state.notes is not None
        assert again.log.state.notes.text == "first"


async def test_a_note_says_how_old_it_is(home: Path) -> None:
    write = "notes.write {'text': 'the plan', 'revision': 0}"
    replies = [{"text": "first"}, {"code": write}, {"text": "second"}, {"text": "third"}, {"text": "fourth"}]
    async with scripted(replies, calling, home=home) as stage:
        for _ in range(2):
            await stage.agent.ask("go")
        note = await Notes(stage.log).read()
        (written,) = stage.log.entries(types=("notes_written",))
        assert (note.turns, note.entries) == (0, len(stage.log) - 1 - written.seq)
        for _ in range(2):
            await stage.agent.ask("go")
        assert (await Notes(stage.log).read()).turns == 2
    child = Sessions(home).fork(stage.log.session)
    async with scripted([], calling, home=home, session=child) as fork:
        note = await Notes(fork.log).read()
        assert (note.text, note.turns, note.written_at) == ("the plan", 2, written.seq)


async def test_context_usage_counts_what_the_provider_reported_and_what_is_new(home: Path) -> None:
    usage = {"input": 1_000, "output": 50}
    async with scripted([{"code": "context.usage", "usage": usage}, {"text": "ok"}], calling, home=home) as stage:
        await stage.agent.ask("go")
        (ended,) = of(stage.log, "dispatch_ended")
        assert ended.value == {"used": 1_050, "window": None}
        assert stage.loop.context.used() > 0
