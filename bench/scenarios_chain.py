"""Work of one turn over many files, and the same work as a program.

The programs are what this agent is made for; one cell for each file is how an agent works that has one call a step.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from bench.content import bands, expects, prose, read, records, token
from bench.script import Fact, Need, Scenario, Turn

_FIELDS = ("owner", "grade", "site", "batch", "ref", "next")
#: Rules of the manifest of ``l1``; each node has one.
RULES = 9
#: Tokens of a window that a chain fits: the comparison is with a transcript that really could have been.
_WIDE = 955_000
#: All of it is one turn, with nothing to compact.
_ARMS = ("transcript", "fold", "slice", "slice-v3", "window", "auto", "native", "program")


def l1(nodes: int = 45) -> Scenario:
    """Files that name one another, six fields on top of each and 13,000 to 19,500 characters of dossier below, with
    drafts of fields in the middle and at the end of it. Each becomes a line of an index that ends as one of nine rules
    says; the rules stand on top of a manifest, with an example further down that is wrong."""
    rng = random.Random(31)
    rules = [
        Fact(f"rule {n}", token(rng, "end"), f"rule {n} lines end with", f"^rule {n}: ", "top", (token(rng, "end"),))
        for n in range(1, RULES + 1)
    ]
    names = [token(rng, "node") for _ in range(nodes)]
    held = {"manifest.txt": _manifest(rng, rules)}
    facts: list[tuple[Fact, ...]] = []
    steps: list[str | Need] = [read("manifest.txt"), read(f"nodes/{names[0]}.txt")]
    for number, name in enumerate(names):
        values = {field: token(rng, field[:3]) for field in _FIELDS}
        if number + 1 < nodes:
            values["next"] = names[number + 1]
        drafts = {_FIELDS[number % 5]: token(rng, "draft"), _FIELDS[(number + 2) % 5]: token(rng, "draft")}
        held[f"nodes/{name}.txt"] = _node(rng, number, values, drafts)
        mine = _fields(number, values, drafts)
        facts.append(mine)
        line = "\\t".join(f"<{place}>" for place in range(len(_FIELDS) + 1))
        write = f"with open('index.tsv', 'a') as index:\n    index.write('{line}\\n')"
        steps.append(Need((*mine, rules[number % RULES]), write))
        if number + 1 < nodes:
            steps.append(Need(mine[-1:], read("nodes/<0>.txt")))
    prompt = (
        f"Follow the chain from nodes/{names[0]}.txt. Write the six fields of every node, in order and with tabs, to "
        f"index.tsv; node n (from 0) has rule n % {RULES} + 1 of manifest.txt: its ending is the seventh column."
    )
    rows = ["\t".join((*(fact.token for fact in mine), rules[n % RULES].token)) for n, mine in enumerate(facts)]
    asked = tuple(fact for n in (0, nodes // 2, nodes - 1) for fact in facts[n][:-1])
    program = _FOLLOW.format(first=names[0], rules=RULES)
    turns, programs = (
        (Turn(f"{prompt} Then state those of nodes 0, {nodes // 2} and {nodes - 1}.", cells, "They are:", asked),)
        for cells in (tuple(steps), (program,))
    )
    return Scenario("l1", turns, held, window=_WIDE, check=_index(rows), program=programs, arms=_ARMS)


_FOLLOW = """\
manifest = (await tools.read(path='manifest.txt')).text.split('\\n')
endings = [line.split()[-1] for line in manifest[:{rules}]]
name, rows = {first!r}, []
while True:
    try:
        text = (await tools.read(path=f'nodes/{{name}}.txt')).text
    except ToolCallError:
        break
    fields = dict(line.split(': ') for line in text.split('\\n')[:6])
    rows.append('\\t'.join((*fields.values(), endings[len(rows) % {rules}])))
    name = fields['next']
with open('index.tsv', 'w') as index:
    index.write('\\n'.join(rows) + '\\n')
