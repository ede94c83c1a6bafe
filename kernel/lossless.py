"""The one rule for JSON values that cross a border or enter the log.

A value is *lossless* when writing it as JSON and reading it back gives an equal value of the same types, in any JSON
implementation with 64-bit integers. Both ends of the bridge and the log use this module, so there is one rule.
"""

from __future__ import annotations

import math
from typing import Any

#: Containers may nest this deep. The C encoder of the standard library gives up near the recursion limit and parsers
#: elsewhere much earlier (200 in jiter), so the border is well inside both.
MAX_DEPTH = 128

#: Integers that every 64-bit reader holds exactly.
MIN_INT, MAX_INT = -(2**63), 2**63 - 1


class NotLossless(ValueError):
    """A value that JSON cannot carry unchanged.

    Attributes:
        path: where in the value, as Python subscripts (``"['rows'][3]"``), empty for the value itself.
        reason: what is wrong there, in words for the person or model that wrote the value.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"at {path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


def lossless(value: Any) -> Any:
    """Return a deep copy of ``value`` made of fresh plain containers.

    Accepts exactly ``None``, ``bool``, ``int`` of 64 bits, finite ``float`` other than negative zero, ``str`` without
    lone surrogates, ``list``, and ``dict`` with ``str`` keys, nested at most :data:`MAX_DEPTH` deep. Subclasses are
    refused: what they add would be lost. A node that occurs twice is copied twice; a cycle is refused by its depth.

    Raises:
        NotLossless: for anything else; the argument is never changed.
    """
    return _copy(value, "", 0)


def _copy(value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        _check_text(value, path)
        return value
    if value is None or kind is bool:
        return value
    if kind is int:
        if not MIN_INT <= value <= MAX_INT:
            raise NotLossless(path, "an integer beyond 64 bits; pass it as a string")
        return value
    if kind is float:
        if not math.isfinite(value):
            raise NotLossless(path, f"{value} is not a JSON number")
        if value == 0 and math.copysign(1.0, value) < 0:
            raise NotLossless(path, "negative zero does not survive JSON")
        return value
    if kind is not list and kind is not dict:
        raise NotLossless(path, f"{kind.__name__} is not a JSON value; convert it first")
    if depth >= MAX_DEPTH:
        raise NotLossless(path[:80], f"nested deeper than {MAX_DEPTH} levels, or cyclic")
    if kind is list:
        return [_copy(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    copy = {}
    for key, item in value.items():
        if type(key) is not str:
            # by its type: the repr of a foreign key may raise
            raise NotLossless(path, f"a key of type {type(key).__name__}; keys are strings")
        _check_text(key, path)
        copy[key] = _copy(item, f"{path}[{key!r:.80}]", depth + 1)
    return copy


def _check_text(text: str, path: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise NotLossless(path, "text with a lone surrogate") from None
