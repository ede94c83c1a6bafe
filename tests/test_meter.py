"""What of a cell's output is published: the beginning, an exact statement of what is missing, the end."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from prime_kernel.meter import TAIL, Meter

STREAMS = st.sampled_from(["stdout", "stderr"])


@given(st.lists(st.tuples(st.text(), STREAMS)), st.integers(0, 3_000), st.integers(1, 40))
def test_the_beginning_and_the_end_are_published_and_the_rest_is_counted(
    pieces: list[tuple[str, str]], limit: int, times: int
) -> None:
    meter = Meter(limit)
    pieces = [(text * times, stream) for text, stream in pieces]
    admitted = "".join(meter.admit(*piece) for piece in pieces)
    rest = meter.rest()
    whole = "".join(text.encode("utf-8", "backslashreplace").decode() for text, _ in pieces)
    assert whole.startswith(admitted)
    tail = "".join(text for _, text in rest)
    gap = re.match(r"\n\[\.\.\. ([\d,]+) bytes were dropped here.*\]\n", tail)
    if gap is not None:
        assert int(gap[1].replace(",", "")) == meter.dropped
        tail = tail[gap.end() :]
    assert whole.endswith(tail)
    assert meter.dropped == len(whole.encode()) - len(admitted.encode()) - len(tail.encode())
    assert len(admitted.encode()) + len(tail.encode()) <= limit
    assert (gap is None) == (meter.dropped == 0)


@given(st.lists(st.tuples(st.sampled_from("ab"), STREAMS), max_size=100))
def test_the_end_keeps_its_streams(pieces: list[tuple[str, str]]) -> None:
    meter = Meter(600)  # 450 for the beginning, 22 for the end
    meter.admit("x" * 450)
    for piece in pieces:
        meter.admit(*piece)
    kept = [(stream, char) for stream, text in meter.rest() if "dropped" not in text for char in text]
    assert kept == [(stream, char) for char, stream in pieces][-22:]


def test_an_image_is_taken_whole_or_not_at_all_and_small_text_fits_after_it() -> None:
    meter = Meter(1_000)
    assert not meter.take(2_000)
    assert meter.admit("small") == "small"
    assert meter.take(100)
    assert (meter.dropped, meter.rest()) == (2_000, [])


def test_what_comes_after_the_end_is_dropped() -> None:
    meter = Meter(1_000)
    meter.admit("x" * 1_000)
    meter.rest()
    before = meter.dropped
    assert meter.admit("late") == ""
    assert meter.dropped == before + 4
    assert "late" not in str(meter.rest())


def test_memory_is_bounded_by_the_tail() -> None:
    meter = Meter(16 * 1024 * 1024)
    for number in range(200_000):
        meter.admit("x" * 200, "stderr" if number % 2 else "stdout")
    assert sum(len(text) for _, text in meter.rest()) <= TAIL + 200
