"""The namespaces of a cell (``tools``, ``history``, ...), built from the host's bindings."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

from .bridge import Bridge, Call, ToolCallError
from .wire import Binding, Parameter


class Namespace:
    """A read-only group of host calls."""

    def __init__(self, name: str, members: dict[str, Callable[..., Call]]) -> None:
        object.__setattr__(self, "_name", name)
        self.__dict__.update(members)
        lines = [f"{name}.{member}{inspect.signature(call)}" for member, call in members.items()]
        object.__setattr__(self, "__doc__", "Host calls; await each for its value.\n\n" + "\n".join(lines))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # probes of IPython, copy, pickle
            raise AttributeError(name)
        near = difflib.get_close_matches(name, dir(self), n=1)
        hint = f"did you mean {self._name}.{near[0]}?" if near else f"it has {', '.join(dir(self))}"
        raise AttributeError(f"{self._name} has no {name!r}; {hint}")

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{self._name}.{name} is read-only; bind another name")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self._name}.{name} is read-only")

    def __dir__(self) -> list[str]:
        return [name for name in self.__dict__ if not name.startswith("_")]

    def __repr__(self) -> str:
        return f"<{self._name}: {', '.join(dir(self))}>"


def namespaces(bindings: tuple[Binding, ...], bridge: Bridge) -> dict[str, Namespace]:
    """Return the namespaces by name, in the order of the bindings."""
    groups: dict[str, dict[str, Callable[..., Call]]] = {}
    for binding in bindings:
        group, _, member = binding.target.partition(".")
        groups.setdefault(group, {})[member] = _function(binding, bridge)
    return {name: Namespace(name, members) for name, members in groups.items()}


def _function(binding: Binding, bridge: Bridge) -> Callable[..., Call]:
    signature = _signature(binding)
    target = binding.target

    def function(*args: Any, **kwargs: Any) -> Call:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            message = f"{target}: {error}; write {target}{signature.replace(return_annotation=signature.empty)}"
            raise ToolCallError(target, "bad_arguments", message) from None
        return bridge.submit(target, dict(bound.arguments))

    function.__name__ = target.rpartition(".")[2]
    function.__qualname__ = target
    function.__module__ = target.partition(".")[0]
    function.__doc__ = binding.doc
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _signature(binding: Binding) -> inspect.Signature:
    """Return the signature. Python wants parameters without a default first: one that comes later in the schema's order
    becomes keyword-only, and so do those behind it."""
    parameters = []
    keyword_only = defaults = False
    for parameter in binding.parameters:
        keyword_only = keyword_only or parameter.keyword_only or (defaults and parameter.default is None)
        defaults = defaults or parameter.default is not None
        parameters.append(_parameter(parameter, keyword_only))
    returns = _Source(binding.returns) if binding.returns else inspect.Signature.empty
    return inspect.Signature(parameters, return_annotation=returns)


def _parameter(parameter: Parameter, keyword_only: bool) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY if keyword_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
    empty = inspect.Parameter.empty
    return inspect.Parameter(
        parameter.name,
        kind,
        default=empty if parameter.default is None else _Source(parameter.default),
        annotation=_Source(parameter.annotation) if parameter.annotation else empty,
    )


class _Source(str):
    """Python source that a signature shows without quotes."""

    __slots__ = ()
    __repr__ = str.__str__
