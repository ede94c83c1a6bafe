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
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import scenarios as many
from bench import scenarios_chain as chain
from bench import scenarios_pasted as floods
from bench.content import prose
from bench.oracle import MODEL, Oracle
from bench.report import document, write
from bench.script import Scenario, check_leaks
from bench.targets import based, judged
from prime import prompt
from prime.agent import Agent
from prime.app import workshop
from prime.config import load
from prime.live import Live
from prime.loop import Loop
from prime.messages import Header
from prime.pricing import SHEETS
from prime.tokens import estimate

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
    "w1": many.w1,
    "n1": floods.n1,
    "n2": floods.n2,
    "n3": floods.n3,
    "x1": floods.x1,
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
#: Agents that have nothing to make room with: their run ends where a request is refused.
_BARE = ("transcript", "native")
MAX_STEPS = 1_000
#: In the place of the system prompt, and about as long: its figures do not change with the description of a tool.
HEADER = Header(model=MODEL, system="\n".join(prose(random.Random(9), 9_000)), tools=(prompt.tool(),))


@dataclass(frozen=True)
class Row:
    """What one scenario gave in one arm. Tokens as :mod:`prime.tokens` estimates them, prices in US dollars.

    Attributes:
        facts: those that were asked for and have an answer: they were visible (``facts_kept``), came back by a recall
            (``facts_recovered``) or did not (``facts_lost``). ``needs`` counts the same of what cells needed.
        refusals: requests that were larger than the window, which the arm answered by making room.
        switches: how often the window was switched; ``compactions``: how often a transcript was summarised.
        divergence: requests that did not begin with the whole one before, how many of its tokens were sent in vain,
            how many by which operations of the log, and the characters in common at each turn and step.
        said_tokens: of the user's words, each counted once.
        turn_peaks, turn_prices: largest prompt of each turn, and the price up to its end (flash).
        detail: what was wrong with the work. ``void`` is why a run proves nothing.
    """

    scenario: str
    arm: str
    passed: bool
    facts: int
    facts_kept: int
    facts_recovered: int
    facts_lost: int
    needs: dict[str, int]
    recall_calls: int
    compactions: int
    switches: int
    refusals: int
    steps: int
    peak_tokens: int
    prompt_tokens: int
    hit_tokens: int
    miss_tokens: int
    output_tokens: int
    price: dict[str, float]
    divergence: dict[str, Any]
    said_tokens: int
    turn_peaks: list[int]
    turn_prices: list[float]
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
    recall = arm not in ("compaction", "native")
    oracle = Oracle(scenario, recall=recall, compact=arm == "compaction", room=arm not in _BARE)
    turns = scenario.program if arm == "program" else scenario.turns
    void = ""
    with tempfile.TemporaryDirectory() as folder:
        home, work = Path(folder, "home"), Path(folder, "work")
        _lay_out(work, scenario.files)
        options: dict[str, Any] = {"home": home, "max_steps": MAX_STEPS, "snapshot": "off", **ARMS[arm]}
        ended = []
        async with (
            workshop(load(work, options), work, provider=oracle) as shop,
            Agent(Loop(shop.log, shop.context, oracle, shop.cells, HEADER, Live())) as agent,
        ):
            agent.observe(oracle.trail.hear)
            for turn in turns:
                oracle.begin(turn)
                ended.append(await agent.ask(turn.prompt))
                if oracle.refusals and arm in _BARE:
                    void = f"refused at turn {ended[-1].turn}"
                    break
            cells = [entry for entry in shop.log.entries(types=("cell_ended",)) if entry.event.status != "ok"]
        wrong = [f"turn {each.turn}: {each.reason} {each.detail}" for each in ended if each.reason != "completed"]
        wrong += [f"turn {entry.turn}: a cell ended as {entry.event.status}" for entry in cells]
        wrong += filter(None, [scenario.check(lambda path: _text(work / path))])
    return _row(scenario, arm, oracle, wrong, void)


