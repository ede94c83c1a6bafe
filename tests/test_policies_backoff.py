"""What is no longer folded, since it is mostly asked back."""

from __future__ import annotations

from typing import Any

import pytest

from prime import events as ev
from prime.messages import Message, TextPart
from prime.policies.backoff import Backoff, scope

Fact = tuple[str, Any, Any]


def fold(seq: int, of: str | None = "s") -> Fact:
    message = Message(role="tool", parts=(TextPart(text="short"),), call_id="c")
    event = ev.SurfaceReplaced(start=seq, end=seq, sources=(seq, 1_000), message=message, policy="fold", scope=of)
    return "fold", event, None


def asked(seq: int, **arguments: Any) -> Fact:
    return "expand", arguments, seq


def scopes(*facts: Fact) -> set[str]:
    """Return which of the scopes are left alone after this."""
    counted = Backoff()
    for kind, what, seq in facts:
        if kind == "fold":
            counted.fold(what)
        else:
            counted.expand(what, seq)
    return {of for of in ("s", "t") if counted.holds(of)}


def test_two_whole_expansions_of_half_the_folds_stop_a_scope_and_no_other() -> None:
    assert scopes(fold(10), fold(20), fold(30), fold(40), fold(50, "t"), asked(10), asked(20)) == {"s"}
    assert scopes(fold(10), fold(20), fold(30), fold(40), fold(50), asked(10), asked(20)) == set()
    assert scopes(fold(10), asked(10)) == set()


@pytest.mark.parametrize("others", [{"lines": "1-2"}, {"grep": "x"}])
def test_parts_do_not_count(others: dict[str, Any]) -> None:
    assert scopes(fold(10), fold(20), asked(10, **others), asked(20, **others)) == set()


def test_repetitions_and_other_entries_do_not_count() -> None:
    assert scopes(fold(10), fold(20), asked(10), asked(10), asked(11)) == set()
    assert scopes(fold(10), fold(20, None), asked(10), asked(20)) == set()


def test_a_scope_is_one_call_one_file_or_one_kind() -> None:
    assert scope("log", None, None) == "cell log"
    assert scope("log", "tools.read", {"path": "a" * 100}) == "tools.read " + "a" * 100
    one = scope("data", "tools.read", {"path": "a", "offset": 1})
    assert one == scope("log", "tools.read", {"offset": 9, "path": "a"}) != scope("data", "tools.read", {"path": "b"})
    bash = scope("log", "tools.bash", {"command": "x", "timeout": 1})
    assert bash == scope("log", "tools.bash", {"timeout": 1, "command": "x"})
    assert len(scope("log", "tools.bash", {"command": "x" * 10_000})) < 100
