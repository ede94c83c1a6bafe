"""Sessions of many turns: a flood of files, facts said once, results that cannot be had again, rules that change.

The content is made by seeded generators. Shapes and sizes follow published long-session studies of agents; no text of
theirs is used.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from bench.oracle import Fact, Need, Scenario, Turn

_NOUNS = ("harbour", "lantern", "orchard", "quarry", "meadow", "furnace", "cistern", "granary", "bridge", "paddock")
_VERBS = ("was inspected by", "was moved next to", "was rebuilt after", "was lent to", "was measured against")
_TAILS = ("without remarks", "before the first frost", "in good order", "against the advice of the clerk")
#: Where a transcript never comes near its window there is nothing to compact.
POLICY_ARMS = ("transcript", "fold", "slice", "slice-v3", "window", "auto")


def token(rng: random.Random, prefix: str) -> str:
    """Return something that nobody can guess."""
    return f"{prefix}-{rng.getrandbits(48):012x}"


def prose(rng: random.Random, characters: int) -> list[str]:
    """Return lines of plain words, of about so many characters."""
    lines: list[str] = []
    while sum(map(len, lines)) < characters:
        one, other = rng.sample(_NOUNS, 2)
        tail = rng.choice(_TAILS)
        lines.append(f"The {one} of parcel {rng.randrange(100, 999)} {rng.choice(_VERBS)} the {other} {tail}.")
    return lines


def records(rng: random.Random, lines: int) -> list[str]:
    """Return lines of a service's log, about 97 characters each."""
    return [
        f"2026-03-{1 + number % 28:02}T{rng.randrange(24):02}:{rng.randrange(60):02}:11Z INFO "
        f"worker-{rng.randrange(16):02} task {rng.randrange(10**6):06} of the {rng.choice(_NOUNS)} queue "
        f"done in {rng.randrange(900):3} ms"
        for number in range(lines)
    ]


def read(path: str) -> str:
    """Return the cell that shows a whole file."""
    return f'await tools.read(path="{path}")'


def _once(path: str) -> str:
    """Return the cell that shows a file and consumes it."""
    return f'await tools.bash(command="cat {path} && rm {path}")'


def _hidden(rng: random.Random, line: str, before: int = 18, after: int = 18) -> str:
    return "\n".join((*prose(rng, before * 80), line, *prose(rng, after * 80))) + "\n"


