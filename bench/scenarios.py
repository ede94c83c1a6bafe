"""Sessions of many turns: a flood of files, facts said once, results that cannot be had again, a window too small.

Shapes and sizes follow published long-session studies of agents; the content is our own.
"""

from __future__ import annotations

import random
from dataclasses import replace

from bench.content import blobs, coding, expects, hidden, once, prose, read, records, said, token, told, trap
from bench.script import Fact, Need, Scenario, Turn

#: Where a transcript never comes near its window there is nothing to compact.
POLICY_ARMS = ("transcript", "fold", "slice", "slice-v3", "window", "auto")
_DEPLOY = ("deploy region", "deploy bucket", "deploy account", "deploy canary tag")


def z0() -> Scenario:
    """One cell for every tool, before anything else is believed, and what three of them gave."""
    rng = random.Random(0)
    names = ("probe stamp", "probe serial", "probe grade")
    facts = [Fact(name, token(rng, "p"), f"{name} is", f"{name} is") for name in names]
    held = {f"probe/file{number}.txt": f"line of {number}\n" * 21 for number in range(3)}
    held["probe/same.txt"] = held["probe/file0.txt"]
    held |= {
        f"probe/{fact.name[6:]}.txt": hidden(rng, f"the {fact.name} is {fact.token} (copy this one)") for fact in facts
    }
    steps = (
        'assert (await tools.bash(command="echo marker")).stdout.strip() == "marker"',
        'assert len((await tools.glob(pattern="probe/file*.txt")).paths) == 3',
        'assert "file2" in str(await tools.grep(pattern="line of 2", path="probe"))',
        'assert (await tools.read(path="probe/file1.txt")).line_count == 21',
        'await tools.read(path="probe/same.txt")',
        'await tools.edit(path="probe/same.txt", old="line of 0\\n" * 21, new="changed\\n")',
        'await tools.write(path="probe/new.txt", content="new\\n")',
        read("probe/stamp.txt"),
        once("probe/serial.txt"),
        'await tools.grep(pattern=".", path="probe/grade.txt")',
    )
    wanted = {"probe/same.txt": "changed\n", "probe/new.txt": "new\n", "probe/file0.txt": held["probe/file0.txt"]}
    turns = (Turn("Try every tool.", steps), Turn("What did the files say?", ask=tuple(facts)))
    return Scenario("z0", turns, held, check=expects(wanted), arms=POLICY_ARMS)


def short() -> Scenario:
    """A session of a few turns, as most are: small changes, and a question about two things seen on the way."""
    rng = random.Random(4)
    held, turns = coding(4)
    facts = [
        Fact(f"owner of task {n}", token(rng, "own"), f"owner of task {n}", f"owner of task {n}", "top") for n in (0, 2)
    ]
    for number, fact in zip((0, 2), facts, strict=True):
        path = f"work/task{number}.py"
        held[path] = f"# {fact.name}: {fact.token}\n{held[path]}"
    turns.append(Turn("Who owns tasks 0 and 2?", ask=tuple(facts)))
    check = expects({path: text.replace(f"= {n}", f"= {n + 7}") for n, (path, text) in enumerate(held.items())})
    return Scenario("short", tuple(turns), held, check=check, arms=POLICY_ARMS)


