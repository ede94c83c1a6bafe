"""The log: what an entry costs, how fast a session opens, what a request costs as it grows, how fast words are found.

    python -m bench.log [--entries N] [--repeat N] [--json FILE]

``bare SQLite`` inserts the same bytes into a plain table under the same settings: the least an entry can cost. The
session of the other measures is made here: turns with cells that make host calls, in words of the frequencies of a
language. What ``kill -9`` leaves is measured by ``python -m bench.kill``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import sqlite3
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.report import document, row, table, write
from prime import events as ev
from prime import search
from prime.context import Context
from prime.history import History
from prime.log import Log
from prime.messages import CallPart, Header, Message, TextPart
from prime.store.sqlite import SqliteStore
from prime.texts import Texts

Samples = dict[tuple[str, str], list[float]]

#: Host calls of a cell in the made session.
CALLS = 24
#: Entries of one commit when they are appended in groups.
GROUP = 20
#: Messages that the surface keeps at least while the log grows: those of whole turns.
SURFACE = 99
_HEADER = Header(model="bench/none", system="You have a kernel.", tools=())


class Words:
    """Texts in words whose frequencies fall as in a language, always the same ones."""

    def __init__(self) -> None:
        self._chance = random.Random(7)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self.vocabulary = ["".join(self._chance.choices(letters, k=self._chance.randint(3, 10))) for _ in range(30_000)]

    def some(self, count: int) -> list[str]:
        """Return words, frequent ones more often."""
        last = len(self.vocabulary) - 1
        return [self.vocabulary[min(int(self._chance.paretovariate(0.6)) - 1, last)] for _ in range(count)]

    def text(self, most: int) -> str:
        """Return a text of at most ``most`` words, most texts being short."""
        return " ".join(self.some(min(int(self._chance.paretovariate(0.7) * 4), most)))

    def queries(self, count: int) -> list[str]:
        """Return queries of one to four words."""
        return [" ".join(self.some(1 + number % 4)) for number in range(count)]


def turn(number: int, words: Words) -> Iterator[Any]:
    """Yield the events of one turn with a cell."""
    said = (TextPart(text=words.text(60)),)
    cell, call = f"cell-{number}", CallPart(call_id="call", name="repl", arguments='{"code": "work()"}')
    yield ev.InputQueued(input_id=f"i{number}", kind="ask", parts=said)
    yield ev.TurnStarted()
    yield ev.InputClaimed(input_id=f"i{number}")
    yield ev.UserSaid(input_id=f"i{number}", kind="ask", parts=said)
    yield ev.StepStarted(request="", messages=0)
    yield ev.ModelReplied(parts=(TextPart(text=words.text(80)), call), stop="calls", model="none", usage=None)
    yield ev.CellStarted(cell=cell, call_id="call", code=words.text(100))
    for place in range(CALLS):
        path = "/".join(words.some(3))
        yield ev.DispatchStarted(cell=cell, call=place + 1, target="tools.read", arguments={"path": path})
        value = {"path": path, "text": words.text(300)}
        yield ev.DispatchEnded(cell=cell, call=place + 1, value=value, error=None, duration_s=0.01)
    output = words.text(2_000)
    yield ev.CellOutput(cell=cell, stream="stdout", text=output)
    shown = (TextPart(text=output[:12_000]),)
    yield ev.CellEnded(
        cell=cell,
        call_id="call",
        status="ok",
        generation=None,
        shown=shown,
        error=None,
        set={},
        removed=(),
        calls=CALLS,
        dropped=0,
        duration_s=0.5,
    )
    yield ev.StepEnded(outcome="done")
    yield ev.TurnEnded(reason="completed")


def grow(log: Log, words: Words, entries: int) -> None:
    """Append turns until the log has ``entries`` or a few more; the surface keeps about the same size."""
    if not len(log):
        log.append(ev.SessionCreated(session="bench", cwd="/", version="0"), ev.HeaderChanged(header=_HEADER))
    while len(log) < entries:
        log.append(*turn(log.state.trace.turn + 1, words))
        seqs = log.state.surface.seqs
        if len(seqs) > SURFACE + 30:
            gone = seqs[:-SURFACE]  # whole turns: each has three messages
            message = Message(role="user", parts=(TextPart(text="[older messages left]"),))
            log.append(ev.SurfaceReplaced(start=gone[0], end=gone[-1], sources=gone, message=message, policy="bench"))


def appends(samples: Samples, folder: Path, repeat: int) -> None:
    """Microseconds of an entry: durable, only committed, and as one of a group; the same bytes in a plain table."""
    notice = ev.NoticeGiven(about="bench", text="a line of words that is neither short nor long " * 4)
    body = notice.model_dump_json()
    with contextlib.closing(SqliteStore.create(folder / "appends.sqlite3", ev.FORMAT)) as store, Log(store) as log:
        log.append(ev.SessionCreated(session="bench", cwd="/", version="0"), ev.TurnStarted())
        with contextlib.closing(sqlite3.connect(folder / "bare.sqlite3", isolation_level=None)) as bare:
            bare.execute("PRAGMA journal_mode=WAL")
            bare.execute("CREATE TABLE entries (seq INTEGER PRIMARY KEY, body TEXT)")
            group, insert = [notice] * GROUP, "INSERT INTO entries (body) VALUES (?)"
            for _ in range(repeat):
                for name, mode, durable in (("durable append", "FULL", True), ("append", "NORMAL", False)):
                    bare.execute(f"PRAGMA synchronous={mode}")
                    samples[name, "bare SQLite"] += _each(lambda: bare.execute(insert, (body,)))
                    samples[name, "prime-repl"] += _each(lambda durable=durable: log.append(notice, durable=durable))
                took = _each(lambda: log.append(*group, durable=True))
                samples[f"durable append in groups of {GROUP}", "prime-repl"] += [each / GROUP for each in took]


def _each(act: Callable[[], Any], count: int = 50) -> list[float]:
    """Return the microseconds of each of ``count`` times."""
    took = []
    for _ in range(count):
        start = time.perf_counter()
        act()
        took.append((time.perf_counter() - start) * 1e6)
    return took


@contextlib.contextmanager
def timed(samples: Samples, measure: str, unit: float) -> Iterator[None]:
    """Add how long the block takes, ``unit`` being how many there are in a second, and how much of that the processor
    worked for it: on a machine that others use the two differ."""
    start, worked = time.perf_counter(), time.process_time()
    yield
    samples[measure, "prime-repl"].append((time.perf_counter() - start) * unit)
    samples[measure, "of that, processor time"].append((time.process_time() - worked) * unit)


def opened(samples: Samples, measure: str, path: Path) -> None:
    """Seconds that opening and folding a log takes."""
    with (
        timed(samples, measure, 1),
        contextlib.closing(SqliteStore.open(path, ev.FORMAT)) as store,
        Log(store),
    ):
        pass


def requests(log: Log, repeat: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds of building a request, and of the check that it is what the log says."""
    context = Context(log)
    built, checked = [], []
    for _ in range(repeat):
        start = time.perf_counter()
        request = context.request(_HEADER)
        middle = time.perf_counter()
        context.check(request)
        built.append((middle - start) * 1000)
        checked.append((time.perf_counter() - middle) * 1000)
    return built, checked


