"""Kill the host at random instants and see what is left.

    python -m bench.kill [--trials N] [--seed N] [--workers N] [--json FILE]

A child process runs an agent (scripted model, real kernel: cells with host calls, notes, processes of their own) and
acknowledges every log entry when it is stored. It is killed with SIGKILL, at a random moment or right after a random
entry. Then: every acknowledged entry is there, every kernel and what its cells had started is gone, the session opens,
repairs itself, verifies, runs each pending input exactly once and goes on with a turn and a cell of a new kernel.

The test suite runs the same trials, fewer of them.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from bench.report import document, row, table, write
from prime import events as ev
from prime.app import running
from prime.config import Config
from prime.log import read
from prime.messages import Request
from prime.providers.scripted import ScriptedProvider
from prime.sessions import Sessions
from prime.verify import verify

#: Seconds until which everything that it started must be gone after its host was killed (design: repl, "Processes").
GONE_S = 5.0
#: The latest instant of a kill, in seconds after the first entry, and the latest entry.
LATEST_S, LATEST_ENTRY = 2.5, 160

#: What the cells do, in turn.
CELLS = (
    "import subprocess\nkept = subprocess.Popen(['sleep', '60'])\nprint('started')",
    "import subprocess\nsubprocess.Popen(['sleep', '60'], start_new_session=True)\n"
    "await tools.bash(command='sleep 60 & sleep 0.1')",
    "for n in range(20):\n    await tools.write(path=f'{n}.txt', content='x' * n)\n'written'",
    "texts = await asyncio.gather(*(tools.read(path=f'{n}.txt') for n in range(20)))\nprint(len(texts))",
    "note = await notes.read()\nawait notes.write(text=f'note {note.revision}', revision=note.revision)",
    "print('x' * 100_000)",
    "1 / 0",
    "await asyncio.sleep(0.3)",
)


@dataclass(frozen=True)
class Trial:
    """What came of one kill.

    Attributes:
        seed: gives the same trial again, up to the speed of the machine.
        killed_in: type of the last acknowledged entry.
        acknowledged: entries acknowledged before the kill.
        lost: acknowledged entries that are not in the log; must be 0.
        processes: kernels, and what their cells had started, that were alive when the host was dead.
        gone_s: seconds from the kill until none of them was.
        open_s: seconds to open and repair the session.
        repaired: entries that the repair added.
    """

    seed: int
    killed_in: str
    acknowledged: int
    lost: int
    processes: int
    gone_s: float
    open_s: float
    repaired: int


def trial(seed: int) -> Trial:
    """Run one trial.

    Raises:
        AssertionError: something that must hold does not; the message begins with the seed.
    """
    luck = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="kill-") as folder:
        home, work = Path(folder) / "home", Path(folder) / "work"
        work.mkdir()
        acknowledged, killed = _killed(home, work, luck)
        processes, gone_s = _wait_until_gone(work, killed)
        assert processes is not None, f"seed {seed}: a process is alive {GONE_S:g} s after its host was killed"
        sessions = Sessions(home)
        (session,) = sessions.ids()
        with sessions.read(session) as store:
            stored = {row.seq: row.type for row in store.rows()}
        lost = sum(stored.get(seq) != kind for seq, kind in acknowledged)
        begun = time.perf_counter()
        with sessions.open(session) as log:
            open_s = time.perf_counter() - begun
            repaired = len(log) - len(stored) - 1  # one is that it was resumed
            assert log.state.trace.quiet, f"seed {seed}: the repair left a bracket open"
        asyncio.run(_go_on(home, session))
        with sessions.read(session) as store:
            verify(store)
            _check_inputs(seed, [entry.event for entry in read(store)])
    assert lost == 0, f"seed {seed}: {lost} acknowledged entries are lost"
    return Trial(seed, acknowledged[-1][1], len(acknowledged), lost, processes, gone_s, open_s, repaired)


def sweep(trials: int, seed: int, workers: int) -> Iterator[Trial]:
    """Run trials with the seeds from ``seed`` on, some at the same time."""
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(trial, range(seed, seed + trials))


def _killed(home: Path, work: Path, luck: random.Random) -> tuple[list[tuple[int, str]], float]:
    """Run a host, kill it, and return what it had acknowledged and when it was killed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    here, there = context.Pipe(duplex=False)
    host = context.Process(target=_host, args=(home, work, luck.random(), there), daemon=True)
    host.start()
    there.close()
    acknowledged = [_entry(here)]
    if luck.random() < 0.5:
        until = time.monotonic() + luck.uniform(0.0, LATEST_S)
        while (left := until - time.monotonic()) > 0:
            if here.poll(left):
                acknowledged.append(_entry(here))
    else:
        acknowledged += [_entry(here) for _ in range(luck.randrange(LATEST_ENTRY))]
    host.kill()
    killed = time.monotonic()
    try:
        while True:
            acknowledged.append(_entry(here))  # said before the kill, read after it
    except (EOFError, ConnectionResetError):
        here.close()
    host.join()
    assert host.exitcode == -9, f"the host ended by itself: {host.exitcode}"
    return acknowledged, killed


