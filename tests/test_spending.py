"""What sessions cost, from real logs and from the command line."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from command import prime

from prime import events as ev
from prime import projection
from prime.agent_events import QueryError
from prime.ledger import Ledger
from prime.log import Log, read
from prime.messages import Header, Reply, Request, TextPart, Usage
from prime.providers.scripted import ScriptedProvider
from prime.replayed import recorded
from prime.sessions import Sessions
from prime.spending import spent
from prime.testing import scripted

pytestmark = pytest.mark.anyio

USAGE: dict[str, Any] = {"input": 1_000, "cache_read": 2_000, "output": 100}


class Provider(ScriptedProvider):
    """Reports only the usage that its script has."""

    async def reply(self, request: Request, on_delta: Any) -> Reply:
        reply = await super().reply(request, on_delta)
        return reply if reply.usage == Usage(**USAGE) else reply.model_copy(update={"usage": None})


async def session(home: Path, *replies: dict[str, Any], name: str | None = None) -> str:
    """Record turns with one reply each, in a new session or in ``name``."""
    async with scripted(Provider(list(replies)), home=home, session=name) as stage:
        for _ in replies:
            await stage.agent.ask("go on " * 50)
        return stage.log.session


def rows(home: Path, *arguments: str) -> list[dict[str, Any]]:
    ran = prime(home, "sessions", "cost", *arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


async def test_what_a_provider_reported_counts_and_what_it_did_not_is_estimated(home: Path) -> None:
    name = await session(
        home, {"text": "one", "usage": USAGE}, {"text": "two words"}, {"text": "three", "usage": USAGE}
    )
    with Sessions(home).read(name) as store:
        first, second, third = spent(store)
        line = recorded(store).lines[1]
    assert first.usage == third.usage == Usage(**USAGE)
    assert (first.estimated, second.estimated, third.estimated) == (False, True, False)
    assert second.usage == Usage(input=line.miss, cache_read=line.hit, output=line.output)
    assert second.usage.prompt > 100
    assert first.model == "scripted/replies"
    assert first.at <= second.at <= third.at


async def test_a_resumed_session_counts_each_reply_once(home: Path) -> None:
    name = await session(home, {"text": "one", "usage": USAGE})
    await session(home, {"text": "two", "usage": USAGE}, name=name)
    with Sessions(home).open(name) as log:
        assert [each.usage for each in spent(log.store)] == [Usage(**USAGE)] * 2
        assert log.state.usage == {"scripted/replies": Usage(**USAGE) + Usage(**USAGE)}


async def test_what_a_fork_has_from_its_parent_is_not_counted_again(home: Path) -> None:
    name = await session(home, {"text": "one", "usage": USAGE}, {"text": "two"})
    copy = Sessions(home).fork(name)
    with Sessions(home).read(copy) as store:
        assert spent(store) == []
    await session(home, {"text": "three"}, name=copy)
    with Sessions(home).read(copy) as store:
        (only,) = spent(store)
        assert only.usage.prompt == recorded(store).lines[2].prompt


async def test_queries_beside_the_conversation_count_once(home: Path) -> None:
    name = await session(home, {"text": "one"})
    header = Header(model="openai/gpt-4o", system="", tools=())
    reply = Reply(parts=(TextPart(text="Paris"),), stop="end", model="gpt-4o", usage=None)
    sessions = Sessions(home)
    with sessions.open(name) as log:
        log.append(ev.CellStarted(cell="c", call_id=None, code=""))
        ask(log, header, reply)
        ask(log, header, reply.model_copy(update={"usage": Usage(input=7, output=1)}))
        ask(log, header, None)
    with sessions.read(name) as store:
        _, estimated, reported = spent(store)
    assert estimated.usage.prompt == Ledger().add(projection.query(header, "capital of France?"), reply).prompt
    assert (estimated.model, estimated.estimated, reported.usage.input) == ("openai/gpt-4o", True, 7)


def ask(log: Log, header: Header, reply: Reply | None) -> None:
    query = len(log)
    digest = projection.digest(projection.query(header, "capital of France?"))
    log.append(ev.QueryAsked(query=query, header=header, prompt="capital of France?", request=digest))
    error = None if reply is not None else QueryError(code="failed", message="")
    log.append(ev.QueryEnded(query=query, model=header.model, reply=reply, error=error))


async def test_all_sessions_and_their_sum(home: Path) -> None:
    first = await session(home, {"text": "one", "usage": USAGE})
    second = await session(home, {"text": "one", "usage": USAGE}, {"text": "two"})
    found = rows(home)
    assert [row["session"] for row in found] == [second, first]
    assert found[1] == {
        "session": first,
        "replies": 1,
        "prompt": 3_000,
        "cached": 2_000,
        "output": 100,
        "estimated": 0,
        "price": None,
    }
    assert (found[0]["replies"], found[0]["estimated"]) == (2, 1)
    table = prime(home, "sessions", "cost").stdout
    assert table.splitlines()[3].split()[:2] == ["total", "3"]
    assert "unknown: put [prices." in table
    assert "estimated: replies" in table


async def test_days_add_up_and_prices_are_the_users_or_a_sheets(home: Path) -> None:
    await session(home, {"text": "one", "usage": USAGE})
    await session(home, {"text": "one", "usage": USAGE})
    (day,) = rows(home, "--day", "--sheet", "flash")
    assert day["day"] == f"{datetime.now():%Y-%m-%d}"
    assert day["price"] == pytest.approx(2 * (1_000 * 0.22 + 2_000 * 0.007 + 100 * 0.66) / 1e6)
    configured = home / ".config" / "prime-repl" / "config.toml"
    configured.parent.mkdir(parents=True)
    configured.write_text('[prices."scripted/*"]\ninput = 1\noutput = 1\n')
    (day,) = rows(home, "--day")
    assert day["price"] == pytest.approx(2 * 3_100 / 1e6)
    assert json.loads(prime(home, "sessions", "list", "--json").stdout.splitlines()[0])["price"] == 0.0031


async def test_children_count_once_and_together_with_their_parent(home: Path) -> None:
    parent, other = [await session(home, {"text": "one", "usage": USAGE}) for _ in range(2)]
    sessions = Sessions(home)
    with sessions.read(parent) as store:
        end = len(list(read(store))) - 1
    for number, fork in ((1, None), (2, end)):
        child = f"{parent}.{number}"
        sessions.beget(ev.ChildSpawned(agent_id=child, name="c", prompt="go", fork=fork), str(home))
        await session(home, {"text": "two", "usage": USAGE}, {"text": "three", "usage": USAGE}, name=child)
    family = [(parent, 1), (f"{parent}.1", 2), (f"{parent}.2", 2)]
    assert [(row["session"], row["replies"]) for row in rows(home, parent)] == family
    assert [(row["session"], row["replies"]) for row in rows(home)] == [(other, 1), *family]
    (day,) = rows(home, "--day")
    assert (day["replies"], day["prompt"]) == (6, 18_000)


def test_a_sheet_that_there_is_not_is_refused(home: Path) -> None:
    ran = prime(home, "sessions", "cost", "--sheet", "cheap")
    assert ran.returncode == 2
    assert "there is no sheet 'cheap'; there are flash, pro," in " ".join(ran.stderr.replace("│", " ").split())