async def searches(samples: Samples, log: Log, words: Words) -> None:
    """Milliseconds of a search, the index being there; seconds of making it."""
    with timed(samples, "make the index", 1):
        for _ in search.index(Texts(log.store)):
            await asyncio.sleep(0)
    history = History(log.store)
    kinds = {
        "search for words": words.queries(200),
        "search for a part of a word": [word[1:-1] + "x" for word in words.some(8)],
    }
    for measure, queries in kinds.items():
        for query in queries:
            with timed(samples, measure, 1000):
                await history.search(query)


def measure(entries: int, repeat: int) -> Samples:
    """Run everything once in a folder that is gone afterwards."""
    samples: Samples = defaultdict(list)
    words = Words()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        appends(samples, folder, repeat)
        path = folder / "log.sqlite3"
        SqliteStore.create(path, ev.FORMAT).close()
        for size in (entries // 100, entries // 10, entries):
            with contextlib.closing(SqliteStore.open(path, ev.FORMAT)) as store, Log(store) as log:
                grow(log, words, size)
                built, checked = requests(log, 5 * repeat)
                samples[f"build a request, {size:,} entries", "prime-repl"] += built
                samples[f"check a request, {size:,} entries", "prime-repl"] += checked
            for _ in range(repeat):
                opened(samples, f"open and fold {size:,} entries", path)
        with contextlib.closing(SqliteStore.open(path, ev.FORMAT)) as store, Log(store) as log:
            asyncio.run(searches(samples, log, words))
    return samples


def _unit(name: str) -> str:
    if "append" in name:
        return "µs"
    return "s" if name.startswith(("open", "make")) else "ms"


def main() -> None:
    """Measure, print the table, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=100_000, help="of the largest log (default: 100,000)")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions (default: 5)")
    parser.add_argument("--json", type=Path, help="where to write the result")
    options = parser.parse_args()
    samples = measure(options.entries, options.repeat)
    rows = [row(name, subject, found, _unit(name)) for (name, subject), found in samples.items()]
    table(rows)
    write(options.json, document(rows, load=os.getloadavg()))


if __name__ == "__main__":
    main()
