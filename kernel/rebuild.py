"""What pickles call to make values again, and the unpickler that does it.

The names of this module are in stored snapshots: one that is changed or taken away makes values of older ones missing.
"""

from __future__ import annotations

import functools
import importlib
import pickle
import sys
import types
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any


class Unpickler(pickle.Unpickler):
    """Makes values again from what a :class:`Pickler` wrote."""

    def __init__(self, file: Any, marks: Mapping[str, Any]) -> None:
        super().__init__(file)
        self._marks = marks

    def persistent_load(self, name: Any) -> Any:
        if name not in self._marks:
            raise pickle.UnpicklingError(f"{name} is not there any more")
        return self._marks[name]

    def find_class(self, module: str, name: str) -> Any:
        if module == "__main__":  # what bears the name now is something else
            raise pickle.UnpicklingError(f"{name} was saved by its name only")
        return super().find_class(module, name)


def new_function(code: types.CodeType, names: dict[str, Any], cells: Any) -> types.FunctionType:
    return types.FunctionType(code, names, None, None, cells)


def fill_function(function: types.FunctionType, state: Any) -> None:
    attributes, own, contents = state
    for name, value in attributes.items():
        setattr(function, name, value)
    function.__dict__.update(own)
    for cell, value in contents:
        cell.cell_contents = value


def module_names(module: str) -> dict[str, Any]:
    return vars(importlib.import_module(module))


def import_module(name: str, parts: Iterable[str]) -> types.ModuleType:
    module = importlib.import_module(name)
    for part in parts:
        if part not in sys.modules:
            with suppress(Exception):  # a part that the module made by itself: then it does so again when it is used
                importlib.import_module(part)
    return module


def new_exception(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    # without the user's __init__, whose parameters may be others; what that had set is in the state
    error = kind.__new__(kind, *args)
    built_in = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    built_in.__init__(error, *args)  # type: ignore[misc]
    return error


def new_lru_cache(function: Any, maxsize: int | None, typed: bool) -> Any:
    return functools.lru_cache(maxsize, typed)(function)


def new_cached_property(function: Any, name: str | None) -> Any:
    made: Any = functools.cached_property(function)
    made.attrname = name
    return made


def new_dict_view(mapping: Any, name: str) -> Any:
    return getattr(mapping, name)()


def new_view(owner: Any, dtype: Any, shape: Any, start: int, strides: Any, writeable: bool) -> Any:
    ordered = owner if owner.flags.c_contiguous else owner.T
    array = type(owner)(shape, dtype, ordered.reshape(-1).view("u1"), start, strides)
    array.flags.writeable = writeable
    return array
