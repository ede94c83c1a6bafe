"""prime-repl: an agent whose only tool is a persistent IPython kernel.

The public names load when they are first used: a command that needs none of them starts without the kernel's and the
models' libraries (0.1 s where everything takes 1 s).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prime.agent import Answer
    from prime.app import Agent, SyncAgent
    from prime.errors import PrimeError
    from prime.messages import Delta, ImagePart, Usage
    from prime.sessions import VERSION as __version__
    from prime.tools import Workspace, tool

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
    "Agent": ("prime.app", "Agent"),
    "Answer": ("prime.agent", "Answer"),
    "Delta": ("prime.messages", "Delta"),
    "ImagePart": ("prime.messages", "ImagePart"),
    "PrimeError": ("prime.errors", "PrimeError"),
    "SyncAgent": ("prime.app", "SyncAgent"),
    "Usage": ("prime.messages", "Usage"),
    "Workspace": ("prime.tools", "Workspace"),
    "__version__": ("prime.sessions", "VERSION"),
    "tool": ("prime.tools", "tool"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    value = globals()[name] = getattr(import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