def _entry(connection: Connection) -> tuple[int, str]:
    seq, kind = connection.recv_bytes().decode().split()
    return int(seq), kind


def _host(home: Path, work: Path, luck: float, acknowledge: Connection) -> None:
    asyncio.run(_talk(home, work, random.Random(luck), acknowledge))


async def _talk(home: Path, work: Path, luck: random.Random, acknowledge: Connection) -> None:
    async with running(_config(home), work, ScriptedProvider(_reply)) as agent:

        def stored(entry: ev.Entry) -> None:
            acknowledge.send_bytes(f"{entry.seq} {entry.event.type}".encode())

        agent.observe(lambda item: stored(item) if isinstance(item, ev.Entry) else None)
        acknowledge.send_bytes(b"0 session_created")
        while True:
            asking = asyncio.create_task(agent.ask("work"))
            await asyncio.sleep(luck.uniform(0, 0.2))
            agent.steer("and this")
            agent.inform("by the way")
            await asking


def _reply(request: Request) -> dict[str, Any]:
    """Run the cells one after the other, two of them in every third reply, and end each turn after four replies."""
    replies = sum(message.role == "assistant" for message in request.messages)
    if replies % 5 == 4:
        return {"text": "That is done."}
    chosen = CELLS[replies % len(CELLS)]
    return {"text": "Going on.", "code": [chosen, "1 + 1"] if replies % 3 == 0 else chosen}


def _config(home: Path) -> Config:
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return Config(home=home, guest_environment=environment)


def _wait_until_gone(work: Path, killed: float) -> tuple[int | None, float]:
    """Return how many processes were alive after the kill and the seconds until none was; None when some stay."""
    alive = processes(work)
    count = len(alive)
    _, alive = psutil.wait_procs(alive, timeout=max(killed + GONE_S - time.monotonic(), 0))
    # one that was being started at the kill may have become visible only now
    return (None if alive or processes(work) else count), time.monotonic() - killed


def processes(work: Path) -> list[psutil.Process]:
    """Return the processes that work in ``work``: kernels and what they and the tools started, never the host."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(work):
                found.append(process)
        except psutil.Error:
            continue  # it ended while it was looked at, or belongs to somebody else
    return found


async def _go_on(home: Path, session: str) -> None:
    """Run what is pending, and one more turn with a cell."""
    replies = iter([{"code": "6 * 7"}])
    provider = ScriptedProvider(lambda request: next(replies, {"text": "42"}))
    async with running(_config(home), None, provider, session=session) as agent:
        answer = await agent.ask("and now?")
        assert answer.reason == "completed", answer
    shown = [text for message in provider.requests[-1].messages for text in [str(message.parts)]]
    assert any("42" in text for text in shown)


def _check_inputs(seed: int, events: list[Any]) -> None:
    queued = Counter(event.input_id for event in events if isinstance(event, ev.InputQueued))
    claimed = Counter(event.input_id for event in events if isinstance(event, ev.InputClaimed))
    assert queued == claimed, f"seed {seed}: inputs were lost or doubled: {queued - claimed}, {claimed - queued}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    done = list(sweep(options.trials, options.seed, options.workers))
    rows = [
        row("processes gone after the kill", "prime-repl", [each.gone_s for each in done if each.processes], "s"),
        row("open and repair", "prime-repl", [each.open_s for each in done], "s"),
        row("acknowledged entries", "prime-repl", [each.acknowledged for each in done], "entries"),
        row("acknowledged entries lost", "prime-repl", [each.lost for each in done], "entries"),
        row("entries added by the repair", "prime-repl", [each.repaired for each in done], "entries"),
    ]
    table(rows)
    phases = dict(Counter(each.killed_in for each in done).most_common())
    print(f"{len(done)} trials passed; killed after: {phases}")
    write(options.json, document(rows, trials=len(done), seed=options.seed, killed_in=phases))


if __name__ == "__main__":
    main()
