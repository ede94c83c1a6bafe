"""A recorded session under another policy, without a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import prime

from prime.policies.base import Options, Policy
from prime.providers.scripted import ScriptedProvider
from prime.replayed import Replay, replay
from prime.sessions import Sessions
from prime.testing import ScriptedCell, scripted

pytestmark = pytest.mark.anyio

WINDOW = 9_000
POLICIES: tuple[Policy, ...] = ("transcript", "fold", "slice", "window", "auto")


async def flood(code: str, cell: ScriptedCell) -> object:
    """Show much of what is folded, and much of what is not; ask for a new window once."""
    cell.print("".join(f"2026-01-02 10:00:{number % 60:02d} INFO step {number} of {code}\n" for number in range(200)))
    if code == "cell-2":
        cell.print("def f(x):\n    return x + 1\n" * 100)
    if code == "cell-3":
        await cell.call("context.new")
    return None


async def recorded(home: Path, policy: Policy, *, overflow: bool = False) -> str:
    replies = [
        reply
        for number in range(1, 6)
        for reply in ({"text": f"Let me run {number}.", "code": f"cell-{number}"}, {"text": f"{number} is done."})
    ]
    if overflow:
        replies[5:5] = [{"error": {"code": "overflow"}}]
    provider = ScriptedProvider(replies, context_window=WINDOW)
    async with scripted(provider, flood, home=home, options=Options(policy=policy, retain=2_000)) as stage:
        for number in range(1, 6):
            answer = await stage.agent.ask(f"please do number {number}")
            assert answer.reason == "completed", answer
        return stage.log.session


def replayed(home: Path, session: str, policy: Policy) -> Replay:
    with Sessions(home).read(session) as store:
        return replay(store, Options(policy=policy, retain=2_000), WINDOW)


@pytest.mark.parametrize("policy", POLICIES)
async def test_under_its_own_policy_every_request_is_the_recorded_one(home: Path, policy: Policy) -> None:
    again = replayed(home, await recorded(home, policy), policy)
    assert again.same
    assert len(again.ledger.lines) == 10
    assert again.operations > 0  # every policy does what `context.new()` asks for


async def test_a_refusal_for_its_size_is_replayed_too(home: Path) -> None:
    again = replayed(home, await recorded(home, "transcript", overflow=True), "transcript")
    assert again.same
    assert again.operations > 0


async def test_another_policy_makes_other_requests_of_the_same_session(home: Path) -> None:
    session = await recorded(home, "transcript")
    plain, folded = (replayed(home, session, policy).ledger.total() for policy in ("transcript", "fold"))
    assert (plain.requests, plain.output) == (folded.requests, folded.output)
    assert folded.peak < plain.peak / 2
    assert not replayed(home, session, "fold").same
    with Sessions(home).read(session) as store:  # nothing is written
        assert store.last() is not None


async def test_the_command_shows_them_side_by_side(home: Path) -> None:
    session = await recorded(home, "transcript")
    shown = prime(
        home, "sessions", "price", session, "--policy", "fold", "--policy", "slice", "--sheet", "flash", "--json"
    )
    assert shown.returncode == 0, shown.stderr
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [row["policy"] for row in rows] == ["recorded", "fold", "slice"]
    assert rows[0]["requests"] == 10
    for row in rows:
        assert row["hit"] + row["miss"] == row["prompt"]
        price = (row["miss"] * 0.22 + row["hit"] * 0.007 + row["output"] * 0.66) / 1_000_000
        assert row["price"] == pytest.approx(price)
    assert rows[1]["prompt"] < rows[0]["prompt"]
    table = prime(home, "sessions", "price", session, "--policy", "fold")
    assert "unknown" in table.stdout  # a script has no price
    assert "replies are those that were recorded" in table.stdout
    wrong = prime(home, "sessions", "price", session, "--policy", "folds")
    assert wrong.returncode == 2
