"""What keys send."""

from __future__ import annotations

import pytest

from prime.errors import ToolFailed
from prime.terminals.keys import encoded


@pytest.mark.parametrize(
    ("key", "sent"),
    [
        ("enter", "\r"),
        ("Tab", "\t"),
        ("a", "a"),
        ("G", "G"),
        ("-", "-"),
        ("ctrl-c", "\x03"),
        ("Ctrl-Z", "\x1a"),
        ("ctrl-space", "\0"),
        ("alt-x", "\x1bx"),
        ("alt-X", "\x1bX"),
        ("alt-enter", "\x1b\r"),
        ("up", "\x1b[A"),
        ("ctrl-right", "\x1b[1;5C"),
        ("shift-alt-up", "\x1b[1;4A"),
        ("F1", "\x1bOP"),
        ("shift-f1", "\x1b[1;2P"),
        ("f5", "\x1b[15~"),
        ("ctrl-delete", "\x1b[3;5~"),
        ("shift-tab", "\x1b[Z"),
    ],
)
def test_keys_send_what_xterm_sends(key: str, sent: str) -> None:
    assert encoded(key, application=False) == sent


def test_application_keys_change_those_of_the_cursor_alone() -> None:
    assert encoded("up", application=True) == "\x1bOA"
    assert encoded("ctrl-up", application=True) == "\x1b[1;5A"
    assert encoded("pageup", application=True) == "\x1b[5~"


def test_a_wrong_name_gets_the_nearest() -> None:
    with pytest.raises(ToolFailed, match=r"'pagdown'.*pagedown"):
        encoded("pagdown", application=False)
