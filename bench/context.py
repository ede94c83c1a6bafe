"""What the context policies keep and cost: ``python -m bench.context [--scenario NAME] [--arm NAME] [--json FILE]``.

The same script of cells and replies is played in every arm through the real loop, kernel, tools and log; see
:mod:`bench.oracle` for the model and :mod:`prime.ledger` for the rules of the bill. Deterministic: nothing in a row
depends on the clock or the machine.

Arms: the policies by their names; ``slice-v3`` with the profile that bounds what the user pastes; ``compaction``, a
transcript that is summarised when the window is nearly full and cannot be searched; ``native``, where every result is
in the history whole, as with one call a step; ``program``, the same work as one program in one cell under ``auto``.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import prime
from bench import scenarios as many
from bench import scenarios_chain as chain
from bench.oracle import Oracle, Scenario, check_leaks
from bench.report import document, write
from prime.pricing import SHEETS

SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "z0": many.z0,
    "short": many.short,
    "s10": many.s10,
    "l1": chain.l1,
    "l2": chain.l2,
    "batch": chain.batch,
    "s13": many.s13,
    "s14b": many.s14b,
    "s15": many.s15,
    "n1": many.n1,
    "n2": many.n2,
    "n3": many.n3,
    "x1": many.x1,
}
#: Names of the sheets that sessions are priced by.
COMPARED = ("flash", "pro", "no_cache")
#: Arm -> settings that differ from the defaults.
ARMS: dict[str, dict[str, Any]] = {
    "transcript": {"context_policy": "transcript"},
    "compaction": {"context_policy": "transcript"},
    "fold": {"context_policy": "fold"},
    "slice": {"context_policy": "slice"},
    "slice-v3": {"context_policy": "slice", "tape_profile": "v3"},
    "window": {"context_policy": "window"},
    "auto": {"context_policy": "auto"},
    "native": {"context_policy": "transcript", "visible_output_bytes": 256 * 1024},
    "program": {"context_policy": "auto"},
}
#: Only where the same work is there in both forms.
_FORMS = ("native", "program")
MAX_STEPS = 1_000


@dataclass(frozen=True)
class Row:
    """What one scenario gave in one arm. Tokens as :mod:`prime.tokens` estimates them, prices in US dollars.

    ``facts`` were asked for and have an answer; ``divergence`` says how many requests did not begin with the whole one
    before, and how many of its tokens were not part of them any more. ``void`` is why a run proves nothing.
    """

    scenario: str
    arm: str
    passed: bool
    facts: int
    facts_lost: int
    recall_calls: int
    compactions: int
    steps: int
    peak_tokens: int
    prompt_tokens: int
    hit_tokens: int
    miss_tokens: int
    output_tokens: int
    price: dict[str, float]
    divergence: dict[str, int]
    detail: str
    void: str


def arms_of(scenario: Scenario) -> tuple[str, ...]:
    """Return the arms that say something about a scenario."""
    return scenario.arms or tuple(arm for arm in ARMS if arm not in _FORMS or scenario.program)


async def play(scenario: Scenario, arm: str) -> Row:
    """Play a scenario in one arm.

    Raises:
        Void: the scenario gives its answers away.
    """
    check_leaks(scenario)
    compact = arm == "compaction"
    oracle = Oracle(scenario, recall=arm not in ("compaction", "native"), compact=compact)
    turns = scenario.program if arm == "program" else scenario.turns
    with tempfile.TemporaryDirectory() as folder:
        home, work = Path(folder, "home"), Path(folder, "work")
        _lay_out(work, scenario.files)
        options: dict[str, Any] = {"home": home, "cwd": work, "max_steps": MAX_STEPS, "snapshot": "off", **ARMS[arm]}
        ended = []
        async with prime.Agent(oracle, **options) as agent:
            for turn in turns:
                oracle.begin(turn)
                ended.append(await agent.ask(turn.prompt))
        wrong = [f"turn {each.turn}: {each.reason} {each.detail}" for each in ended if each.reason != "completed"]
        wrong += filter(None, [scenario.check(lambda path: _text(work / path))])
    return _row(scenario, arm, oracle, wrong)


def _lay_out(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir()
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def _row(scenario: Scenario, arm: str, oracle: Oracle, wrong: list[str]) -> Row:
    asked = [fact for turn in scenario.turns for fact in turn.ask if fact.source != "none"]
    lost = [fact.name for fact in asked if oracle.answers.get(fact.name) != fact.token]
    lines, total = oracle.ledger.lines, oracle.ledger.total()
    wrong += [f"lost: {', '.join(lost[:5])}{' ...' * (len(lost) > 5)}"] if lost else []
    gone = (max(before.prompt + before.output - after.shared, 0) for before, after in pairwise(lines))
    rewritten = [tokens for tokens in gone if tokens > 2]  # less is rounding
    return Row(
        scenario=scenario.name,
        arm=arm,
        passed=not wrong,
        facts=len(asked),
        facts_lost=len(lost),
        recall_calls=oracle.recalls,
        compactions=oracle.compactions,
        steps=total.requests,
        peak_tokens=total.peak,
        prompt_tokens=total.prompt,
        hit_tokens=total.hit,
        miss_tokens=total.miss,
        output_tokens=total.output,
        price={sheet.name: round(total.price(sheet), 6) for sheet in map(SHEETS.__getitem__, COMPARED)},
        divergence={"requests": len(rewritten), "tokens": sum(rewritten)},
        detail="; ".join(wrong),
        void="no compaction took place" if arm == "compaction" and not oracle.compactions else "",
    )


@dataclass(frozen=True)
class Target:
    """A figure to be reached. ``against`` is the arm whose figure it is a share of, empty for a plain number."""

    scenario: str
    arm: str
    figure: str
    most: float
    against: str = ""


TARGETS = (
    *(Target("s10", arm, "facts_lost", 0) for arm in ("slice", "auto")),
    *(Target("s10", arm, "peak_tokens", 32_000) for arm in ("slice", "auto")),
    *(Target("s10", arm, "price", 0.6, "compaction") for arm in ("slice", "auto")),
    *(Target("l1", "auto", figure, most, "transcript") for figure, most in (("price", 0.2),)),
    Target("l1", "auto", "peak_tokens", 50_000),
    *(Target(name, arm, "price", 0.75, "transcript") for name in ("s13", "s14b") for arm in ("slice", "auto")),
    *(Target(name, arm, "facts_lost", 0) for name in ("s13", "s14b", "s15") for arm in ("slice", "auto")),
    Target("x1", "slice-v3", "price", 0.6, "transcript"),
    Target("x1", "slice-v3", "price", 0.6, "compaction"),
    Target("short", "auto", "price", 1.02, "transcript"),
)


def judged(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return every target whose runs are there, with its figure and whether it was met."""
    found = {(row.scenario, row.arm): row for row in rows if not row.void}
    verdicts = []
    for target in TARGETS:
        row, base = found.get((target.scenario, target.arm)), found.get((target.scenario, target.against))
        if row is None or (target.against and base is None):
            continue
        value = _figure(row, target.figure) / (_figure(base, target.figure) if base is not None else 1)
        verdicts.append({**asdict(target), "value": round(value, 4), "met": value <= target.most})
    return verdicts


