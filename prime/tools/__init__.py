"""Tools: ordinary functions with typed arguments that become callables of the cell."""

from prime.tools.base import Tool, tool
from prime.tools.workspace import Workspace

__all__ = ["Tool", "Workspace", "tool"]
