"""What a terminal would show: the last state of each line, wherever the pieces are cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prime.screen import Screen, collapsed, joined

CODES = ["\r", "\b", "\n", "\t", "\x00", "\x1b[K", "\x1b[1K", "\x1b[2K", "\x1b[J", "\x1b[2J", "\x1b[A", "\x1b[2A"]
CODES += ["\x1b[B", "\x1b[5G", "\x1b[3C", "\x1b[D", "\x1b[31m", "\x1b]0;title\x07", "\x1b[?25l", "\x1b(B"]
CODES += ["\x1b", "\x1b[", "\x1b]"]
texts = st.lists(st.one_of(st.sampled_from(CODES), st.text("ab 漢", max_size=6)), max_size=40).map("".join)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\r  0%\r 50%\r100%", "100%"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("longer\rshort", "shortr"),
        ("longer\rshort\x1b[K", "short"),
        ("longer  \rsame", "sameer"),
        ("kept blanks  \n", "kept blanks  \n"),
        ("one\b\b\bTWO", "TWO"),
        ("\x1b[?25l\r\x1b[2KWorking 0%\r\x1b[2KWorking 100%\n\x1b[?25h", "Working 100%\n"),
        ("first  0%\nsecond 0%\x1b[1A\rfirst 50%\n\rsecond 9%\n", "first 50%\nsecond 9%\n"),
        ("\x1b[1;31mred\x1b[0m and \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "red and link"),
        ("\x1b]0;title\x07text\x07", "text"),
        ("a\x00b\x7f\x85\x0cc", "a␀b␡�\nc"),
        ("old\nolder\x1b[2Jnew", "new"),
        ("cleared at the end\x1b[H\x1b[2J", "cleared at the end"),
        ("\x1b[4Gx", "   x"),
        ("\x1b[99999Cx\x1b[99999999999Cy", " " * 512 + "x y"),
        ("cut\x1b[3", "cut"),
        ("cut\x1b]no string", "cutno string"),
    ],
)
def test_the_last_state_is_shown(written: str, shown: str) -> None:
    assert collapsed(written) == shown


@given(texts, st.lists(st.integers(1, 5), min_size=1, max_size=30))
@example("a\x1b[2Kb", [1])
def test_where_the_pieces_are_cut_does_not_matter(text: str, sizes: list[int]) -> None:
    screen, pieces, place = Screen(), [], 0
    for size in sizes:
        pieces += screen.write(text[place : place + size])
        place += size
    pieces += screen.write(text[place:])
    assert joined([*pieces, *screen.end()]) == collapsed(text)


@given(texts)
def test_nothing_is_left_that_a_terminal_would_obey(text: str) -> None:
    shown = collapsed(text)
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown) is None
    assert collapsed(shown) == shown


@given(st.text("ab \n\té漢😀"))
def test_text_without_codes_is_shown_as_it_is(text: str) -> None:
    screen = Screen()
    assert joined([*screen.write(text), *screen.end()]) == collapsed(text) == text


def test_a_display_begins_below_everything() -> None:
    screen = Screen()
    pieces = screen.write("one\ntwo\x1b[A\r")
    pieces += screen.write("shown", own_line=True)
    assert joined([*pieces, *screen.end()]) == "one\ntwo\nshown"


def test_what_is_held_is_bounded_whatever_comes() -> None:
    for piece in ("x" * 1_000, "x\n" * 500, "\x1b]" + "x" * 998, "\x1b[500C", "\r" + "x" * 999, "\x1b" * 1_000):
        screen, size = Screen(), 0
        for _ in range(3_000):
            size += sum(len(each or "") for each in screen.write(piece))
        assert sum(len(each or "") for each in screen.end()) <= 140_000
        assert size <= 3_100_000