def s10(files: int = 64) -> Scenario:
    """Early facts whose sources are gone, a flood of files one a turn, an exam about the early facts."""
    rng = random.Random(10)
    names = ("build id", "lint message", "release seed", "migration stamp")
    facts = [
        Fact(name, token(rng, name.split()[0]), f"{name} of this checkout is", f"{name} of this checkout")
        for name in names
    ]
    held: dict[str, str] = {}
    turns: list[Turn] = []
    for number in range(8):
        path = f"src/part{number}.py"
        held[path] = f"def part{number}():\n    return {number}\n"
        steps: list[str | Need] = [
            read(path),
            f'await tools.edit(path="{path}", old="return {number}", new="return {number + 100}")',
        ]
        if number % 2 == 0:
            fact = facts[number // 2]
            held[f"once/{number}.txt"] = _hidden(rng, f"the {fact.name} of this checkout is {fact.token}")
            steps.append(_once(f"once/{number}.txt"))
        turns.append(
            Turn(f"Raise the value that part {number} returns by 100, then see what is in once/.", tuple(steps))
        )
    marks = []
    for number in range(files):
        path, mark = f"flood/{number:02}.log", token(rng, "mark")
        marks.append(mark)
        lines = records(rng, 92)
        lines[45] = f"2026-03-09T12:00:00Z NOTICE digest marker {number:02} = {mark} (copy this one)"
        held[path] = "\n".join(lines) + "\n"
        need = Fact(f"marker {number:02}", mark, f"digest marker {number:02}", "digest marker")
        code = "with open('digest.txt', 'a') as digest:\n    digest.write('{value}\\n')"
        turns.append(Turn(f"Read {path} and append its marker to digest.txt.", (read(path), Need(need, code))))
    turns += [Turn(f"What was the {fact.name}? Run nothing again.", ask=(fact,), reply="It was:") for fact in facts]
    check = expects({"digest.txt": "\n".join(marks) + "\n"})
    return Scenario("s10", tuple(turns), held, window=120_000, check=check)


def expects(wanted: dict[str, str]) -> Callable[[Callable[[str], str]], str]:
    """Return the check that files are as they should be."""

    def check(of: Callable[[str], str]) -> str:
        wrong = [path for path, text in wanted.items() if of(path) != text]
        return f"wrong: {', '.join(wrong)}" if wrong else ""

    return check


def _said(rng: random.Random, names: Sequence[str], prefix: str) -> list[Fact]:
    return [Fact(name, token(rng, prefix), f"{name} is", name, "user") for name in names]


def _blobs(rng: random.Random, count: int) -> tuple[dict[str, str], list[Turn]]:
    """Return files of three long lines, and turns that look at one each."""
    held, turns = {}, []
    for number in range(count):
        path = f"blobs/{number}.txt"
        held[path] = "\n".join(" ".join(prose(rng, 3_000)) for _ in range(3)) + "\n"
        turns.append(Turn(f"Look through {path}.", (read(path),), f"Looked through {path}: nothing unusual."))
    return held, turns


def _coding(count: int) -> tuple[dict[str, str], list[Turn]]:
    held, turns = {}, []
    for number in range(count):
        path = f"work/task{number}.py"
        held[path] = f"LIMIT = {number}\n\n\ndef task(x):\n    return x > LIMIT\n"
        edit = f'await tools.edit(path="{path}", old="LIMIT = {number}", new="LIMIT = {number + 7}")'
        turns.append(Turn(f"Raise the limit in {path} by 7.", (read(path), edit), f"Raised the limit in {path}."))
    return held, turns


_DEPLOY = ("deploy region", "deploy bucket", "deploy account", "deploy canary tag")


def _trap(name: str) -> Fact:
    return Fact(name, "", name, name, "none")


def s13() -> Scenario:
    """Facts said once and never written, work and blobs after them, then an exam with a question without an answer."""
    rng = random.Random(13)
    facts = _said(rng, (*_DEPLOY, "config folder rule"), "cfg")
    told = " ".join(f"The {fact.name} is {fact.token}." for fact in facts)
    code, coding = _coding(4)
    held, looking = _blobs(rng, 8)
    first = Turn(f"For later, do not write it down anywhere: {told}", reply="Noted.")
    exam = Turn(
        "State the deploy parameters and the rule from memory, and the pager number.", ask=(*facts, _trap("pager"))
    )
    turns = (first, *coding, *looking, exam, Turn("How did you remember it?", reply="From this session."))
    return Scenario("s13", turns, {**code, **held}, window=25_000)


def s14b() -> Scenario:
    """Facts dropped beside other work, one a turn, and asked for after a flood."""
    rng = random.Random(14)
    facts = _said(rng, _DEPLOY, "cfg")
    code, coding = _coding(8)
    dropped = [
        Turn(f"{turn.prompt} By the way, the {fact.name} is {fact.token}.", turn.steps, turn.reply)
        for turn, fact in zip(coding, facts, strict=False)
    ]
    held, looking = _blobs(rng, 8)
    exam = Turn("Write down the deploy parameters I mentioned.", ask=(*facts, _trap("deploy owner")))
    return Scenario("s14b", (*dropped, *coding[4:], *looking, exam), {**code, **held}, window=25_000)


def s15() -> Scenario:
    """A measurement that can be made once: 24 values in the middle of its output, asked for after ten blobs."""
    rng = random.Random(15)
    held, looking = _blobs(rng, 10)
    facts, rows = [], []
    for lane in range(8):
        for kind in ("p50", "p90", "max"):
            fact = Fact(f"lane {lane} {kind}", token(rng, "v"), f"measured lane {lane} {kind}", "measured lane")
            facts.append(fact)
            rows.append(f"measured lane {lane} {kind} as {fact.token}")
    held["samples.txt"] = "\n".join((*prose(rng, 2_000), *rows, *prose(rng, 2_000))) + "\n"
    first = Turn(
        "Run the measurement; its samples are used up by it.", (_once("samples.txt"),), "Measured eight lanes."
    )
    exam = Turn("Give every measured value, and the p99 of lane 0.", ask=(*facts, _trap("p99")))
    code, coding = _coding(5)
    return Scenario("s15", (first, *coding, *looking, exam), {**code, **held}, window=25_000, keeps=24)


def short() -> Scenario:
    """A session of a few turns, as most are."""
    code, coding = _coding(4)
    check = expects({path: text.replace(f"= {n}", f"= {n + 7}") for n, (path, text) in enumerate(code.items())})
    return Scenario("short", tuple(coding), code, check=check, arms=POLICY_ARMS)


def z0() -> Scenario:
    """One cell for every tool, before anything else is believed."""
    held = {f"probe/file{number}.txt": f"line of {number}\n" * 21 for number in range(3)}
    held["probe/same.txt"] = held["probe/file0.txt"]
    steps = (
        'assert (await tools.bash(command="echo marker")).stdout.strip() == "marker"',
        'assert len((await tools.glob(pattern="probe/file*.txt")).paths) == 3',
        'assert "file2" in str(await tools.grep(pattern="line of 2", path="probe"))',
        'assert (await tools.read(path="probe/file1.txt")).line_count == 21',
        'await tools.read(path="probe/same.txt")',
        'await tools.edit(path="probe/same.txt", old="line of 0\\n" * 21, new="changed\\n")',
        'await tools.write(path="probe/new.txt", content="new\\n")',
    )
    wanted = {"probe/same.txt": "changed\n", "probe/new.txt": "new\n", "probe/file0.txt": held["probe/file0.txt"]}
    return Scenario("z0", (Turn("Try every tool.", steps),), held, check=expects(wanted), arms=POLICY_ARMS)


def n1() -> Scenario:
    """Twelve clauses dictated, eight logs pasted, the clauses asked for."""
    rng = random.Random(101)
    facts = _said(rng, [f"clause {number}" for number in range(1, 13)], "must")
    told = "\n".join(f"The {fact.name} is {fact.token}: {prose(rng, 80)[0]}" for fact in facts)
    turns = (Turn(f"Policy, not to be written anywhere:\n{told}", reply="Understood."), *_pasted(rng, [21_000] * 8))
    return Scenario("n1", (*turns, Turn("Restore the policy.", ask=tuple(facts))), window=60_000)


def n2() -> Scenario:
    """Rules that are corrected between pasted logs; the newest ones are asked for."""
    rng = random.Random(102)
    names = ("prefix rule", "rename rule", "docstring rule", "width rule")
    old, new = ([Fact(n, token(rng, kind), f"{n} is", n, "user") for n in names] for kind in ("old", "new"))
    turns: list[Turn] = []
    for stale, fact, paste in zip(old, new, _pasted(rng, [21_000] * 4), strict=True):
        turns.append(Turn(f"For now the {stale.name} is {stale.token}.", reply="Noted."))
        turns.append(Turn(f"{paste.prompt}\nCorrection: the {fact.name} is {fact.token}.", reply=paste.reply))
    turns += _pasted(rng, [21_000] * 2)
    return Scenario("n2", (*turns, Turn("Apply the rules as they stand now.", ask=tuple(new))), window=60_000)


def n3() -> Scenario:
    """Six facts said once, asked one by one at a rising distance between pasted logs."""
    rng = random.Random(103)
    facts = _said(rng, [f"setting {name}" for name in ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")], "set")
    told = " ".join(f"The {fact.name} is {fact.token}." for fact in facts)
    turns = [Turn(f"Remember, do not write: {told}", reply="Noted.")]
    pasted = iter(_pasted(rng, [16_000 + 600 * number for number in range(10)]))
    for fact, between in zip(facts, (1, 1, 2, 2, 2, 2), strict=True):
        turns += [next(pasted) for _ in range(between)]
        turns.append(Turn(f"What is the {fact.name}?", ask=(fact,)))
    turns.append(Turn("And what is setting omega?", ask=(_trap("setting omega"),)))
    return Scenario("n3", tuple(turns), window=60_000)


def x1(turns: int = 74, characters: int = 57_000) -> Scenario:
    """About a million tokens pasted by the user, with facts in the middle of some, asked for at four checkpoints."""
    rng = random.Random(1)
    names = ("ledger key", "vault key", "relay key", "pump key", "mast key", "dock key")
    facts = _said(rng, names, "key")
    checkpoints = {turns // 3: facts[:2], turns * 2 // 3: facts[2:4], turns - 2: facts[4:]}
    said = {1 + 4 * number: fact for number, fact in enumerate(facts)}
    script: list[Turn] = []
    for number in range(1, turns + 1):
        if number in checkpoints:
            script.append(Turn("State the keys of this part.", ask=tuple(checkpoints[number])))
            continue
        lines = prose(rng, characters)
        if number in said:
            lines.insert(len(lines) // 2, f"The {said[number].name} is {said[number].token}.")
        prompt = f"Part {number} of the file:\n" + "\n".join(lines)
        script.append(
            Turn(prompt, reply=f"Part {number} is read.", ask=(_trap("key of the attic"),) * (number == turns))
        )
    return Scenario("x1", tuple(script), window=400_000)


def _pasted(rng: random.Random, sizes: Sequence[int]) -> list[Turn]:
    return [
        Turn(f"Log {number}:\n" + "\n".join(records(rng, size // 97)), reply=f"Log {number} has nothing unusual.")
        for number, size in enumerate(sizes, 1)
    ]
