"""The calls that are printed for the model: read back as they were written."""

from __future__ import annotations

import pytest

from prime import locators


@pytest.mark.parametrize(
    "call",
    [
        locators.expand(12),
        locators.turn(3),
        locators.step(3, 1),
        locators.read(7),
        locators.read(7, 8_000, "20261201-x"),
        locators.browse(40),
        locators.browse(40, "a (quoted) ' \" \\ word) 数据"),
    ],
)
def test_a_printed_call_is_found_in_the_words_around_it(call: str) -> None:
    for text in (call, f"[... `await {call}` returns it ...]", f"see {call}, or ask ({call})"):
        assert locators.calls(text) == [call]


def test_signatures_and_prose_name_no_call() -> None:
    text = "history.turn(n: int) -> Told; history.expand(seq=q); myhistory.turn(1); history.turn (1); history.turn(\n1)"
    assert locators.calls(text) == []


def test_calls_come_in_order_and_once() -> None:
    assert locators.calls("history.turn(2) history.turn(1) history.turn(2)") == ["history.turn(2)", "history.turn(1)"]
