"""The names a cell binds: the difference of the namespace before and after it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from .wire import Name

#: What a type is called, past whatever its metaclass has to say about that.
_MODULE = type.__dict__["__module__"].__get__
_QUALNAME = type.__dict__["__qualname__"].__get__

#: Names of Python's and IPython's own: ``__name__``, ``_i``, ``_dh``, ``_12``; and ours for a command's exit code.
_INTERPRETERS = re.compile(r"__.*|_(i+|dh|ih|oh|i?\d+|exit_code)")


class Names:
    """A picture of a namespace, by identity.

    It holds no reference to the values: that would keep alive what the cell deletes. A name rebound to a new object at
    the address of the old one therefore looks unchanged.
    """

    def __init__(self, namespace: Mapping[str, Any], hidden: Mapping[str, Any], own: Collection[str]) -> None:
        """``hidden`` are the interpreter's own names and values, ``own`` the names this package puts there."""
        self._hidden = hidden
        self._own = own
        self._before = _identities(namespace)

    def difference(self, namespace: Mapping[str, Any]) -> tuple[tuple[Name, ...], tuple[str, ...]]:
        """Return the names set (with their types) and removed since the picture was taken, each in order of binding."""
        before, after = self._before, _identities(namespace)
        changed = tuple(
            Name(name, type_name(namespace[name]))
            for name, identity in after.items()
            if before.get(name) != identity and self._counts(name, identity) and name in namespace
        )
        gone = (name for name in before if name not in after)
        return changed, tuple(name for name in gone if self._counts(name, before[name]))

    def _counts(self, name: Any, identity: int) -> bool:
        return counts(name, identity, self._hidden, self._own)


def counts(name: Any, identity: int, hidden: Mapping[str, Any], own: Collection[str]) -> bool:
    """Tell whether ``name``, bound to the object of that ``id``, is one that a program of the user's has bound."""
    # `globals()["no name"] = 1` binds what no program can write, and maybe what no message can carry
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_") or name in own:
        return False
    return not (name in hidden and id(hidden[name]) == identity)


def alive(namespace: Mapping[str, Any], hidden: Mapping[str, Any], own: Collection[str]) -> list[str]:
    """Return the names that a program of the user's has bound, in order of binding, also those that begin with one
    underscore, on which its functions may depend. ``hidden`` and ``own`` are as in :class:`Names`."""
    return [
        name
        for name, identity in _identities(namespace).items()
        if isinstance(name, str)
        and not _INTERPRETERS.fullmatch(name)
        and counts(name.lstrip("_"), identity, {}, own)
        and not (name in hidden and id(hidden[name]) == identity)
    ]


def _identities(namespace: Mapping[str, Any]) -> dict[str, int]:
    values = dict(namespace)  # at once: a thread of the user's may bind a name meanwhile
    return dict(zip(values, map(id, values.values()), strict=True))


def is_builtin(value: Any) -> bool:
    """Tell whether a value's type is one of the interpreter's own."""
    try:
        return bool(_MODULE(type(value)) == "builtins")
    except AttributeError:
        return False


def type_name(value: Any) -> str:
    """Return the type's qualified name, without ``builtins.``. No code of the user's is run for it."""
    kind = type(value)
    try:
        module, name = _MODULE(kind), _QUALNAME(kind)
    except AttributeError:  # a class without a module
        return "object"
    if type(module) is not str:
        return "object"
    text = str(name) if module in ("builtins", "__main__") else f"{module}.{name}"
    return text.encode(errors="backslashreplace").decode()
