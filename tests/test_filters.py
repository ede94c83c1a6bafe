"""Parts of a text by line numbers or a pattern."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prime.errors import ToolFailed
from prime.filters import MATCHES, filtered, lines_of


@given(st.text(st.sampled_from("ab\n\r\u2028😀"), max_size=60), st.integers(1, 20))
def test_line_ranges_put_together_are_the_whole(text: str, size: int) -> None:
    every = lines_of(text)
    parts = [filtered(text, f"{start}-{start + size - 1}", None) for start in range(1, len(every) + 1, size)]
    assert "\n".join(parts) == text.removesuffix("\n")


def test_many_matches_are_cut_and_counted() -> None:
    found = filtered("hit\n" * 500, None, "HIT").split("\n")
    assert found[0] == f"500 of 500 lines match 'HIT', the first {MATCHES} are shown"
    assert found[MATCHES] == f"{MATCHES}: hit"
    assert len(found) == 1 + MATCHES + 2  # and what stands around the last


def test_matches_far_apart_have_a_gap_between() -> None:
    text = "\n".join("x" if number in (1, 10) else "." for number in range(12))
    shown = "2 of 12 lines match 'x'\n1- .\n2: x\n3- .\n4- .\n...\n9- .\n10- .\n11: x\n12- ."
    assert filtered(text, None, "x") == shown


def test_an_empty_text_has_no_lines() -> None:
    assert filtered("", None, None) == ""
    assert filtered("", None, "x") == "0 of 0 lines match 'x'"
    with pytest.raises(ToolFailed, match="the text has 0"):
        filtered("", "1", None)
