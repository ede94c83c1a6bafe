"""Text as words: the same for what is indexed and for what is asked."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prime.store.words import MAX_TERMS, cut, folded, terms, unspaced


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("The PORT.", ("the", "port")),
        ("src/config.toml --port=80", ("src", "config.toml", "port", "80")),
        ("my_name 'my_name'", ("my_name",)),
        ("a needle", ("needle",)),
        ("x", ("x",)),
        ("部署参数", ("部署", "署参", "参数")),
        ("库", ("库",)),
        ("use数据here", ("use", "数据", "here")),
        ("😀 ... --", ()),
        ("", ()),
    ],
)
def test_terms_of_a_query(query: str, expected: tuple[str, ...]) -> None:
    assert terms(query) == expected


def test_runs_without_spaces_are_cut_into_pairs_and_the_last_character() -> None:
    assert cut("In 数据库.").split() == ["in", "数据", "据库", "库", "."]
    assert unspaced("数据")
    assert not unspaced("a数")


def test_very_long_queries_are_cut() -> None:
    assert len(terms(" ".join(f"word{number}" for number in range(200)))) == MAX_TERMS


@given(st.text())
@example("İstanbul")
def test_folding_keeps_every_character_at_its_place(text: str) -> None:
    assert len(folded(text)) == len(text)


@given(st.text(st.sampled_from("aB.-_ 数据é😀İß"), max_size=40))
def test_every_term_of_a_text_stands_in_it(text: str) -> None:
    assert all(term in folded(text) for term in terms(text))
