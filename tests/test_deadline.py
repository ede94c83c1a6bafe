"""What counts towards a cell's deadline. In a real kernel: test_repl_stops."""

from __future__ import annotations

import asyncio

import pytest

from prime.repl.deadline import Deadline

pytestmark = pytest.mark.anyio


class Processor:
    """A processor whose use a test sets."""

    def __init__(self) -> None:
        self.used = 0.0

    def __call__(self) -> float:
        return self.used


async def test_every_second_counts_without_an_exempt_call() -> None:
    over = asyncio.Event()
    deadline = Deadline(0.01, Processor(), over.set)
    await asyncio.wait_for(over.wait(), 10)
    deadline.cancel()


async def test_while_one_is_open_only_the_processor_counts() -> None:
    over, processor = asyncio.Event(), Processor()
    deadline = Deadline(0.05, processor, over.set)
    deadline.begin(1)
    deadline.begin(2)
    deadline.end(1)
    deadline.end(7)  # some other call
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(over.wait(), 0.3)
    processor.used = 1.0
    await asyncio.wait_for(over.wait(), 10)


async def test_after_the_last_one_every_second_counts_again() -> None:
    over, processor = asyncio.Event(), Processor()
    deadline = Deadline(0.05, processor, over.set)
    deadline.begin(1)
    processor.used = 0.02
    deadline.end(1)
    await asyncio.wait_for(over.wait(), 10)


async def test_what_is_cancelled_does_not_expire() -> None:
    over = asyncio.Event()
    Deadline(0.01, Processor(), over.set).cancel()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(over.wait(), 0.1)
