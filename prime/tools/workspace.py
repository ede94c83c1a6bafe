"""Where tools act: the folder, the environment of commands, and which version of each file the agent has seen."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from weakref import WeakValueDictionary

from prime.errors import ToolFailed
from prime.gate import Rule
from prime.sandbox import OFF, Sandbox

#: One lock per real path for the whole process, because several agents may work in one folder.
_locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
_locks_guard = threading.Lock()

#: Hears of a write, as (name of the file, new text), before it is made; raises :class:`ToolFailed` when it may not be.
Permitted = Callable[[str, str], None]


def _everything(name: str, text: str) -> None:
    """Permit the write."""


class Workspace:
    """The part of the world an agent's tools act on.

    Attributes:
        cwd: the folder that relative paths start from, absolute.
        environment: the whole environment of commands; the host decides what is in it, nothing is added from its own.
        reach: gives the rule about a host of the network, None when there is none.
    """

    def __init__(
        self,
        cwd: str | os.PathLike[str],
        environment: Mapping[str, str] = MappingProxyType({}),
        sandbox: Sandbox = OFF,
        *,
        reach: Callable[[str], Rule | None] = lambda host: None,
        permitted: Permitted = _everything,
    ) -> None:
        self.cwd = Path(os.path.abspath(cwd))
        self.environment: Mapping[str, str] = MappingProxyType(dict(environment))
        self.reach = reach
        self._sandbox = sandbox
        self._permitted = permitted
        self._seen: dict[str, str] = {}

    def command(self, arguments: Sequence[str], folder: Path) -> list[str]:
        """Return the command that runs ``arguments`` for the agent in ``folder``, which :meth:`resolve` gave.

        Every process that acts for the agent is started with it, as the leader of its group (``start_new_session``) and
        with ``environment``: then it is in the sandbox, if there is one, and a signal to its group reaches it.
        """
        return self._sandbox.command(arguments, folder)

    def resolve(self, path: str, *, below: bool = False) -> Path:
        """Return the absolute path meant by ``path``: relative to ``cwd``, ``~`` expanded, symlinks left alone. With
        ``below``, everything in that folder is meant.

        Raises:
            ToolFailed: ``bad_path`` for a path that no file can have, ``denied`` for one that the sandbox hides.
        """
        if not path or "\0" in path:
            raise ToolFailed("bad_path", "the path is empty or contains a NUL character; give the path of a file")
        try:
            expanded = Path(path).expanduser()
        except RuntimeError:  # "~name" of a user that does not exist is an ordinary file name, as in a shell
            expanded = Path(path)
        found = self._sandbox.outside(Path(os.path.normpath(self.cwd / expanded)))
        self._sandbox.check(found, below=below)
        return found

    def name(self, path: Path) -> str:
        """Return the shortest text that :meth:`resolve` takes back to ``path``: relative when it is inside ``cwd``.

        A file name that is not UTF-8 cannot be carried in JSON; its odd bytes show as U+FFFD.
        """
        path = self._sandbox.inside(path)
        shown = str(path.relative_to(self.cwd)) if path.is_relative_to(self.cwd) else str(path)
        return os.fsencode(shown).decode(errors="replace")

    def saw(self, path: Path, digest: str) -> None:
        """Remember that the agent has read or written the version ``digest`` of the file."""
        self._seen[os.path.realpath(path)] = digest

    def expect(self, path: Path, digest: str) -> None:
        """Check that the version on disk is the one the agent has last seen.

        Raises:
            ToolFailed: ``unread`` when it never read the file, ``stale`` when the file changed since.
        """
        seen = self._seen.get(os.path.realpath(path))
        if seen is None:
            raise ToolFailed("unread", f"{self.name(path)} exists and was not read yet; read it first")
        if seen != digest:
            raise ToolFailed("stale", f"{self.name(path)} changed since it was read; read it again")

    def permit(self, path: Path, text: str) -> None:
        """Check that the file may get this content. Every tool that writes files asks before it writes any of them.

        Raises:
            ToolFailed: it may not.
        """
        self._permitted(self.name(path), text)

    @contextmanager
    def reading(self, path: Path) -> Iterator[Path]:
        """Give the path by which the file is read: what it leads to does not change within the block.

        Raises:
            ToolFailed: ``denied`` for a file that the sandbox hides.
        """
        with self._sandbox.pinned(path) as place:
            yield place

    @contextmanager
    def writing(self, path: Path) -> Iterator[Path]:
        """Keep every other writer of the same file out, whichever agent or thread it belongs to, and give the path by
        which it is read and written: that of the file itself, when ``path`` is a link to it.

        Raises:
            ToolFailed: ``denied`` for a file that the sandbox does not let change.
        """
        key = os.path.realpath(path)
        with _locks_guard:
            lock = _locks.setdefault(key, threading.Lock())
        with lock, self._sandbox.pinned(path, write=True) as place:
            yield place


def hasher() -> hashlib.blake2b:
    """Return an empty hash; the ``hexdigest`` of a file's bytes is its fingerprint."""
    return hashlib.blake2b(digest_size=16)


def fingerprint(data: bytes) -> str:
    """Return what stands for a file's content."""
    content = hasher()
    content.update(data)
    return content.hexdigest()
