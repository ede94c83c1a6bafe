"""Values as bounded plain text. No display method of the user's decides whether a cell succeeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from IPython.lib.pretty import RepresentationPrinter

from .interrupt import FRAME, CellInterrupt, RenderTimeout, policy
from .names import type_name

#: Most characters of one value's text.
TEXT_LIMIT = 262_144

#: Seconds a display method of the user's may take.
TIME_LIMIT_S = 5.0

#: Seconds an image may take: a figure with much in it is drawn slowly.
IMAGE_LIMIT_S = 20.0

#: Numbers shown of a sequence of numbers.
_ROW = 1_000

#: Types whose representation runs no code of the user's.
_NUMBERS = (bool, int, float, complex, type(None))
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def text(value: Any, printers: dict[str, Any]) -> str:
    """Return the text of ``value`` as IPython would print it, in at most about :data:`TEXT_LIMIT` characters.

    Strings and bytes are cut before they are represented. Anything whose representation raises, takes longer than
    :data:`TIME_LIMIT_S` or is not text becomes ``<type; why>``.

    Args:
        printers: keyword arguments of :class:`RepresentationPrinter` with the registered pretty printers.
    """
    if type(value) in _PLAIN:
        return guarded(value, lambda: _plain(value))
    if type(value) in {list, tuple} and _is_row(value):
        return guarded(value, lambda: _row(value))
    if type(value) in {list, tuple, dict, set, frozenset} and _all_plain(value):
        return guarded(value, lambda: _pretty(value, {}))
    return guarded(value, lambda: _pretty(value, printers), TIME_LIMIT_S)


def guarded(value: Any, render: Callable[[], str], limit_s: float | None = None) -> str:
    """Return what ``render`` returns within ``limit_s`` seconds, or a stub that names the type and what went wrong."""
    try:
        if limit_s is None:
            return render()
        with policy.limited(limit_s):
            return render()
    except RenderTimeout:
        why = f"its representation took longer than {limit_s or TIME_LIMIT_S:g} s"
    except CellInterrupt:
        raise
    except BaseException as error:  # a sys.exit() in it, too, is no reason to end the cell
        if isinstance(error, KeyboardInterrupt) and policy.name != FRAME:
            raise  # this is how the host interrupts
        why = f"its representation raised {type(error).__name__}"
    return f"<{type_name(value)}; {why}>"


def _plain(value: Any) -> str:
    if type(value) in {str, bytes} and len(value) > TEXT_LIMIT:
        return f"{value[:TEXT_LIMIT]!r} ... {len(value) - TEXT_LIMIT:,} more; the value is in `_`"
    return repr(value)


def _is_row(value: Any) -> bool:
    """Tell whether a sequence holds numbers only, as far as it is shown: IPython would give each a line of its own."""
    return all(type(item) in _NUMBERS for item in value[:_ROW])


def _row(value: Any) -> str:
    text = repr(value[:_ROW])
    rest = len(value) - _ROW
    return text if rest <= 0 else f"{text[:-1]}, ... {rest:,} more; the value is in `_`{text[-1]}"


def _all_plain(value: Any) -> bool:
    """Tell whether a small container holds nothing but plain values, so that no guard of time is needed."""
    if len(value) > 200:
        return False
    items = [*value, *value.values()] if type(value) is dict else value
    return all(type(item) in _PLAIN and (type(item) not in {str, bytes} or len(item) < 1_000) for item in items)


class _Full(Exception):
    """The text has reached its limit."""


class _Bounded:
    """A text sink that gives up beyond :data:`TEXT_LIMIT` characters."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.size = 0

    def write(self, part: str) -> None:
        self.parts.append(part[: TEXT_LIMIT - self.size])
        self.size += len(part)
        if self.size > TEXT_LIMIT:
            raise _Full


def _pretty(value: Any, printers: dict[str, Any]) -> str:
    sink = _Bounded()
    printer = RepresentationPrinter(sink, max_width=100, **printers)
    try:
        printer.pretty(value)
        printer.flush()
    except _Full:
        sink.parts.append(" ... cut; the value is in `_`")
    return "".join(sink.parts)
