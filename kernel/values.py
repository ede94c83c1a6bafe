"""The door for values: arguments on their way out, results on their way in."""

from __future__ import annotations

import difflib
import os
from typing import Any

from .lossless import MAX_DEPTH, NotLossless, lossless


class Record(dict):  # type: ignore[type-arg]
    """A JSON object of a result: a dict whose members are also attributes.

    A member named like a dict method (``items``, ``keys``, ...) is reached by subscript only.
    """

    __slots__ = ("__weakref__",)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            pass
        near = difflib.get_close_matches(name, [key for key in self if isinstance(key, str)], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(map(repr, self)) or 'no fields'}"
        raise AttributeError(f"this record has no field {name!r}{hint}"[:500])

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(f"this record has no field {name!r}") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(key for key in self if isinstance(key, str) and key.isidentifier())]


def records(value: Any) -> Any:
    """Return a decoded JSON value with every object as a :class:`Record`."""
    kind = type(value)
    if kind is dict:
        return Record((key, records(item)) for key, item in value.items())
    if kind is list:
        return [records(item) for item in value]
    return value


def arguments(values: dict[str, Any]) -> dict[str, Any]:
    """Return call arguments as lossless JSON.

    Besides what :func:`lossless` accepts, a tuple becomes a list, an :class:`os.PathLike` the string of its path, and a
    :class:`Record` an object. Nothing else is converted.

    Raises:
        NotLossless: names the place in the arguments and what to write instead.
    """
    plain = {}
    for name, value in values.items():
        try:
            plain[name] = lossless(_coerced(value, 0))
        except NotLossless as error:
            raise NotLossless(f"{name}{error.path}", error.reason) from None
    return plain


def _coerced(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is str or kind is int or value is None or depth > MAX_DEPTH:
        return value  # too deep is refused by lossless(), with the place
    if kind is list or kind is tuple:
        return [_coerced(item, depth + 1) for item in value]
    if kind is dict or kind is Record:
        return {key: _coerced(item, depth + 1) for key, item in value.items()}
    if isinstance(value, os.PathLike):
        path = os.fspath(value)
        return path if isinstance(path, str) else os.fsdecode(path)
    return value
