"""Lines that are watched for."""

from __future__ import annotations

from pathlib import Path

import pytest

from prime.errors import ToolFailed
from prime.jobs.output import LEAST, SESSION, TAIL, Output
from prime.jobs.watch import CHUNK, LINE_BYTES, Watch

pytestmark = pytest.mark.anyio


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output.create(tmp_path / "jobs" / "1.out")


def watching(output: Output, pattern: str | None, *, case_sensitive: bool = False, start: int = 0) -> Watch:
    return Watch(output, pattern, case_sensitive=case_sensitive, start=start)


async def test_only_complete_lines_are_looked_at_until_the_end(output: Output) -> None:
    watch = watching(output, "error")
    output.add(b"all well\r\nan Err")
    await watch.look()
    assert watch.count == 0
    output.add(b"or here\r\nerror at the end")
    await watch.look()
    assert watch.told() == "an Error here"
    await watch.look(final=True)
    assert watch.told() == "error at the end"
    assert watch.told() == ""


async def test_case_may_count_and_no_pattern_means_every_line(output: Output) -> None:
    output.add(b"Error\nerror\n\n")
    sensitive, every = watching(output, "error", case_sensitive=True), watching(output, None, start=6)
    await sensitive.look()
    await every.look()
    assert (sensitive.count, every.count) == (1, 2)


async def test_of_many_lines_the_first_and_the_last_are_told(output: Output) -> None:
    output.add(b"".join(b"line %d\n" % number for number in range(100)))
    watch = watching(output, "line")
    await watch.look()
    assert watch.count == 100
    lines = watch.told().split("\n")
    assert lines[:5] == [f"line {number}" for number in range(5)]
    assert lines[5] == "[... 90 more ...]"
    assert lines[6:] == [f"line {number}" for number in range(95, 100)]


async def test_a_line_without_end_is_looked_at_in_parts(output: Output) -> None:
    output.add(b"x" * (CHUNK + 10) + b"\nneedle\n")
    watch = watching(output, "needle|^x")
    await watch.look()
    assert watch.count == 3
    assert all(len(line) <= 300 for line in watch.told().split("\n"))


async def test_only_the_beginning_of_a_long_line_is_searched(output: Output) -> None:
    output.add(b"x" * LINE_BYTES + b"needle\n" + b"x" * 100 + b"needle\n")
    watch = watching(output, "needle")
    await watch.look()
    assert watch.count == 1


async def test_a_pattern_that_takes_too_long_ends_the_watch(output: Output) -> None:
    output.add(b"a" * 4_000 + b"!\n")
    watch = watching(output, r"(?:(a+)+)+\1{3}$")
    await watch.look()
    assert "too long" in watch.failed
    await watch.look()
    assert watch.count == 0


def test_what_is_no_pattern_is_refused(output: Output) -> None:
    with pytest.raises(ToolFailed, match="no regular expression"):
        watching(output, "(")


async def test_what_was_read_is_not_told(output: Output) -> None:
    watch = watching(output, "line")
    output.add(b"line 1\n")
    await watch.look()
    watch.skip()
    output.add(b"line 2\n")
    await watch.look()
    assert watch.told() == "line 2"


async def test_lines_that_are_gone_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    with (tmp_path / "jobs" / "0.out").open("wb") as sparse:  # a full session: little goes on the disk
        sparse.truncate(SESSION)
    output = Output.create(tmp_path / "jobs" / "1.out")
    output.add(b"line 1\n" + b"x" * (LEAST - 10))
    output.add(b"line 2 across the edge\n" + b"x" * 4 * TAIL + b"\nline 3\n")
    watch = watching(output, "line [123]")
    await watch.look()
    assert watch.told() == "line 1\nline 3"
    assert watch.at == output.total
