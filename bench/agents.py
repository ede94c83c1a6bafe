"""A family of agents on one machine: what a child costs, and whether everything that is promised of it holds.

    python -m bench.agents [--children N] [--steps N] [--json FILE]

One root starts N children in a cell; each takes a number of steps, every one a request to a scripted model and a
cell in a real kernel of its own that makes a host call. All must settle, the root must be told of each exactly once,
its log must grow with the number of children and not with their steps, and every session must verify. Meanwhile the
event loop is asked every 10 ms how late it is, and the memory of the host and of the kernels is looked at.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.report import document, row, table, write
from prime.app import running
from prime.config import Config
from prime.log import read
from prime.messages import Request, text_of
from prime.providers.scripted import ScriptedProvider
from prime.sessions import Sessions
from prime.verify import verify

#: Megabytes of the host itself, beside the kernels, that a family may take (task: 50 children).
HOST_MB = 500
#: Seconds between looks at the event loop, and at memory.
LAG_S, LOOK_S = 0.01, 0.25

_SPAWN = """\
import json, time
took, children = [], []
for n in range({children}):
    start = time.perf_counter()
    children.append(await agents.spawn(f'work {{n}}', name=f'c{{n}}'))
    took.append((time.perf_counter() - start) * 1000)
print(json.dumps(took))
"""
_STEP = "found = await tools.glob(pattern='*.txt')\nseen = globals().get('seen', 0) + len(found.paths)\nprint(seen)"


@dataclass
class Watch:
    """What was seen while the family worked: lateness of the event loop in ms, megabytes of the host and of each
    kernel, and how many kernels there were at most."""

    lag_ms: list[float] = field(default_factory=list)
    host_mb: list[float] = field(default_factory=list)
    kernel_mb: list[float] = field(default_factory=list)
    kernels: int = 0

    async def lag(self) -> None:
        """Look at the event loop until cancelled."""
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(LAG_S)
            self.lag_ms.append((time.perf_counter() - begun - LAG_S) * 1000)

    async def memory(self) -> None:
        """Look at the memory until cancelled."""
        while True:
            await asyncio.to_thread(self._look)
            await asyncio.sleep(LOOK_S)

    def _look(self) -> None:
        host = psutil.Process()
        self.host_mb.append(host.memory_info().rss / 1e6)
        kernels = []
        for process in host.children():
            try:
                if any("launch.py" in part for part in process.cmdline()):
                    kernels.append(process.memory_full_info().uss / 1e6)
            except psutil.Error:
                continue  # it ended while it was looked at
        self.kernel_mb += kernels
        self.kernels = max(self.kernels, len(kernels))


def model(children: int, steps: int) -> ScriptedProvider:
    """Return a model that plays the root and every child, by the words and the number of replies of a request."""

    def reply(request: Request) -> Mapping[str, Any]:
        said = sum(message.role == "assistant" for message in request.messages)
        if text_of(request.messages[0].parts).startswith("work"):
            return {"code": _STEP} if said < steps else {"text": "It is done."}
        return {"code": _SPAWN.format(children=children)} if said == 0 else {"text": "Noted."}

    return ScriptedProvider(reply)


async def measure(home: Path, children: int, steps: int) -> tuple[list[Any], dict[str, Any]]:
    """Run the family and return its rows and totals.

    Raises:
        AssertionError: something that is promised does not hold.
    """
    work = home / "work"
    work.mkdir()
    (work / "a.txt").write_text("a")
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    config = Config(
        home=home,
        guest_environment=environment,
        children_total=children,
        children_tokens=None,
        context_policy="transcript",
        snapshot="off",
    )
    watch, begun = Watch(), time.perf_counter()
    looking = [asyncio.create_task(watch.lag()), asyncio.create_task(watch.memory())]
    async with running(config, work, model(children, steps)) as agent:
        answer = await agent.ask("start them")
        spawned_s = time.perf_counter() - begun
        await agent.rest(answer)
        settled_s = time.perf_counter() - begun
        session = agent.session
    for task in looking:
        task.cancel()
    entries, took = _checked(Sessions(home), session, children, steps)
    rows = [
        row("spawn, in the cell", "prime-repl", took, "ms"),
        row("event loop late by", "prime-repl", watch.lag_ms, "ms"),
        row("memory of the host", "prime-repl", watch.host_mb, "MB"),
        row("memory of one kernel", "prime-repl", watch.kernel_mb, "MB"),
    ]
    peak = max(watch.host_mb)
    assert peak <= HOST_MB, f"the host took {peak:.0f} MB"
    totals = {
        "children": children,
        "steps_of_each": steps,
        "all_started_s": round(spawned_s, 2),
        "all_settled_s": round(settled_s, 2),
        "steps_a_second": round(children * (steps + 1) / settled_s, 1),
        "host_peak_mb": round(peak, 1),
        "host_mb_a_child": round((peak - watch.host_mb[0]) / children, 2),
        "kernels_at_most": watch.kernels,
        "loop_late_max_ms": round(max(watch.lag_ms), 1),
        **entries,
    }
    return rows, totals


def _checked(sessions: Sessions, session: str, children: int, steps: int) -> tuple[dict[str, int], list[float]]:
    """Check the logs; return how many entries of which kind the root's has, and what spawning took."""
    with sessions.read(session) as store:
        events = [entry.event for entry in read(store)]
    kinds = Counter(event.type for event in events)
    told = Counter(event.agent_id for event in events if event.type == "child_settled")
    assert sorted(told) == sorted(sessions.children(session)), "not every child has settled"
    assert set(told.values()) == {1}, "a child was told of twice"
    outcomes = {event.settlement.outcome for event in events if event.type == "child_settled"}
    assert outcomes == {"completed"}, outcomes
    given = [event.about for event in events if event.type == "notice_given" and event.about.endswith(".settled")]
    assert sorted(given) == sorted(f"{child}.settled" for child in told), "a notice is missing or doubled"
    for each in sessions.all():
        with sessions.read(each) as store:
            assert verify(store).requests >= (steps + 1 if each != session else 1)
    shown = next(text_of(event.shown) for event in events if event.type == "cell_ended")
    of_children = (
        kinds["child_spawned"]
        + kinds["child_settled"]
        + sum(event.type == "input_queued" and event.kind == "notice" for event in events)
    )
    return {"entries_for_children": of_children, "entries_of_the_root": len(events)}, json.loads(shown.splitlines()[0])


def main() -> None:
    """Measure, print the table, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--children", type=int, default=50)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", type=Path, help="where to write the result")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="agents-") as folder:
        rows, totals = asyncio.run(measure(Path(folder), options.children, options.steps))
    table(rows)
    for name, value in totals.items():
        print(f"{name.replace('_', ' ')}: {value}")
    write(options.json, document(rows, **totals))


if __name__ == "__main__":
    main()
