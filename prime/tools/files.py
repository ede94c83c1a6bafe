"""Files on disk: finding one, replacing one in a single step, and saying what is wrong with one."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from prime.errors import ToolFailed
from prime.tools.signature import nearest
from prime.tools.workspace import Workspace

#: Bytes of a diff in a value; the rest is left out.
DIFF_LIMIT = 64 * 1024
#: Changed region, in lines of both sides, beyond which no line-by-line diff is made (its cost grows with the square).
_DIFF_LINES = 10_000
_CONTEXT = 3


@contextlib.contextmanager
def failures(name: str) -> Iterator[None]:
    """Turn the operating system's refusals inside the block into :class:`ToolFailed`."""
    try:
        yield
    except PermissionError:
        raise ToolFailed("denied", f"{name}: permission denied for the user this runs as") from None
    except OSError as error:
        raise ToolFailed("io_error", f"{name}: {error.strerror or error}") from None


def existing_file(workspace: Workspace, path: str) -> Path:
    """Return the absolute path of an existing regular file.

    Raises:
        ToolFailed: ``not_found`` (names the nearest), ``is_directory``, ``not_a_file`` or ``denied``.
    """
    found, name, mode = _existing(workspace, path)
    if stat.S_ISDIR(mode):
        raise ToolFailed("is_directory", f"{name} is a folder; list it with glob")
    if not stat.S_ISREG(mode):
        raise ToolFailed("not_a_file", f"{name} is a device, pipe or socket, not a file")
    return found


def existing_folder(workspace: Workspace, path: str, *, below: bool = False) -> Path:
    """Return the absolute path of an existing folder; with ``below``, of which everything in it is meant.

    Raises:
        ToolFailed: ``not_found`` (names the nearest), ``not_a_folder`` or ``denied``.
    """
    found, name, mode = _existing(workspace, path, below=below)
    if not stat.S_ISDIR(mode):
        raise ToolFailed("not_a_folder", f"{name} is not a folder; give the folder to look in")
    return found


def _existing(workspace: Workspace, path: str, *, below: bool = False) -> tuple[Path, str, int]:
    """Return the absolute path of something that exists, its name for people, and its mode."""
    found = workspace.resolve(path, below=below)
    name = workspace.name(found)
    with failures(name):
        try:
            mode = found.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            raise missing(workspace, found) from None
    return found, name, mode


def missing(workspace: Workspace, path: Path) -> ToolFailed:
    """Return the failure of a path that does not exist, with the nearest name or the folder that is missing too."""
    name = workspace.name(path)
    if path.is_symlink():
        return ToolFailed("not_found", f"{name} is a link to {os.readlink(path)}, which does not exist")
    folder = path.parent
    if not folder.is_dir():
        return ToolFailed("not_found", f"{name} does not exist, nor does the folder {workspace.name(folder)}")
    try:
        names = os.listdir(folder)
    except PermissionError:
        names = []  # no hint then: the missing file is the news
    close = nearest(path.name, names)
    return ToolFailed("not_found", f"{name} does not exist{close or '; find it with glob'}")


def replace(path: Path, data: bytes) -> None:
    """Write the file at ``path``, which is no link, so that every reader sees the old content or the new one, never a
    part.

    Its permissions are kept and, where allowed, its owner. Parent folders are made. A hard link to the old content
    keeps that.

    Raises:
        OSError: it could not be written; the old content stands.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = stage(path, data, like=path)
    try:
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def stage(target: Path, data: bytes, *, like: Path) -> Path:
    """Write ``data`` to the disk under another name beside ``target``, and return that; it is for renaming.

    It has the permissions of the file ``like`` and, where allowed, its owner, if there is such a file.

    Raises:
        OSError: it could not be written; nothing is left of it.
    """
    old = like.stat() if like.exists() else None
    draft = beside(target)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if old is not None:
                with contextlib.suppress(PermissionError):  # only a privileged user can keep another's ownership
                    os.fchown(file.fileno(), old.st_uid, old.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return draft


def beside(target: Path) -> Path:
    """Return a free hidden name in the folder of ``target``."""
    return target.parent / f".{secrets.token_hex(8)}.tmp"


def unified(before: str, after: str, name: str) -> str:
    """Return a unified diff of two texts, at most :data:`DIFF_LIMIT` bytes."""
    old, new = StringIO(before).readlines(), StringIO(after).readlines()  # str.splitlines splits at more than "\n"
    start = _common(old, new)
    end = min(_common(old[::-1], new[::-1]), min(len(old), len(new)) - start)
    first = max(0, start - _CONTEXT)
    last = max(0, end - _CONTEXT)
    old, new = old[first : len(old) - last], new[first : len(new) - last]
    header = f"--- {name}\n+++ {name}\n"
    if len(old) + len(new) > _DIFF_LINES:
        return f"{header}@@ {len(old):,} lines became {len(new):,} lines; too many to show @@\n"
    lines = list(difflib.unified_diff(old, new, n=_CONTEXT))[2:]
    shown, size = [header] if lines else [], 0
    for line in lines:
        moved = _moved(line, first) if line.startswith("@@") else line
        text = moved if moved.endswith("\n") else f"{moved}\n\\ No newline at end of file\n"
        size += len(text.encode())
        if size > DIFF_LIMIT:
            shown.append("@@ the rest of the diff is left out @@\n")
            break
        shown.append(text)
    return "".join(shown)


def _common(one: list[str], other: list[str]) -> int:
    pairs = zip(one, other, strict=False)
    return next((index for index, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))


def _moved(header: str, lines: int) -> str:
    return re.sub(r"([-+])(\d+)", lambda part: f"{part[1]}{int(part[2]) + lines}", header)
