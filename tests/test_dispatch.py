"""The calls of a cell under every schedule: one answer each, in order into the log, whatever is cancelled when."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prime import events as ev
from prime.dispatch import IN_FLIGHT, CellCalls
from prime.errors import LogError, ToolFailed
from prime.log import Log
from prime.repl.signals import Error, HostCall, Outcome, Value
from prime.store.sqlite import SqliteStore
from prime.tools.base import Tool, tool
from prime.tools.catalogue import Catalogue
from prime.tools.workspace import Workspace

pytestmark = pytest.mark.anyio

CELL = "s1.1"


class Bench:
    """Tools that say when they begin and end, and everything that came of their calls."""

    def __init__(self) -> None:
        self.running: list[int] = []
        self.began: list[int] = []
        self.overlaps: list[tuple[int, ...]] = []
        self.answers: list[tuple[int, Outcome]] = []
        self.gates: dict[int, asyncio.Event] = {}
        self.answer_ticks = 0

    def tools(self) -> tuple[Tool, ...]:
        return (
            tool(self.wait, name="parallel", parallel=True, effects=False),
            tool(self.wait, name="exclusive"),
            tool(self.fail, name="fail", parallel=True, effects=False),
            tool(self.deaf, name="deaf", parallel=True, effects=False),
        )

    async def wait(self, id: int, ticks: int = 0, gated: bool = False, weight: float = 0.0) -> int:
        """Take some turns of the event loop, or wait for a gate."""
        with self._at_work(id):
            for _ in range(ticks):
                await asyncio.sleep(0)
            if gated:
                await self.gates.setdefault(id, asyncio.Event()).wait()
        return id

    async def fail(self, id: int, ticks: int = 0) -> int:
        """Fail."""
        await self.wait(id, ticks)
        raise ToolFailed("not_found", "no \udcff here") if id % 2 else ZeroDivisionError("\udcff")

    async def deaf(self, id: int, ticks: int = 0) -> int:
        """Go on whatever happens."""
        with self._at_work(id):
            while ticks > 0:
                ticks -= 1
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError:
                    ticks += 2
        return id

    async def answer(self, call: int, outcome: Outcome) -> None:
        for _ in range(self.answer_ticks):
            await asyncio.sleep(0)
        self.answers.append((call, outcome))

    @contextmanager
    def _at_work(self, id: int) -> Iterator[None]:
        self.began.append(id)
        self.running.append(id)
        self.overlaps.append(tuple(self.running))
        try:
            yield
        finally:
            self.running.remove(id)


@contextmanager
def open_cell(store: Any = None) -> Iterator[Log]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Log(store or SqliteStore.create(Path(folder) / "log.sqlite3", ev.FORMAT)) as log,
    ):
        log.append(ev.SessionCreated(session="s1", cwd="/", version="0"))
        log.append(ev.CellStarted(cell=CELL, call_id=None, code=""))
        yield log


def calls_of(bench: Bench, log: Log) -> CellCalls:
    return CellCalls(CELL, log, Catalogue(bench.tools()), Workspace("/"), bench.answer)


def call(number: int, name: str, **arguments: Any) -> HostCall:
    return HostCall(number, f"tools.{name}", {"id": number, **arguments})


def starts(log: Log) -> list[int]:
    return [entry.event.call for entry in log.entries(types=("dispatch_started",))]


def ends(log: Log) -> list[int]:
    return [entry.event.call for entry in log.entries(types=("dispatch_ended",))]


MOVES = st.one_of(
    st.tuples(st.just("parallel"), st.integers(0, 4)),
    st.tuples(st.just("exclusive"), st.integers(0, 4)),
    st.tuples(st.just("fail"), st.integers(0, 2)),
    st.tuples(st.just("deaf"), st.integers(0, 3)),
    st.tuples(st.just("unknown"), st.just(0)),
    st.tuples(st.just("tick"), st.integers(1, 5)),
    st.tuples(st.just("cancel"), st.integers(1, 20)),
    st.tuples(st.just("commit"), st.just(0)),
)


@given(st.lists(MOVES, max_size=40), st.booleans(), st.integers(0, 2), st.integers(0, 6))
def test_every_call_is_answered_once_and_logged_in_order(
    moves: list[tuple[str, int]], stop: bool, answer_ticks: int, late: int
) -> None:
    bench = Bench()
    bench.answer_ticks = answer_ticks
    with open_cell() as log:
        names, too_late = asyncio.run(_play(bench, log, moves, stop, late))
        submitted = list(names)

        assert Counter(number for number, _ in bench.answers) == Counter(submitted)
        assert starts(log) == sorted(starts(log))
        assert ends(log) == starts(log)
        # the log and the program were told the same
        answers = dict(bench.answers)
        for entry in log.entries(types=("dispatch_ended",)):
            outcome = answers[entry.event.call]
            if isinstance(outcome, Value):
                assert (entry.event.value, entry.event.error) == (outcome.value, None)
            else:
                assert (entry.event.error.code, entry.event.error.message) == (outcome.code, outcome.message)
        # what ran is in the log, and began in the order of submission
        assert bench.began == sorted(bench.began)
        assert set(bench.began) <= set(starts(log))
        assert not too_late & set(starts(log))
        for together in bench.overlaps:
            assert len(together) <= IN_FLIGHT
            assert len(together) == 1 or not any(names[number] == "exclusive" for number in together)
        assert bench.running == []
        log.append(_ended())  # nothing is open, nothing comes later


async def _play(
    bench: Bench, log: Log, moves: list[tuple[str, int]], stop: bool, late: int
) -> tuple[dict[int, str], set[int]]:
    calls, names = calls_of(bench, log), dict[int, str]()
    for kind, figure in moves:
        if kind == "tick":
            for _ in range(figure):
                await asyncio.sleep(0)
        elif kind == "cancel":
            calls.cancel(figure)
        elif kind == "commit":
            calls.commit()
        else:
            names[len(names) + 1] = kind
            calls.submit(call(len(names), kind, **({"ticks": figure} if kind != "unknown" else {})))
    too_late = set()
    closing = asyncio.create_task(calls.close(stop=stop))
    if stop:
        await asyncio.sleep(0)
        for _ in range(late):  # a cell that does not stop at once may go on calling
            names[len(names) + 1] = "exclusive"
            too_late.add(len(names))
            calls.submit(call(len(names), "exclusive"))
            await asyncio.sleep(0)
    await closing
    await calls.close(stop=True)
    assert calls.count == len(names)
    return names, too_late


def _ended() -> ev.CellEnded:
    return ev.CellEnded(
        cell=CELL,
        call_id=None,
        status="ok",
        generation=None,
        shown=(),
        error=None,
        set={},
        removed=(),
        calls=0,
        dropped=0,
        duration_s=0.0,
    )


async def test_an_exclusive_call_waits_for_all_and_holds_all_back() -> None:
    bench = Bench()
    with open_cell() as log:
        calls = calls_of(bench, log)
        for number, name in enumerate(("parallel", "parallel", "exclusive", "parallel", "parallel"), 1):
            calls.submit(call(number, name, gated=True))
        await _ticks(bench, 1, 2)
        _open(bench, 2)
        await _ticks(bench, 1)
        assert bench.began == [1, 2]
        _open(bench, 1)
        await _ticks(bench, 3)
        assert bench.began == [1, 2, 3]
        _open(bench, 3)
        await _ticks(bench, 4, 5)
        _open(bench, 5)
        _open(bench, 4)
        await calls.close(stop=False)
        # 2 was answered before 1, and 5 before 4; the log keeps the order of submission
        assert [number for number, _ in bench.answers] == [2, 1, 3, 5, 4]
        assert ends(log) == [1, 2, 3, 4, 5]


async def test_calls_beyond_the_limit_wait_their_turn() -> None:
    bench = Bench()
    with open_cell() as log:
        calls = calls_of(bench, log)
        for number in range(1, IN_FLIGHT + 3):
            calls.submit(call(number, "parallel", gated=True))
        await _ticks(bench, *range(1, IN_FLIGHT + 1))
        assert len(bench.running) == IN_FLIGHT
        _open(bench, 7)
        await _ticks(bench, *(number for number in range(1, IN_FLIGHT + 2) if number != 7))
        assert bench.began[-1] == IN_FLIGHT + 1
        await calls.close(stop=True)
    assert Counter(number for number, _ in bench.answers) == Counter(range(1, IN_FLIGHT + 3))


async def test_a_stopped_call_that_never_began_leaves_no_entry_and_says_so() -> None:
    bench = Bench()
    with open_cell() as log:
        calls = calls_of(bench, log)
        for number, name in enumerate(("parallel", "exclusive", "parallel"), 1):
            calls.submit(call(number, name, gated=True))
        await _ticks(bench, 1)
        await calls.close(stop=True)
        assert starts(log) == [1]
        messages = [outcome.message for _, outcome in sorted(bench.answers) if isinstance(outcome, Error)]
        assert ["no effects" in message for message in messages] == [False, True, True]
        assert "may have had effects" in messages[0]


async def test_arguments_that_no_log_can_hold_never_reach_the_tool() -> None:
    bench = Bench()
    with open_cell() as log:
        calls = calls_of(bench, log)
        calls.submit(call(1, "exclusive", weight=-0.0))
        await calls.close(stop=False)
        assert bench.began == []
        assert isinstance(bench.answers[0][1], Error)
        assert ends(log) == [1]


class FailingStore:
    """A store whose disk is full from some moment on."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.full = False

    def append(self, *args: Any, **kwargs: Any) -> None:
        if self.full:
            raise LogError("the disk is full")
        self._store.append(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.parametrize("when", ["before effects", "between"])
async def test_when_the_log_cannot_be_written_nothing_more_happens(when: str, tmp_path: Path) -> None:
    bench = Bench()
    store = FailingStore(SqliteStore.create(tmp_path / "log.sqlite3", ev.FORMAT))
    with open_cell(store) as log:
        calls = calls_of(bench, log)
        if when == "between":
            calls.submit(call(1, "parallel", gated=True))
            await _ticks(bench, 1)
            calls.commit()
        store.full = True
        for number in range(2, 5):
            calls.submit(call(number, "exclusive"))
        _open(bench, 1)
        with pytest.raises(LogError, match="disk is full"):
            await calls.close(stop=False)
        calls.submit(call(5, "exclusive"))
        with pytest.raises(LogError, match="disk is full"):
            await calls.close(stop=True)
    assert set(bench.began) <= {1}
    expected = range(1 if when == "between" else 2, 6)
    assert Counter(number for number, _ in bench.answers) == Counter(expected)


async def test_hundreds_of_calls_in_any_order_of_their_ends() -> None:
    bench, luck = Bench(), random.Random(7)
    with open_cell() as log:
        calls = calls_of(bench, log)
        for number in range(1, 301):
            calls.submit(call(number, "parallel", ticks=luck.randrange(20)))
        await calls.close(stop=False)
        assert ends(log) == list(range(1, 301))
        assert sorted(number for number, _ in bench.answers) == list(range(1, 301))


def _open(bench: Bench, number: int) -> None:
    bench.gates.setdefault(number, asyncio.Event()).set()


async def _ticks(bench: Bench, *running: int) -> None:
    """Wait until exactly these calls are at work."""
    async with asyncio.timeout(5):
        while sorted(bench.running) != sorted(running):  # noqa: ASYNC110 - the tools have no event to wait for
            await asyncio.sleep(0)


async def test_a_call_that_was_answered_has_its_end_in_the_log() -> None:
    """What a cell shows of a value is looked up there, and a slow host may hear of the output first."""
    with open_cell() as log:

        async def answer(number: int, outcome: Outcome) -> None:
            calls.commit()
            ends.append([entry.event.call for entry in log.entries(types=("dispatch_ended",))])

        ends: list[list[int]] = []
        calls = CellCalls(CELL, log, Catalogue(Bench().tools()), Workspace("/"), answer)
        for number in (1, 2, 3):
            calls.submit(call(number, "exclusive"))
        await calls.close(stop=False)
    assert ends == [[1], [1, 2], [1, 2, 3]]
