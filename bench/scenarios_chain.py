"""Work of one turn over many files, and the same work as a program.

The programs are what this agent is made for; one cell for each file is how an agent works that has one call a step.
"""

from __future__ import annotations

import random

from bench.oracle import Fact, Need, Scenario, Turn
from bench.scenarios import expects, prose, read, records, token

_FIELDS = ("owner", "grade", "site", "batch", "ref", "next")


def l1(nodes: int = 45) -> Scenario:
    """Files that name one another, six fields on top of each and 13,000 to 19,500 characters of dossier below."""
    rng = random.Random(31)
    names = [token(rng, "node") for _ in range(nodes)]
    held: dict[str, str] = {}
    facts: list[Fact] = []
    steps: list[str | Need] = []
    for number, name in enumerate(names):
        values = {field: token(rng, field[:3]) for field in _FIELDS}
        if number + 1 < nodes:
            values["next"] = names[number + 1]
        top = [f"{field}: {value}" for field, value in values.items()]
        size = rng.randrange(13_000, 19_500)
        body = records(rng, size // 97) if number % 3 else prose(rng, size)
        held[f"nodes/{name}.txt"] = "\n".join((*top, "", *body)) + "\n"
        mine = [
            Fact(f"{field} of {number}", value, f"{field} of node {number}", f"^{field}: ", "top")
            for field, value in values.items()
        ]
        facts += mine
        if not number:
            steps.append(read(f"nodes/{name}.txt"))
        if number + 1 < nodes:
            steps.append(Need(mine[-1], read("nodes/{value}.txt")))
    prompt = f"Follow the chain from nodes/{names[0]}.txt. State the six fields of every node in order."
    program = (
        "name, rows = " + repr(names[0]) + ", []\n"
        "while True:\n"
        "    try:\n"
        "        text = (await tools.read(path=f'nodes/{name}.txt')).text\n"
        "    except ToolCallError:\n"
        "        break\n"
        "    fields = dict(line.split(': ') for line in text.split('\\n')[:6])\n"
        "    rows.append('\\t'.join(fields.values()))\n"
        "    name = fields['next']\n"
        "print('\\n'.join(rows))"
    )
    return Scenario(
        "l1",
        (Turn(prompt, tuple(steps), "The chain:", tuple(facts)),),
        held,
        program=(Turn(prompt, (program,), "The chain:", tuple(facts)),),
    )


def l2(count: int = 45) -> Scenario:
    """Records with a running balance: each is booked with the agent's own previous value, in one journal."""
    rng = random.Random(32)
    held, journal, balance = {}, [], 500
    steps: list[str | Need] = ["balance = 500\njournal = []"]
    for number in range(count):
        amount, code = rng.randrange(-90, 90), token(rng, "rec")
        entry = f"entry {code} amount {amount}"
        balance += amount - (5 if balance + amount < 0 else 0)
        journal.insert(0, f"{code} {balance}")
        path = f"records/{number:02}.txt"
        held[path] = "\n".join((entry, "", *records(rng, 130))) + "\n"
        need = Fact(f"record {number}", entry, f"entry amount record {number}", "^entry ", "top")
        book = (
            "_, code, _, amount = '{value}'.split()\nbalance += int(amount)\n"
            "balance -= 5 * (balance < 0)\njournal.insert(0, f'{code} {balance}')\nbalance"
        )
        steps += (read(path), Need(need, book))
    write = "open('journal.txt', 'w').write('\\n'.join(journal))"
    steps.append(write)
    program = (
        "balance, journal = 500, []\n"
        f"for number in range({count}):\n"
        "    text = (await tools.read(path=f'records/{number:02}.txt')).text\n"
        "    _, code, _, amount = text.split('\\n')[0].split()\n"
        "    balance += int(amount)\n    balance -= 5 * (balance < 0)\n"
        "    journal.insert(0, f'{code} {balance}')\n" + write
    )
    prompt = "Book records/00.txt and on in order; five off when overdrawn. Newest first in journal.txt."
    check = expects({"journal.txt": "\n".join(journal)})
    turns, programs = (Turn(prompt, tuple(steps)),), (Turn(prompt, (program,)),)
    return Scenario("l2", turns, held, check=check, program=programs)


def batch(count: int = 200) -> Scenario:
    """Two hundred files, one line of each wanted: a cell for each against one program."""
    rng = random.Random(33)
    held, lines, steps = {}, [], list[str | Need]()
    for number in range(count):
        path, wanted = f"parts/{number:03}.txt", f"serial {token(rng, 's')}"
        lines.append(wanted)
        held[path] = "\n".join((wanted, *prose(rng, 3_000))) + "\n"
        steps.append(read(path))
    write = "open('serials.txt', 'w').write({rows})"
    text = "\n".join(lines)
    steps.append(write.format(rows=repr(text)))
    program = (
        f"paths = [f'parts/{{n:03}}.txt' for n in range({count})]\n"
        "found = await asyncio.gather(*(tools.read(path=path) for path in paths))\n"
        + write.format(rows="'\\n'.join(each.text.split('\\n')[0] for each in found)")
    )
    prompt = "Collect the first line of every file in parts/ into serials.txt."
    check = expects({"serials.txt": text})
    arms = ("native", "program")
    turns, programs = (Turn(prompt, tuple(steps)),), (Turn(prompt, ("import asyncio\n" + program,)),)
    return Scenario("batch", turns, held, check=check, program=programs, arms=arms)
