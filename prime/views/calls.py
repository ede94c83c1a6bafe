"""A host call in one line, for people. Pure."""

from __future__ import annotations

from typing import Any

from prime.views.transcript import Call, one_line

#: Characters of one argument, and of a whole call.
_ARGUMENT, _WHOLE = 60, 160


def described(call: Call) -> str:
    """Return what was called and how it went: ``tools.read(path='a') 12 ms``."""
    return one_line(f"{called(call.target, call.arguments)} {_outcome(call)}".rstrip(), _WHOLE)


def called(target: str, arguments: Any) -> str:
    """Return a call as source, long arguments cut."""
    shown = (f"{name}={one_line(repr(value), _ARGUMENT)}" for name, value in arguments.items())
    return f"{target}({', '.join(shown)})"


def condensed(targets: list[str]) -> str:
    """Return many calls in one line, counted by target: ``read ×40, grep``. ``tools.`` goes without saying."""
    counts: dict[str, int] = {}
    for target in targets:
        name = target.removeprefix("tools.")
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in counts.items())


def _outcome(call: Call) -> str:
    if call.ended is None:
        return "not over"
    if call.ended.error is not None:
        return f"failed: {call.ended.error.code}: {call.ended.error.message}"
    return duration(call.ended.duration_s)


def duration(seconds: float) -> str:
    """Return a time for people."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
