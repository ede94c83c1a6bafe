"""prime-repl: an agent whose only tool is a persistent IPython kernel."""

from prime.agent import Answer
from prime.app import Agent, SyncAgent
from prime.errors import PrimeError
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