def _lay_out(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir()
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def _row(scenario: Scenario, arm: str, oracle: Oracle, wrong: list[str], void: str) -> Row:
    wrong += _wrong_answers(scenario, oracle.answers)
    if arm == "compaction" and not oracle.compactions:
        void = "no compaction took place"
    if arm in ("window", "auto") and scenario.switches and not oracle.trail.switches:
        void = "the window was not switched"
    total, breaks = oracle.trail.ledger.total(), oracle.trail.breaks()
    turn_peaks, turn_prices = oracle.trail.turns()
    return Row(
        scenario=scenario.name,
        arm=arm,
        passed=not wrong and not void,
        facts=len(scenario.asked()),
        facts_kept=oracle.asked["kept"],
        facts_recovered=oracle.asked["recovered"],
        facts_lost=len(scenario.asked()) - oracle.asked["kept"] - oracle.asked["recovered"],
        needs={how: oracle.needed[how] for how in ("kept", "recovered", "lost")},
        recall_calls=oracle.recalls,
        compactions=oracle.compactions,
        switches=oracle.trail.switches,
        refusals=oracle.refusals,
        steps=total.requests,
        peak_tokens=total.peak,
        prompt_tokens=total.prompt,
        hit_tokens=total.hit,
        miss_tokens=total.miss,
        output_tokens=total.output,
        price={sheet.name: round(total.price(sheet), 6) for sheet in map(SHEETS.__getitem__, COMPARED)},
        divergence={
            "requests": len(breaks),
            "tokens": sum(each.gone for each in breaks),
            "by": dict(Counter("+".join(each.by) for each in breaks)),
            "at": {each.at: each.shared for each in breaks},
        },
        said_tokens=round(sum(estimate(turn.prompt) for turn in scenario.turns)),
        turn_peaks=turn_peaks,
        turn_prices=turn_prices,
        detail="; ".join(wrong),
        void=void,
    )


def _wrong_answers(scenario: Scenario, answers: dict[str, str]) -> Iterator[str]:
    asked = scenario.asked()
    lost = [fact.name for fact in asked if answers.get(fact.name) != fact.token]
    stale = [fact.name for fact in asked if answers.get(fact.name) in fact.decoys]
    if lost:
        yield f"lost: {', '.join(lost[:5])}{' ...' * (len(lost) > 5)}"
    if stale:
        yield f"believed an older value: {', '.join(stale)}"
    if scenario.length is not None:
        least, most = scenario.length
        given = [answers.get(fact.name, "") for fact in asked]
        share = sum(map(len, given)) / sum(len(fact.token) for fact in asked)
        if not least <= share <= most:
            yield f"what was restored is {share:.2f} times as long"


def show(rows: Iterable[dict[str, Any]], verdicts: Iterable[dict[str, Any]]) -> None:
    """Print the rows and the targets."""
    console = Console(width=None if sys.stdout.isatty() else 190)
    heads = (
        "arm",
        "passed",
        "kept",
        "recovered",
        "lost",
        "recall",
        "breaks",
        "peak",
        "miss",
        "flash $",
        "share of",
        "",
    )
    table = Table("scenario", *heads)
    for row in rows:
        shares = row["shares"]
        table.add_row(
            row["scenario"],
            row["arm"],
            "void" if row["void"] else "yes" if row["passed"] else "NO",
            *(str(row[f"facts_{how}"]) for how in ("kept", "recovered", "lost")),
            str(row["recall_calls"]),
            ", ".join(f"{count} {by}" for by, count in row["divergence"]["by"].items()),
            f"{row['peak_tokens']:,}",
            f"{row['miss_tokens']:,}",
            f"{row['price']['flash']:.4f}",
            f"{shares['price']:.2f} {row['base']}" if shares else "",
            row["void"] or row["detail"],
        )
    console.print(table)
    aims = Table("target", "arm", "figure", "value", "at most", "")
    for each in verdicts:
        aims.add_row(
            each["scenario"],
            each["arm"],
            each["figure"] + (f" of {each['of']}" if each["of"] else ""),
            f"{each['value']:,.4g}",
            f"{each['most']:,}",
            "met" if each["met"] else f"MISSED, no policy can be below {each['floor']}",
        )
    console.print(aims)


def main() -> None:
    """Play what is asked for and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", choices=SCENARIOS, action="append")
    parser.add_argument("--arm", choices=ARMS, action="append")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    played: list[Row] = []
    for name in given.scenario or SCENARIOS:
        scenario = SCENARIOS[name]()
        for arm in arms_of(scenario):
            if given.arm and arm not in given.arm:
                continue
            start = time.perf_counter()
            played.append(asyncio.run(play(scenario, arm)))
            print(f"{name} {arm}: {time.perf_counter() - start:.1f} s", flush=True)
    rows = based(map(asdict, played))
    verdicts = judged(rows)
    show(rows, verdicts)
    write(given.json, document(rows, targets=verdicts))


if __name__ == "__main__":
    main()