def s10(files: int = 64) -> Scenario:
    """Early facts whose sources are gone, a flood of files one a turn, an exam about the early facts and actions."""
    rng = random.Random(10)
    names = ("build id", "lint message", "completion flag", "migration stamp")
    facts = [
        Fact(name, token(rng, name.split()[0]), f"{name} of this checkout is", f"{name} of this checkout")
        for name in names
    ]
    actions = [
        Fact(f"change of part {n}", token(rng, "change"), f"part{n}.py change edit", "change", "cell") for n in range(3)
    ]
    held: dict[str, str] = {}
    turns: list[Turn] = []
    for number in range(8):
        path, mark = f"src/part{number}.py", f"  # {actions[number].token}" if number < len(actions) else ""
        held[path] = f"def part{number}():\n    return {number}\n"
        edit = f'await tools.edit(path="{path}", old="return {number}", new="return {number + 100}{mark}")'
        steps: list[str | Need] = [read(path), edit]
        if number % 2 == 0:
            fact = facts[number // 2]
            held[f"once/{number}.txt"] = hidden(rng, f"the {fact.name} of this checkout is {fact.token}")
            steps.append(once(f"once/{number}.txt"))
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
        code = "with open('digest.txt', 'a') as digest:\n    digest.write('<0>\\n')"
        turns.append(Turn(f"Read {path} and append its marker to digest.txt.", (read(path), Need((need,), code))))
    turns += [Turn(f"What was the {fact.name}? Run nothing again.", ask=(fact,), reply="It was:") for fact in facts[:2]]
    turns.append(Turn("Which were the first three changes? Run nothing again.", ask=tuple(actions)))
    turns.append(Turn("And the other two facts of the checkout?", ask=tuple(facts[2:])))
    check = expects({"digest.txt": "\n".join(marks) + "\n"})
    return Scenario("s10", tuple(turns), held, window=120_000, check=check)


def s13() -> Scenario:
    """Facts said once and never written, work and blobs after them, then an exam with a question without an answer."""
    rng = random.Random(13)
    facts = said(rng, (*_DEPLOY, "config folder rule"), "cfg")
    code, changes = coding(4)
    held, looking = blobs(rng, 8)
    first = Turn(f"For later, do not write it down anywhere: {told(facts)}", reply="Noted.")
    exam = Turn(
        "State the deploy parameters and the rule from memory, and the pager number.", ask=(*facts, trap("pager"))
    )
    turns = (first, *changes, *looking, exam, Turn("How did you remember it?", reply="From this session."))
    return Scenario("s13", turns, {**code, **held}, window=25_000)


def s14b() -> Scenario:
    """Facts dropped beside other work, one a turn, and asked for after a flood."""
    rng = random.Random(14)
    facts = said(rng, _DEPLOY, "cfg")
    code, changes = coding(8)
    dropped = [
        replace(turn, prompt=f"{turn.prompt} By the way, the {fact.name} is {fact.token}.")
        for turn, fact in zip(changes, facts, strict=False)
    ]
    held, looking = blobs(rng, 8)
    exam = Turn("Write down the deploy parameters I mentioned.", ask=(*facts, trap("deploy owner")))
    return Scenario("s14b", (*dropped, *changes[4:], *looking, exam), {**code, **held}, window=25_000)


def s15() -> Scenario:
    """A measurement that can be made once: 24 values in the middle of its output, asked for after ten blobs."""
    rng = random.Random(15)
    held, looking = blobs(rng, 10)
    facts, rows = [], []
    for lane in range(8):
        for kind in ("p50", "p90", "max"):
            fact = Fact(f"lane {lane} {kind}", token(rng, "v"), f"measured lane {lane} {kind}", "measured lane")
            facts.append(fact)
            rows.append(f"measured lane {lane} {kind} as {fact.token}")
    held["samples.txt"] = "\n".join((*prose(rng, 2_000), *rows, *prose(rng, 2_000))) + "\n"
    first = Turn("Run the measurement; its samples are used up by it.", (once("samples.txt"),), "Measured eight lanes.")
    exam = Turn("Give every measured value, and the p99 of lane 0.", ask=(*facts, trap("p99")))
    code, changes = coding(5)
    return Scenario("s15", (first, *changes, *looking, exam), {**code, **held}, window=25_000)


def w1(turns: int = 72) -> Scenario:
    """Turns with much said in each, of which the sealed forms alone are larger than the window: it must be switched."""
    rng = random.Random(71)
    spoken = said(rng, ("harbour code", "quarry code", "meadow code"), "say")
    seen = [
        Fact(name, token(rng, "see"), f"{name} of the yard is", f"{name} of the yard")
        for name in ("gate number", "crane number", "scale number")
    ]
    saying = dict(zip((1, turns // 3, turns * 2 // 3), spoken, strict=True))
    seeing = dict(zip((2, turns // 2, turns * 3 // 4), seen, strict=True))
    held, script = {}, []
    for number in range(turns):
        path = f"yard/{number:02}.txt"
        lines = prose(rng, 1_440)
        if number in seeing:
            lines.append(f"the {seeing[number].name} of the yard is {seeing[number].token}")
        held[path] = "\n".join((*lines, *prose(rng, 1_440))) + "\n"
        aside = f" For later: {told([saying[number]])}" if number in saying else ""
        account = "\n".join((f"Account of {path}:", *prose(rng, 900)))
        script.append(Turn(f"Give an account of {path}.{aside}", (once(path),), account))
    script += [Turn(f"What is the {fact.name}?", ask=(fact,)) for fact in (*spoken, *seen)]
    script.append(Turn("And the mast number?", ask=(trap("mast number"),)))
    return Scenario("w1", tuple(script), held, window=16_000, keeps=3, switches=True)
