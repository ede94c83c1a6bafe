"""A task without a person: the program waits for children, or stops and reports them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from families import Cast, Logs, spawn

from prime import guest
from prime.cli import headless, recorded
from prime.config import Config
from prime.messages import Request, text_of
from prime.sessions import Sessions

pytestmark = pytest.mark.anyio


def job(home: Path) -> headless.Job:
    return headless.Job(task="go", images=(), session=None, cwd=home, output=None)


def config(home: Path) -> Config:
    return Config(home=home, guest_environment=guest.environment({}))


async def test_a_run_waits_for_its_children_and_the_answer_is_the_one_that_knows_of_them(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def root(request: Request, number: int) -> dict[str, Any]:
        said = text_of(request.messages[-1].parts)
        return {"code": spawn("a")} if number == 0 else {"text": "a said 42" if "42" in said else "started"}

    cast = Cast({"go": root, "a": [{"text": "it is 42", "chunk": 1, "delay_s": 0.1}]})
    assert await headless.work(config(home), cast, job(home)) == 0
    shown = capsys.readouterr()
    assert shown.out == "a said 42\n"
    assert "child a started" in shown.err
    assert "settled: completed" in shown.err
    (session,) = Sessions(home).ids()
    assert [row.id for row in recorded.rows(Sessions(home))] == [session]
    assert [row.id for row in recorded.rows(Sessions(home), children=True)] == [session, f"{session}.1"]


async def test_a_run_that_is_stopped_stops_and_reports_its_children(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cast = Cast({"go": [{"code": spawn("a")}], "a": [{"text": "x", "hang": True}]})
    running = asyncio.create_task(headless.work(config(home), cast, job(home)))
    await cast.asked("a")
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    assert "settled: cancelled" in capsys.readouterr().err
    (session,) = Sessions(home).ids()
    assert Logs(home, session).settled() == [("a", "cancelled")]