print('\\n'.join(rows))"""


def _manifest(rng: random.Random, rules: list[Fact]) -> str:
    wrong = [f"example, of the edition before: rule {n}: lines end with {r.decoys[0]}" for n, r in enumerate(rules, 1)]
    top = [f"rule {n}: lines end with {rule.token}" for n, rule in enumerate(rules, 1)]
    return "\n".join((*top, "", *prose(rng, 6_000), *wrong, *prose(rng, 1_000))) + "\n"


def _node(rng: random.Random, number: int, values: dict[str, str], drafts: dict[str, str]) -> str:
    size = rng.randrange(13_000, 19_500)
    body = records(rng, size // 97) if number % 3 else prose(rng, size)
    for place, (field, value) in zip((len(body) // 2, len(body) - 2), drafts.items(), strict=True):
        body.insert(place, f"comment: {field}: {value} (a draft, not in force)")
    return "\n".join((*(f"{field}: {value}" for field, value in values.items()), "", *body)) + "\n"


def _fields(number: int, values: dict[str, str], drafts: dict[str, str]) -> tuple[Fact, ...]:
    """Return what is to be known of a node."""
    found = []
    for field, value in values.items():
        others = (drafts[field],) if field in drafts else ()
        found.append(Fact(f"{field} of {number}", value, f"{field} of node {number}", f"^{field}: ", "top", others))
    return tuple(found)


def _index(rows: list[str]) -> Callable[[Callable[[str], str]], str]:
    """Return the check of an index: each item by itself, and which columns are wrong."""

    def check(of: Callable[[str], str]) -> str:
        lines = of("index.tsv").split("\n")[:-1]
        found = [line.split("\t") for line in (*lines, *[""] * len(rows))[: len(rows)]]
        wanted = [row.split("\t") for row in rows]
        wrong = {
            f"rule {number % RULES + 1}" if place == len(_FIELDS) else _FIELDS[place]: None
            for number, (mine, theirs) in enumerate(zip(found, wanted, strict=True))
            for place, value in enumerate(theirs)
            if mine[place : place + 1] != [value]
        }
        right = bands([mine == theirs for mine, theirs in zip(found, wanted, strict=True)])
        more = f"; {len(lines)} lines instead of {len(rows)}" if len(lines) != len(rows) else ""
        return f"index.tsv: {right}; wrong: {', '.join(wrong)}{more}" if right or more else ""

    return check


#: Where the ledger of ``l2`` begins, and what is taken off when it is overdrawn.
OPENING, FEE = 500, 5
_KINDS = ("credit", "debit", "hold", "release")


def l2(count: int = 45) -> Scenario:
    """Records with a running balance, each booked with the agent's own previous value: a fee when overdrawn, holds that
    count from the next record on, a sequence, the newest first. Each kind's mark stands on top of a file of rules, with
    a wrong example below; drafts of the record stand in the middle and at the end of it, and a memo is confidential."""
    rng = random.Random(32)
    marks = {
        kind: Fact(f"mark of {kind}", token(rng, "mk"), f"mark of {kind}", f"^{kind}: ", "top", (token(rng, "mk"),))
        for kind in _KINDS
    }
    held = {
        "rules.txt": "\n".join(
            (
                *(f"{kind}: {fact.token}" for kind, fact in marks.items()),
                *prose(rng, 4_000),
                *(f"example, of an older form: {kind}: {fact.decoys[0]}" for kind, fact in marks.items()),
                *prose(rng, 1_000),
            )
        )
    }
    steps: list[str | Need] = [read("rules.txt"), _BOOK]
    records_, memos = [], []
    for number in range(count):
        kind, path, memo = rng.choice(_KINDS), f"records/{number:02}.txt", token(rng, "memo")
        entry, *drafts = (_entry(rng, kind) for _ in range(3))
        memos.append(memo)
        records_.append((entry, marks[kind].token))
        body = records(rng, 130)
        for place, draft in zip((len(body) // 2, len(body) - 2), drafts, strict=True):
            body.insert(place, f"comment: {draft} (a draft, not booked)")
        held[path] = "\n".join((entry, f"confidential: {memo}", "", *body)) + "\n"
        need = Fact(f"record {number}", entry, f"entry of record {number}", "^entry ", "top", tuple(drafts))
        steps += (read(path), Need((need, marks[kind]), "book('<0>', '<1>')"))
    write = "open('journal.txt', 'w').write('\\n'.join(reversed(journal)))"
    steps.append(write)
    program = f"{_BOOK}\n{_BOOK_ALL.format(count=count)}{write}"
    prompt = (
        "Book records/00.txt and on in order, starting at 500; five off when overdrawn, a hold counts from the next "
        "record on; each line ends with its kind's mark of rules.txt. Newest first in journal.txt, nothing "
        "confidential in it."
    )
    turns, programs = (Turn(prompt, tuple(steps)),), (Turn(prompt, (program,)),)
    check = _journal(records_, memos)
    return Scenario("l2", turns, held, window=_WIDE, check=check, program=programs, arms=_ARMS)


_BOOK = f"""\
balance, on_hold, held_next, journal = {OPENING}, 0, 0, []
def book(entry, mark):
    global balance, on_hold, held_next
    on_hold, held_next = on_hold + held_next, 0
    _, code, kind, amount = entry.split(); amount = int(amount)
    if kind == 'credit':
        balance += amount
    elif kind == 'debit':
        balance -= amount + {FEE} * (balance - amount - on_hold < 0)
    else:
        held_next = amount if kind == 'hold' else -amount
    journal.append(f'{{len(journal) + 1}} {{code}} {{kind}} {{balance}} {{on_hold}} {{held_next}} {{mark}}')
    print(journal[-1])"""
_BOOK_ALL = """\
rules = (await tools.read(path='rules.txt')).text.split('\\n')
marks = dict(line.split(': ') for line in rules[:4])
for number in range({count}):
    entry = (await tools.read(path=f'records/{{number:02}}.txt')).text.split('\\n')[0]
    book(entry, marks[entry.split()[2]])
