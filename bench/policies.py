"""What a context policy costs a step: ``python -m bench.policies [--json FILE] [--entries N]``.

One session of ``N`` entries (10,000) is played under each policy without a model and without a kernel. Measured for
each step: planning and building the request, and checking it against the stored entries. Beside each step a fixed piece
of work of the same kind is timed, the *unit*; figures in units are the same on a busy machine and on an idle one.

For the last steps before a tenth, three tenths and the end of the session: the cost of a step in milliseconds and in
units, and the nodes that the surface then has. ``sum`` is the cost of all steps up to there for each 1,000 entries, in
units: where it stays the same, the cost of a session is linear in its length. ``1,000 nodes`` is what 1,000 more nodes
on the surface add to a step, where it grows to so many.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.report import Row, document, row, table, write
from prime import events as ev
from prime.context import Context
from prime.log import Log
from prime.messages import CallPart, Header, TextPart, ToolSpec, Usage, around
from prime.policies.base import Options, Policy
from prime.store.sqlite import SqliteStore

POLICIES: tuple[Policy, ...] = ("transcript", "fold", "slice", "window", "auto")
WINDOW = 128_000
#: Steps of a turn, each with one cell that reads a file and prints a table.
STEPS = 6
#: Steps before each mark whose cost is shown, and the marks as shares of the session.
SHOWN, MARKS = 120, (0.1, 0.3, 1.0)
#: A log, which is folded.
OUTPUT = "".join(f"2026-01-01 12:00:{number:02} INFO row {number} is fine\n" for number in range(60))
FILE = "x = 1\n" * 200
HEADER = Header(
    model="scripted/bench",
    system="You work by writing Python.\n" * 200,
    tools=(ToolSpec(name="repl", description="Run a cell.", parameters={"type": "object"}),),
)
#: Nodes of a surface from which it can be told what each adds.
SLOPE_FROM = 1_000
#: What is decoded, encoded and hashed as the unit of work.
UNIT = {"text": "The quick brown fox jumps over the lazy dog.\n" * 400}


@dataclass(frozen=True, slots=True)
class Step:
    """What a step cost, in seconds of the processor; ``unit`` is the fixed work beside it, ``entries`` and ``nodes``
    are those of the log and of the surface."""

    entries: int
    nodes: int
    request: float
    check: float
    unit: float

    @property
    def both(self) -> float:
        """All that was measured, in seconds."""
        return self.request + self.check


class Player:
    """Plays turns into a log and keeps what each request cost."""

    def __init__(self, log: Log, policy: Policy) -> None:
        self.log = log
        self.context = Context(log, Options(policy=policy), window=lambda: WINDOW)
        self.steps: list[Step] = []

    def turn(self) -> None:
        """Play one turn."""
        name, parts = f"i{len(self.log)}", (TextPart(text="Look at the next part and say what is in it."),)
        said = ev.UserSaid(input_id=name, kind="ask", parts=parts)
        self.log.append(ev.InputQueued(input_id=name, kind="ask", parts=parts))
        self.log.append(ev.TurnStarted(), ev.InputClaimed(input_id=name), said)
        for number in range(STEPS):
            self._step(last=number == STEPS - 1)
        self.log.append(ev.TurnEnded(reason="completed"))

    def _step(self, *, last: bool) -> None:
        start = time.thread_time()
        request = self.context.request(HEADER)
        built = time.thread_time()
        digest = self.context.check(request)
        checked = time.thread_time()
        for _ in range(4):
            hashlib.sha256(json.dumps(json.loads(json.dumps(UNIT))).encode()).digest()
        unit = time.thread_time() - checked
        nodes = len(self.log.state.surface.nodes)
        self.steps.append(Step(len(self.log), nodes, built - start, checked - built, unit))
        self.log.append(ev.StepStarted(request=digest, messages=len(request.messages)))
        call = CallPart(call_id="call_0", name="repl", arguments='{"code": "look()"}')
        parts = (TextPart(text="It holds a table of values."), *(() if last else (call,)))
        usage = Usage(input=self.context.used(), output=20)
        stop = "end" if last else "calls"
        self.log.append(ev.ModelReplied(parts=parts, stop=stop, model="bench", usage=usage))
        if not last:
            self._cell()
        self.log.append(ev.StepEnded(outcome="done"))

    def _cell(self) -> None:
        cell, path = f"c{len(self.log)}", f"part{len(self.log)}.py"
        value = {"path": path, "text": FILE, "line_count": 200}
        self.log.append(
            ev.CellStarted(cell=cell, call_id="call_0", code="look()"),
            ev.DispatchStarted(cell=cell, call=1, target="tools.read", arguments={"path": path}),
            ev.DispatchEnded(cell=cell, call=1, value=value, error=None, duration_s=0.001),
            ev.CellOutput(cell=cell, stream="stdout", text=OUTPUT),
        )
        shown = (TextPart(text=around("", OUTPUT, "[context: 100 tokens]")),)
        self.log.append(
            ev.CellEnded(
                cell=cell,
                call_id="call_0",
                status="ok",
                generation=None,
                shown=shown,
                error=None,
                set={},
                removed=(),
                calls=1,
                dropped=0,
                duration_s=0.01,
                after="[context: 100 tokens]",
            )
        )


def measure(policy: Policy, entries: int) -> list[Row]:
    """Return the rows of one policy."""
    with tempfile.TemporaryDirectory() as folder, Log(SqliteStore.create(Path(folder) / "log", ev.FORMAT)) as log:
        log.append(ev.SessionCreated(session="bench", cwd="/tmp", version="0"))
        player = Player(log, policy)
        while len(log) < entries:
            player.turn()
        start = time.thread_time()
        Context(log, Options(policy=policy), window=lambda: WINDOW)
        opened = time.thread_time() - start
    rows = [row("open", policy, [1_000 * opened], "ms")]
    unit = statistics.median(step.unit for step in player.steps)
    for share in MARKS:
        until = round(share * entries)
        played = [step for step in player.steps if step.entries <= until]
        shown = played[-SHOWN:]
        total = sum(step.both for step in played) / unit
        rows += [
            row(f"request at {until:,}", policy, [1_000 * step.request for step in shown], "ms"),
            row(f"check at {until:,}", policy, [1_000 * step.check for step in shown], "ms"),
            row(f"both at {until:,}", policy, [1_000 * step.both for step in shown], "ms"),
            row(f"both at {until:,}, in units", policy, [step.both / step.unit for step in shown], "units"),
            row(f"surface at {until:,}", policy, [float(step.nodes) for step in shown], "nodes"),
            row(f"sum at {until:,}", policy, [1_000 * total / until], "units/1,000 entries"),
        ]
    if max(step.nodes for step in player.steps) >= SLOPE_FROM:
        rows.append(row("1,000 nodes", policy, [1_000 * _slope(player.steps)], "ms"))
    return rows


def _slope(steps: list[Step]) -> float:
    """Return the seconds that 1,000 nodes more cost a step, from the median step of each turn: one of a turn seals."""
    turns = [steps[place : place + STEPS] for place in range(0, len(steps), STEPS)]
    nodes = [statistics.median(step.nodes for step in turn) for turn in turns]
    costs = [statistics.median(step.both for step in turn) for turn in turns]
    return 1_000 * statistics.linear_regression(nodes, costs).slope


def main() -> None:
    """Measure every policy and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--entries", type=int, default=10_000)
    given = parser.parse_args()
    rows = [each for policy in POLICIES for each in measure(policy, given.entries)]
    rows.sort(key=lambda each: each.measure)
    table(rows)
    write(given.json, document(rows))


if __name__ == "__main__":
    main()
