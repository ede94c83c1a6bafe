"""What the calls on terminals give back, and how the model reads it. Pure."""

from __future__ import annotations

from typing import Any, Literal

from prime.messages import Frozen


class Opened(Frozen):
    """A terminal whose program runs now."""

    terminal_id: int
    pid: int


class Sent(Frozen):
    """So many bytes were typed."""

    sent: int


class TerminalInfo(Frozen):
    """A terminal. ``state`` is ``running``, or what ended it (:data:`prime.job_events.JobEnd`). ``exit_code`` is None
    while its program runs, and when a signal ended it, which ``signal`` then names."""

    terminal_id: int
    name: str
    command: str
    state: str
    exit_code: int | None
    signal: str | None


class TerminalList(Frozen):
    """The terminals of the session, in the order in which they were opened."""

    terminals: tuple[TerminalInfo, ...]


class Shown(Frozen):
    """What a terminal shows.

    Attributes:
        screen: the screen as text, without what is empty at its end.
        scrolled: the lines that have left it at the top since it was last read.
        left_out: whether earlier ones are gone, which begins at about 4,500 lines.
        row, col: where the cursor is, from 0.
        alternate: whether a program fills the screen, such as an editor; nothing scrolls then.
        waited: what ended the waiting.
    """

    terminal_id: int
    state: str
    exit_code: int | None
    signal: str | None
    screen: str
    scrolled: str
    left_out: bool
    row: int
    col: int
    rows: int
    cols: int
    title: str
    alternate: bool
    waited: Literal["quiet", "matched", "time", "ended"]


def shown_text(arguments: dict[str, Any], value: Any) -> str:
    """Return what the model sees of :class:`Shown`."""
    gone = "[earlier lines are gone]" if value["left_out"] else ""
    standing = f"terminal {value['terminal_id']}: {_standing(value)}"
    place = f"{value['rows']}x{value['cols']}, cursor at row {value['row']}, column {value['col']}, {value['waited']}"
    return "\n".join(filter(None, (gone, value["scrolled"], value["screen"], f"[{standing}, {place}]")))


def info_text(arguments: dict[str, Any], value: Any) -> str:
    """Return what the model sees of :class:`TerminalInfo`."""
    name = f" ({value['name']})" if value["name"] else ""
    return f"terminal {value['terminal_id']}{name}: {_standing(value)}: {value['command']}"


def list_text(arguments: dict[str, Any], value: Any) -> str:
    """Return what the model sees of :class:`TerminalList`."""
    return "\n".join(info_text({}, each) for each in value["terminals"]) or "no terminals yet"


def _standing(value: Any) -> str:
    ended = f"ended by {value['signal']}" if value["signal"] else f"exit code {value['exit_code']}"
    return {"running": "running", "exited": ended, "lost": "lost"}.get(value["state"], f"{value['state']}, {ended}")
