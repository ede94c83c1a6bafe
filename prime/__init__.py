"""prime-repl: an agent whose only tool is a persistent IPython kernel.

The names below are loaded when they are first used: the command line starts in a fraction of the time that the whole
package takes, most of which goes to HTTP and price libraries.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prime.agent import Answer
    from prime.errors import PrimeError
    from prime.faces import Agent, SyncAgent
    from prime.messages import Delta, ImagePart, Usage
    from prime.sessions import VERSION as __version__
    from prime.tools.base import tool
    from prime.tools.workspace import Workspace

__all__ = [
    "Agent",
    "Answer",
    "Delta",
    "ImagePart",
    "PrimeError",
    "SyncAgent",
    "Usage",
    "Workspace",
    "__version__",
    "tool",
]

_HOMES = {
    "Agent": ("prime.faces", "Agent"),
    "Answer": ("prime.agent", "Answer"),
    "Delta": ("prime.messages", "Delta"),
    "ImagePart": ("prime.messages", "ImagePart"),
    "PrimeError": ("prime.errors", "PrimeError"),
    "SyncAgent": ("prime.faces", "SyncAgent"),
    "Usage": ("prime.messages", "Usage"),
    "Workspace": ("prime.tools.workspace", "Workspace"),
    "__version__": ("prime.sessions", "VERSION"),
    "tool": ("prime.tools.base", "tool"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'prime' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value  # found without this function from now on
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