def _figure(row: Row, name: str) -> float:
    return row.price["flash"] if name == "price" else float(getattr(row, name))


def show(rows: Iterable[Row], verdicts: Iterable[dict[str, Any]]) -> None:
    """Print the rows and the targets."""
    console = Console()
    table = Table(
        "scenario", "arm", "passed", "lost", "recall", "steps", "peak", "miss", "flash $", "no cache $", "detail"
    )
    for row in rows:
        table.add_row(
            row.scenario,
            row.arm,
            "void" if row.void else "yes" if row.passed else "NO",
            f"{row.facts_lost}/{row.facts}",
            str(row.recall_calls),
            str(row.steps),
            f"{row.peak_tokens:,}",
            f"{row.miss_tokens:,}",
            f"{row.price['flash']:.4f}",
            f"{row.price['no_cache']:.4f}",
            row.void or row.detail,
        )
    console.print(table)
    aims = Table("target", "arm", "figure", "value", "at most", "")
    for each in verdicts:
        against = f" of {each['against']}" if each["against"] else ""
        aims.add_row(
            each["scenario"],
            each["arm"],
            each["figure"] + against,
            f"{each['value']:,.4g}",
            f"{each['most']:,}",
            "met" if each["met"] else "MISSED",
        )
    console.print(aims)


def main() -> None:
    """Play what is asked for and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", choices=SCENARIOS, action="append")
    parser.add_argument("--arm", choices=ARMS, action="append")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows: list[Row] = []
    for name in given.scenario or SCENARIOS:
        scenario = SCENARIOS[name]()
        for arm in arms_of(scenario):
            if given.arm and arm not in given.arm:
                continue
            start = time.perf_counter()
            rows.append(asyncio.run(play(scenario, arm)))
            print(f"{name} {arm}: {time.perf_counter() - start:.1f} s", flush=True)
    verdicts = judged(rows)
    show(rows, verdicts)
    write(given.json, document(rows, targets=verdicts))


if __name__ == "__main__":
    main()
