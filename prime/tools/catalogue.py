"""Which tools there are. To add a built-in one: one file here and one row in :data:`BUILTIN`."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator

from prime_kernel.wire import Binding

from prime.errors import ConfigError, ToolFailed
from prime.tools.apply_patch import apply_patch
from prime.tools.base import Tool
from prime.tools.bash import bash
from prime.tools.edit import edit
from prime.tools.fetch import fetch
from prime.tools.glob import glob
from prime.tools.grep import grep
from prime.tools.read import read
from prime.tools.signature import nearest
from prime.tools.write import write

BUILTIN: tuple[Tool, ...] = (
    apply_patch,
    bash,
    edit,
    fetch,
    glob,
    grep,
    read,
    write,
)


#: Namespaces whose calls change nothing outside the session and its family; nobody is kept from them.
INNER = ("agents", "context", "history", "notes")


class Catalogue:
    """The callables of one agent, ordered by target. Immutable."""

    def __init__(self, tools: Iterable[Tool], allowed: Collection[str] | None = None) -> None:
        """``allowed`` are the targets that may be called beside those of :data:`INNER`, None for all. The others are
        there too, so that agents with different rights have the same prompt; calling them fails.

        Raises:
            ConfigError: when two tools have the same target.
        """
        ordered = sorted(tools, key=lambda item: item.target)
        for one, other in itertools.pairwise(ordered):
            if one.target == other.target:
                raise ConfigError(f"two tools are called {one.target}; give one of them another name")
        self._tools = {item.target: item for item in ordered}
        self._allowed = allowed

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def get(self, target: str) -> Tool:
        """Return the tool of that target.

        Raises:
            ToolFailed: ``unknown_tool``, naming the nearest, or ``not_allowed``.
        """
        found = self._tools.get(target)
        if found is None:
            close = nearest(target, list(self._tools))
            raise ToolFailed("unknown_tool", f"there is no {target}{close or '; see help(tools) for what there is'}")
        if self._allowed is not None and target not in self._allowed and target.partition(".")[0] not in INNER:
            given = ", ".join(sorted(self._allowed)) or "none"
            raise ToolFailed("not_allowed", f"{target} was not given to this agent, which may call: {given}")
        return found

    def bindings(self) -> tuple[Binding, ...]:
        """Return what the kernel needs to offer them, in order."""
        return tuple(item.binding() for item in self)

    def waits(self) -> frozenset[str]:
        """Return the targets of those that wait for what has limits of its own."""
        return frozenset(item.target for item in self if item.waits)
