"""Sessions in which the user pastes much: rules said once or corrected, and what is left of them after floods.

Shapes and sizes follow published long-session studies of agents; the content is our own.
"""

from __future__ import annotations

import random
from dataclasses import replace

from bench.content import pasted, prose, said, token, told, trap
from bench.script import Fact, Scenario, Turn


def n1() -> Scenario:
    """Twelve clauses dictated, eight logs pasted, the clauses to be restored word for word."""
    rng = random.Random(101)
    facts = []
    for number in range(1, 13):
        clause = f"{token(rng, 'must')}: {' '.join(prose(rng, 150))}"
        facts.append(Fact(f"clause {number}", clause, f"clause {number} is", f"clause {number} is", "user"))
    dictated = "\n".join(f"The {fact.name} is {fact.token}" for fact in facts)
    first = Turn(f"Policy, not to be written anywhere:\n{dictated}", reply="Understood.")
    exam = Turn("Restore the policy word for word.", ask=tuple(facts))
    return Scenario("n1", (first, *pasted(rng, [21_000] * 8), exam), window=60_000, length=(0.85, 1.25))


def n2() -> Scenario:
    """Rules that are corrected between pasted logs; the newest ones are asked for, and an old one is a mistake."""
    rng = random.Random(102)
    names = ("prefix rule", "rename rule", "docstring rule", "width rule")
    facts = [
        Fact(name, token(rng, "new"), f"correction {name} is", f"{name} is", "user", (token(rng, "old"),))
        for name in names
    ]
    turns: list[Turn] = []
    for fact, paste in zip(facts, pasted(rng, [21_000] * 4), strict=True):
        turns.append(Turn(f"For now the {fact.name} is {fact.decoys[0]}.", reply="Noted."))
        turns.append(replace(paste, prompt=f"{paste.prompt}\nCorrection: the {fact.name} is {fact.token}."))
    turns += pasted(rng, [21_000] * 2)
    return Scenario("n2", (*turns, Turn("Apply the rules as they stand now.", ask=tuple(facts))), window=60_000)


def n3() -> Scenario:
    """Six facts said once, asked one by one at a rising distance between pasted logs that grow."""
    rng = random.Random(103)
    facts = said(rng, [f"setting {name}" for name in ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")], "set")
    turns = [Turn(f"Remember, do not write: {told(facts)}", reply="Noted.")]
    floods = iter(pasted(rng, [16_000 + 600 * number for number in range(10)]))
    for fact, between in zip(facts, (1, 1, 2, 2, 2, 2), strict=True):
        turns += [next(floods) for _ in range(between)]
        turns.append(Turn(f"What is the {fact.name}?", ask=(fact,)))
    turns.append(Turn("And what is setting omega?", ask=(trap("setting omega"),)))
    return Scenario("n3", tuple(turns), window=60_000)


def x1(turns: int = 74, characters: int = 115_000) -> Scenario:
    """About 31,000 tokens pasted by the user in each turn, two million in all, with facts in the middle of some; asked
    for at turns 24, 48, 72 and the last, or the same shares of fewer. A transcript is compacted at 764,000 tokens."""
    rng = random.Random(1)
    names = ("ledger key", "vault key", "relay key", "pump key", "mast key", "dock key", "weir key", "loom key")
    facts = said(rng, names, "key")
    asked = (facts[:2], facts[2:4], facts[4:6], [*facts[6:], trap("key of the attic")])
    checkpoints = {turns * at // 74: those for at, those in zip((24, 48, 72, 74), asked, strict=True)}
    telling: dict[int, list[Fact]] = {}
    for at, fact in zip((1, 7, 13, 30, 19, 55, 5, 60), facts, strict=True):
        telling.setdefault(max(turns * at // 74, 1), []).append(fact)
    script: list[Turn] = []
    for number in range(1, turns + 1):
        if number in checkpoints:
            script.append(Turn("State the keys of this part.", ask=tuple(checkpoints[number])))
            continue
        lines = prose(rng, characters)
        if number in telling:
            lines.insert(len(lines) // 2, told(telling[number]))
        script.append(Turn(f"Part {number} of the file:\n" + "\n".join(lines), reply=f"Part {number} is read."))
    return Scenario("x1", tuple(script), window=955_000, keeps=4)
