"""A session of every scenario of the benchmark keeps what a provider has cached: a request begins with the one before,
except where the log names an operation, and then up to the first node that the operation replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import prime
from bench import scenarios as many
from bench import scenarios_chain as chain
from bench import scenarios_pasted as floods
from bench.context import ARMS, MAX_STEPS, SCENARIOS
from bench.oracle import Oracle
from bench.script import Scenario
from prime.ledger import words
from prime.log import read
from prime.projection import message
from prime.sessions import Sessions
from prime.store.base import Store
from prime.surface import Surface, visible

pytestmark = pytest.mark.anyio

#: Long scenarios at a size at which everything that a policy does still happens.
SMALL: dict[str, Callable[[], Scenario]] = {
    "s10": lambda: replace(many.s10(8), window=6_000),
    "l1": lambda: replace(chain.l1(12), window=8_000),
    "l2": lambda: replace(chain.l2(8), window=6_000),
    "batch": lambda: chain.batch(20),
    "s13": lambda: replace(many.s13(), window=10_000),
    "s14b": lambda: replace(many.s14b(), window=10_000),
    "s15": lambda: replace(many.s15(), window=10_000),
    "x1": lambda: replace(floods.x1(16, 6_000), window=12_000),
}


@dataclass
class Sent:
    """A request as the log says it: the nodes of the surface with the bytes of each, and what was replaced after it."""

    header: bytes
    nodes: list[tuple[int, bytes]]
    gone: set[int]

    @property
    def bytes(self) -> bytes:
        """The whole."""
        return self.header + b"".join(text for _, text in self.nodes)

    @property
    def kept(self) -> int:
        """Where, in bytes, the log says that the next request is another."""
        size = len(self.header)
        for seq, text in self.nodes:
            if seq in self.gone:
                break
            size += len(text)
        return size


def requests(store: Store) -> list[Sent]:
    """Return the requests of a session. That they are the ones sent is checked wherever the fixture ``home`` is."""
    surface, texts, header, found = Surface(), dict[int, bytes](), b"", list[Sent]()
    for entry in read(store):
        event = entry.event
        surface.apply(entry.seq, event)
        if event.type == "header_changed":
            header = words(event.header).encode()
        elif event.type == "step_started":
            found.append(Sent(header, [(seq, texts[seq]) for seq in surface.seqs], set()))
        elif visible(entry.seq, event):
            said = message(event)
            texts[entry.seq] = words(said).encode() if said is not None else b""
            if event.type == "surface_replaced" and found:
                found[-1].gone.update(event.sources)
    return found


def diverged(one: Sent, other: Sent) -> int:
    """Return where, in bytes, the first message begins that is another one, the end of the first request if none is."""
    if one.header != other.header:
        return 0
    size = len(one.header)
    theirs = [text for _, text in other.nodes if text]
    for place, text in enumerate(text for _, text in one.nodes if text):
        if theirs[place : place + 1] != [text]:
            break
        size += len(text)
    return size


@pytest.mark.parametrize(
    ("name", "arm"), [*((name, "auto") for name in SCENARIOS), ("s10", "slice"), ("x1", "slice-v3")]
)
async def test_a_request_begins_with_the_one_before_up_to_what_the_log_names(
    name: str, arm: str, home: Path, tmp_path: Path
) -> None:
    scenario = SMALL.get(name, SCENARIOS[name])()
    work = tmp_path / "work"
    work.mkdir()
    for path, text in scenario.files.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text)
    oracle = Oracle(scenario, recall=True, compact=False)
    options: dict[str, Any] = {"home": home, "cwd": work, "max_steps": MAX_STEPS, "snapshot": "off", **ARMS[arm]}
    async with prime.Agent(oracle, **options) as agent:
        for turn in scenario.turns:
            oracle.begin(turn)
            assert (await agent.ask(turn.prompt)).reason == "completed"
    with Sessions(home).read(agent.session) as store:
        sent = requests(store)
    assert len(sent) == len(oracle.trail.ledger.lines) + oracle.refusals
    for before, after in pairwise(sent):
        assert after.bytes.startswith(before.bytes[: before.kept])
        assert diverged(before, after) == before.kept
    if name in SMALL and name != "batch":
        assert any(each.kept < len(each.bytes) for each in sent), "nothing left, so nothing was tried"
