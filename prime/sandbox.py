"""What the agent's processes, and the tools that act for it, may see and change of this machine.

A :class:`Sandbox` is asked in two places: whatever starts a process for the agent passes its command through
:meth:`Sandbox.command`, and whatever touches a file for it asks :meth:`Sandbox.outside`, :meth:`Sandbox.check`
and :meth:`Sandbox.pinned`, so that tools in the host have the view that cells have.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Literal, Protocol

#: ``net-off``: the file system as it is, but no network and no processes of others. ``full``: also no writing outside
#: the workspace, and no sight of the home folder.
Level = Literal["off", "net-off", "full"]


class Sandbox(Protocol):
    """A view of the machine. Paths *inside* are those that the agent uses, paths *outside* those of the host.

    Attributes:
        level: what is really in force.
        network: whether what runs inside reaches the network.
    """

    @property
    def level(self) -> Level: ...

    @property
    def network(self) -> bool: ...

    def command(self, arguments: Sequence[str], cwd: Path, shared: Sequence[Path] = ()) -> list[str]:
        """Return the command that runs ``arguments`` inside, in the folder ``cwd`` (outside).

        Its process leads the group that the command is in: a signal to the group reaches the command, and SIGKILL to
        it ends everything inside. ``shared``: further folders that can be written on both sides.
        """
        ...

    def environment(self, variables: Mapping[str, str]) -> Mapping[str, str]:
        """Return the environment of processes inside, made of the one that they would have without a sandbox."""
        ...

    def outside(self, path: Path) -> Path:
        """Return where the host finds what is called ``path`` inside."""
        ...

    def inside(self, path: Path) -> Path:
        """Return what is called inside what the host finds at ``path``."""
        ...

    def check(self, path: Path, *, write: bool = False, below: bool = False) -> None:
        """Check that what the host finds at ``path``, links followed, can be read inside, or also written; with
        ``below``, that the same holds for everything below it.

        Raises:
            ToolFailed: ``denied``.
        """
        ...

    def pinned(self, path: Path, *, write: bool = False) -> AbstractContextManager[Path]:
        """Give, for the block, a path to the file that is at ``path`` now, links followed, which leads nowhere else
        whatever becomes of the folders and links on the way: what was checked is what is used. With ``write`` it is a
        path for changing or replacing the file, or making it.

        Raises:
            ToolFailed: ``denied``.
            OSError: there is none.
        """
        ...


class _Off:
    """No sandbox: everything is as it is for the host."""

    level: Level = "off"
    network = True

    def command(self, arguments: Sequence[str], cwd: Path, shared: Sequence[Path] = ()) -> list[str]:
        return [*arguments]

    def environment(self, variables: Mapping[str, str]) -> Mapping[str, str]:
        return variables

    def outside(self, path: Path) -> Path:
        return path

    def inside(self, path: Path) -> Path:
        return path

    def check(self, path: Path, *, write: bool = False, below: bool = False) -> None:
        pass

    @contextmanager
    def pinned(self, path: Path, *, write: bool = False) -> Iterator[Path]:
        yield Path(os.path.realpath(path))  # nobody else but the user could put something in its place


#: What there is without a sandbox.
OFF: Sandbox = _Off()
