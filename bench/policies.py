"""What a context policy costs a step: ``python -m bench.policies [--json FILE] [--entries N]``.

One session of ``N`` entries (10,000) is played under each policy without a model and without a kernel. Measured for
each step: planning and building the request (``request``), and checking it against the stored entries (``check``). The
last rows are the sums over a session of half the length and over the whole one: what is linear in the session doubles.
"""

from __future__ import annotations

import argparse
import tempfile
import time
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
#: A log, which is folded.
OUTPUT = "".join(f"2026-01-01 12:00:{number:02} INFO row {number} is fine\n" for number in range(60))
FILE = "x = 1\n" * 200
HEADER = Header(
    model="scripted/bench",
    system="You work by writing Python.\n" * 200,
    tools=(ToolSpec(name="repl", description="Run a cell.", parameters={"type": "object"}),),
)


class Player:
    """Plays turns into a log and keeps what each request cost, in seconds."""

    def __init__(self, log: Log, policy: Policy) -> None:
        self.log = log
        self.context = Context(log, Options(policy=policy), window=lambda: WINDOW)
        self.request_s: list[float] = []
        self.check_s: list[float] = []

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
        start = time.perf_counter()
        request = self.context.request(HEADER)
        built = time.perf_counter()
        digest = self.context.check(request)
        self.request_s.append(built - start)
        self.check_s.append(time.perf_counter() - built)
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
        half: list[float] = []
        while len(log) < entries:
            player.turn()
            if not half and len(log) >= entries // 2:
                half = list(player.request_s)
        start = time.perf_counter()
        Context(log, Options(policy=policy), window=lambda: WINDOW)
        opened = time.perf_counter() - start
    return [
        row("request", policy, [1_000 * each for each in player.request_s], "ms"),
        row("check", policy, [1_000 * each for each in player.check_s], "ms"),
        row("open", policy, [1_000 * opened], "ms"),
        row("sum, half a session", policy, [sum(half)], "s"),
        row("sum, whole session", policy, [sum(player.request_s)], "s"),
    ]


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
