"""A host killed with its children at work: whoever opens the session again has each of them go on and settle once."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import doomed
import pytest
from families import Logs

from prime import events as ev
from prime.agent_events import Settlement
from prime.sessions import Sessions
from prime.verify import verify

pytestmark = pytest.mark.anyio


def killed(home: Path, kind: str, count: int, later_s: float, session: str | None = None) -> str:
    """Run a host, kill it ``later_s`` seconds after the given entry of the root's log, and return the session."""
    command = [sys.executable, doomed.__file__, str(home), *([session] if session else [])]
    host = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    try:
        opened = host.stdout.readline().strip()
        for line in host.stdout:
            count -= line.strip() == kind
            if count <= 0 or line.strip() == "done":
                break
        time.sleep(later_s)  # the moment of the kill is to be any; nothing waits for it
    finally:
        host.kill()
        host.wait()
        host.stdout.close()
    return opened


@pytest.mark.parametrize(
    "kills",
    [
        [("child_spawned", 3, 0.0)],
        [("turn_ended", 1, 0.8)],
        [("child_settled", 1, 0.0)],
        [("turn_ended", 1, 1.0), ("turn_started", 1, 0.5), ("turn_ended", 1, 1.0)],
    ],
    ids=str,
)
async def test_children_of_a_killed_host_go_on_and_settle_once(home: Path, kills: list[tuple[str, int, float]]) -> None:
    session: str | None = None
    for kind, count, later_s in kills:
        session = killed(home, kind, count, later_s, session)
    assert session is not None
    async with doomed.again(home, session) as (agent, logs):
        await agent.done()
        await agent.ask("go")
        await agent.done()
    spawned = [event.agent_id for event in logs.of("root", "child_spawned")]
    told = [(event.agent_id, event.settlement.outcome) for event in logs.of("root", "child_settled")]
    assert sorted(told) == sorted((each, "completed") for each in spawned)
    queued = Counter(event.source for event in logs.of("root", "input_queued") if event.kind == "notice")
    assert queued == Counter({f"{each}.settled": 1 for each in spawned})
    assert len(logs.notices()) == len(spawned)
    effects = (home / "effects").read_text().splitlines() if (home / "effects").exists() else []
    assert [line for line, count in Counter(effects).items() if count > 1] == []
    started = [name for name, each in logs.ids().items() if each in spawned]
    assert all(logs.of(name, "activation_settled") for name in started)
    sessions = Sessions(home)
    for each in sessions.all():
        with sessions.read(each) as store:
            verify(store)


async def test_a_child_that_was_admitted_and_not_created_is_created_when_the_session_is_opened(home: Path) -> None:
    session = killed(home, "turn_ended", 1, 0.0)
    sessions = Sessions(home)
    lost = Logs(home, session).ids()["e"]
    sessions.delete(lost)
    async with doomed.again(home, session) as (agent, logs):
        await agent.done()
    assert dict(logs.settled())["e"] == "completed"
    assert sessions.resolve(lost) == lost


async def test_a_settlement_that_the_parent_was_not_told_is_told_when_the_session_is_opened(home: Path) -> None:
    """The parent's log is that of a moment before it heard, as when the host dies between the two entries."""
    session = killed(home, "turn_ended", 1, 0.0)
    sessions = Sessions(home)
    child = Logs(home, session).ids()["a"]
    with sessions.open(child) as log:
        settlement = Settlement(activation=1, outcome="completed", reason="completed", detail="", text="a was done")
        log.append(
            *(ev.InputWithdrawn(input_id=item.input_id) for item in log.state.inbox.pending),
            ev.ActivationSettled(settlement=settlement),
        )
    async with doomed.again(home, session) as (agent, logs):
        await agent.done()
    assert dict(logs.settled())["a"] == "completed"
    assert sum("a was done" in notice for notice in logs.notices()) == 1
    assert logs.of("a", "activation_settled") == [ev.ActivationSettled(settlement=settlement)]