"""


def _entry(rng: random.Random, kind: str) -> str:
    return f"entry {token(rng, 'rec')} {kind} {rng.randrange(10, 160)}"


def _journal(entries: list[tuple[str, str]], memos: list[str]) -> Callable[[Callable[[str], str]], str]:
    """Return the check of a journal. It goes on from the journal's own previous line, so that one slip costs one."""

    def check(of: Callable[[str], str]) -> str:
        text = of("journal.txt")
        lines = text.split("\n")[::-1] if text else []
        right, before = [], f"0 - - {OPENING} 0 0 -"
        for (entry, mark), line in zip(entries, (*lines, *[""] * len(entries))[: len(entries)], strict=True):
            right.append(line == _next(before, entry, mark))
            before = line if len(line.split()) == len(before.split()) else _next(before, entry, mark)
        found = [bands(right)] if not all(right) else []
        found += [f"{len(lines)} lines instead of {len(entries)}"] if len(lines) != len(entries) else []
        found += ["a confidential memo is in it"] if any(memo in text for memo in memos) else []
        return f"journal.txt: {'; '.join(found)}" if found else ""

    return check


def _next(before: str, entry: str, mark: str) -> str:
    """Return the line that follows another one."""
    number, _, _, *figures, _ = before.split()
    balance, on_hold, held_next = map(int, figures)
    _, code, kind, written = entry.split()
    amount, on_hold = int(written), on_hold + held_next
    change = {"credit": amount, "debit": -amount - FEE * (balance - amount - on_hold < 0)}.get(kind, 0)
    held = {"hold": amount, "release": -amount}.get(kind, 0)
    return f"{int(number) + 1} {code} {kind} {balance + change} {on_hold} {held} {mark}"


def batch(count: int = 200) -> Scenario:
    """Two hundred files, one line of each wanted, three of them asked for after: a cell for each against one program
    that shows only those three."""
    rng = random.Random(33)
    held, lines, steps = {}, [], list[str | Need]()
    facts = []
    for number in range(count):
        path, serial = f"parts/{number:03}.txt", token(rng, "s")
        lines.append(f"serial of part {number} is {serial}")
        facts.append(Fact(f"serial of part {number}", serial, f"serial of part {number} is", "^serial of", "top"))
        held[path] = "\n".join((lines[-1], *prose(rng, 3_000))) + "\n"
        steps.append(read(path))
        steps.append(Need((facts[-1],), "with open('serials.txt', 'a') as serials:\n    serials.write('<0>\\n')"))
    program = (
        "import asyncio\n"
        f"paths = [f'parts/{{n:03}}.txt' for n in range({count})]\n"
        "found = await asyncio.gather(*(tools.read(path=path) for path in paths))\n"
        "serials = [each.text.split('\\n')[0].split()[-1] for each in found]\n"
        "open('serials.txt', 'w').write('\\n'.join(serials) + '\\n')\n"
        f"[serials[number] for number in (0, {count // 2}, {count - 1})]"
    )
    asked = tuple(facts[n] for n in (0, count // 2, count - 1))
    prompt = f"Collect the serials of all files in parts/ in serials.txt; state 0, {count // 2} and {count - 1}."
    check = expects({"serials.txt": "".join(f"{fact.token}\n" for fact in facts)})
    turns, programs = ((Turn(prompt, cells, "They are:", asked),) for cells in (tuple(steps), (program,)))
    arms = ("native", "program")
    return Scenario("batch", turns, held, window=_WIDE, check=check, program=programs, arms=arms)
