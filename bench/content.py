"""Content of scenarios, made by seeded generators: the same bytes on every machine."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from bench.script import Fact, Turn

_NOUNS = ("harbour", "lantern", "orchard", "quarry", "meadow", "furnace", "cistern", "granary", "bridge", "paddock")
_VERBS = ("was inspected by", "was moved next to", "was rebuilt after", "was lent to", "was measured against")
_TAILS = ("without remarks", "before the first frost", "in good order", "against the advice of the clerk")


def token(rng: random.Random, prefix: str) -> str:
    """Return something that nobody can guess."""
    return f"{prefix}-{rng.getrandbits(48):012x}"


def prose(rng: random.Random, characters: int) -> list[str]:
    """Return lines of plain words, of about so many characters."""
    lines: list[str] = []
    while characters > 0:
        one, other = rng.sample(_NOUNS, 2)
        tail = rng.choice(_TAILS)
        lines.append(f"The {one} of parcel {rng.randrange(100, 999)} {rng.choice(_VERBS)} the {other} {tail}.")
        characters -= len(lines[-1])
    return lines


def records(rng: random.Random, lines: int) -> list[str]:
    """Return lines of a service's log, about 97 characters each."""
    return [
        f"2026-03-{1 + number % 28:02}T{rng.randrange(24):02}:{rng.randrange(60):02}:11Z INFO "
        f"worker-{rng.randrange(16):02} task {rng.randrange(10**6):06} of the {rng.choice(_NOUNS)} queue "
        f"done in {rng.randrange(900):3} ms"
        for number in range(lines)
    ]


def hidden(rng: random.Random, line: str) -> str:
    """Return a text with ``line`` in the middle of it."""
    return "\n".join((*prose(rng, 1_440), line, *prose(rng, 1_440))) + "\n"


def read(path: str) -> str:
    """Return the cell that shows a whole file."""
    return f'await tools.read(path="{path}")'


def once(path: str) -> str:
    """Return the cell that shows a file and consumes it."""
    return f'await tools.bash(command="cat {path} && rm {path}")'


def expects(wanted: dict[str, str]) -> Callable[[Callable[[str], str]], str]:
    """Return the check that files are as they should be."""

    def check(of: Callable[[str], str]) -> str:
        wrong = [path for path, text in wanted.items() if of(path) != text]
        return f"wrong: {', '.join(wrong)}" if wrong else ""

    return check


def bands(right: Sequence[bool]) -> str:
    """Return how many items are right in each third of them, empty when all are."""
    if all(right):
        return ""
    third = -(-len(right) // 3)
    parts = (right[start : start + third] for start in range(0, len(right), third))
    named = zip(("early", "mid", "late"), parts, strict=True)
    return ", ".join(f"{name} {sum(part)}/{len(part)}" for name, part in named)


def said(rng: random.Random, names: Sequence[str], prefix: str) -> list[Fact]:
    """Return facts that the user says."""
    return [Fact(name, token(rng, prefix), f"{name} is", name, "user") for name in names]


def trap(name: str) -> Fact:
    """Return a question that has no answer."""
    return Fact(name, "", name, name, "none")


def told(facts: Sequence[Fact]) -> str:
    """Return facts as sentences."""
    return " ".join(f"The {fact.name} is {fact.token}." for fact in facts)


def blobs(rng: random.Random, count: int) -> tuple[dict[str, str], list[Turn]]:
    """Return files of three long lines, and turns that look at one each."""
    held, turns = {}, []
    for number in range(count):
        path = f"blobs/{number}.txt"
        held[path] = "\n".join(" ".join(prose(rng, 3_000)) for _ in range(3)) + "\n"
        turns.append(Turn(f"Look through {path}.", (read(path),), f"Looked through {path}: nothing unusual."))
    return held, turns


def coding(count: int) -> tuple[dict[str, str], list[Turn]]:
    """Return small modules, and turns that change one each."""
    held, turns = {}, []
    for number in range(count):
        path = f"work/task{number}.py"
        held[path] = f"LIMIT = {number}\n\n\ndef task(x):\n    return x > LIMIT\n"
        edit = f'await tools.edit(path="{path}", old="LIMIT = {number}", new="LIMIT = {number + 7}")'
        turns.append(Turn(f"Raise the limit in {path} by 7.", (read(path), edit), f"Raised the limit in {path}."))
    return held, turns


def pasted(rng: random.Random, sizes: Sequence[int]) -> list[Turn]:
    """Return turns in which the user pastes a log of so many characters."""
    return [
        Turn(f"Log {number}:\n" + "\n".join(records(rng, size // 97)), reply=f"Log {number} has nothing unusual.")
        for number, size in enumerate(sizes, 1)
    ]
