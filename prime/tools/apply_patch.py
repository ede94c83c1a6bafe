"""``tools.apply_patch``: several files added, changed, moved and deleted, all or none."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from prime.errors import ToolFailed
from prime.messages import Frozen
from prime.tools.base import tool
from prime.tools.changes import Change, make
from prime.tools.files import existing_file, failures, missing, unified
from prime.tools.hunks import patched
from prime.tools.patch import Section, parse
from prime.tools.text import decode, unix
from prime.tools.workspace import Workspace, fingerprint

#: Characters of diffs that the model sees; it wrote the patch itself.
_SHOWN = 6_000


class PatchedFile(Frozen):
    """What a section of a patch did.

    Attributes:
        hunks: how many were applied.
        moved_from: the old path of a moved file.
    """

    path: str
    operation: Literal["add", "update", "delete", "move"]
    hunks: int
    moved_from: str | None = None
    diff: str


class Patched(Frozen):
    """The files of a patch, in its order; one that has several sections is there several times."""

    files: list[PatchedFile]


@dataclass(slots=True)
class _File:
    """A file while a patch is being planned: what it has on the disk, and what it will have. None: there is none."""

    name: str
    before: bytes | None
    after: bytes | None
    like: Path


def for_model(arguments: dict[str, Any], value: Any) -> str:
    """Return a line for each file, and the diffs of changed ones up to a limit."""
    lines, left = [], _SHOWN
    for index, file in enumerate(value["files"]):
        lines.append(_done(file))
        if file["operation"] in ("update", "move") and file["diff"]:
            fits = len(file["diff"]) <= left
            lines.append(file["diff"].rstrip("\n") if fits else f"(its diff is in .files[{index}].diff)")
            left -= len(file["diff"]) if fits else 0
    return "\n".join(lines)


def for_human(arguments: dict[str, Any], value: Any) -> str:
    """Return what was done to each file."""
    return "; ".join(map(_done, value["files"]))


def _done(file: dict[str, Any]) -> str:
    if file["moved_from"] is not None:
        return f"moved {file['moved_from']} to {file['path']}"
    return f"{ {'add': 'added', 'update': 'changed', 'delete': 'deleted'}[file['operation']] } {file['path']}"


@tool(for_model=for_model, for_human=for_human)
def apply_patch(workspace: Workspace, patch: str) -> Patched:
    """Add, change, move and delete several files in one step: all of it, or nothing when any part does not fit.

    The format, without line numbers:

        *** Begin Patch
        *** Add File: new.py
        +each line of it
        *** Update File: a.py
        *** Move to: b.py
        @@ def function():
         a line that stays
        -a line that goes
        +a line that comes
        *** Delete File: old.py
        *** End Patch

    `*** Move to:` and the text after `@@`, a line somewhere above the place, are optional. Give about three lines
    that stay around each change. `*** End of File` after a hunk ties it to the end. Files that exist must have been
    read before and not have changed since; they keep their encoding, newline style and permissions.
    """
    sections = parse(patch)
    wanted = (path for section in sections for path in (section.path, section.move_to) if path is not None)
    with ExitStack() as stack:
        plan = _Plan(
            workspace, {path: stack.enter_context(workspace.writing(path)) for path in _distinct(workspace, wanted)}
        )
        files = [plan.take(section) for section in sections]
        plan.permit()
        make(plan.changes())
        plan.saw()
    return Patched(files=files)


def _distinct(workspace: Workspace, paths: Iterable[str]) -> list[Path]:
    """Return the files behind the paths in one order for everybody, so that two patches never wait for each other."""
    return [Path(real) for real in sorted({os.path.realpath(workspace.resolve(path)) for path in paths})]


class _Plan:
    """The files of a patch as they will be after the sections that were taken, by their real paths. ``places`` are the
    paths by which those are read and written."""

    def __init__(self, workspace: Workspace, places: Mapping[Path, Path]) -> None:
        self._workspace = workspace
        self._places = places
        self._files: dict[Path, _File] = {}

    def take(self, section: Section) -> PatchedFile:
        """Plan a section. Nothing is written.

        Raises:
            ToolFailed: it does not fit.
        """
        target, name, file = self._file(section.path)
        if section.operation == "add":
            return self._add(section, name, file)
        if file.after is None:
            if file.before is None:
                raise missing(self._workspace, target)
            raise ToolFailed("not_found", f"{name} is deleted or moved by an earlier section of the patch")
        if (section.operation == "delete" or section.move_to is not None) and target.is_symlink():
            what = f"{name} is a link to {os.readlink(target)}"
            raise ToolFailed("not_a_file", f"{what}, which a patch cannot delete or move; name the file, or use bash")
        if section.operation == "delete":
            gone, file.after = file.after, None
            return PatchedFile(path=name, operation="delete", hunks=0, diff=_deleted(gone, name))
        return self._update(section, name, file)

    def changes(self) -> list[Change]:
        """Return what there is to do on the disk."""
        return [
            Change(self._places[path], file.name, file.before, file.after, self._places[file.like])
            for path, file in self._files.items()
            if file.before != file.after
        ]

    def permit(self) -> None:
        """Ask whether every file may get its new content.

        Raises:
            ToolFailed: one may not.
        """
        for file in self._files.values():
            if file.after is not None and file.after != file.before:
                path = self._workspace.resolve(file.name)
                self._workspace.permit(path, unix(decode(file.after, file.name).raw))

    def saw(self) -> None:
        """Remember the new versions as seen."""
        for path, file in self._files.items():
            if file.after is not None:
                self._workspace.saw(path, fingerprint(file.after))

    def _add(self, section: Section, name: str, file: _File) -> PatchedFile:
        if file.after is None:
            before, file.after = "", section.content.encode()
        else:
            old = decode(file.after, name)
            before = unix(old.raw)
            file.after = old.encode(section.content.replace("\n", old.newline), name)
        return PatchedFile(path=name, operation="add", hunks=0, diff=unified(before, section.content, name))

    def _update(self, section: Section, name: str, file: _File) -> PatchedFile:
        assert file.after is not None
        old = decode(file.after, name)
        raw = patched(old.raw, old.newline, section.hunks, name)
        data, hunks = old.encode(raw, name), len(section.hunks)
        if section.move_to is None:
            file.after = data
            diff = unified(unix(old.raw), unix(raw), name)
            return PatchedFile(path=name, operation="update", hunks=hunks, diff=diff)
        _, new_name, other = self._file(section.move_to)
        if other.after is not None:
            what = f"{name} cannot be moved to {new_name}, which exists"
            raise ToolFailed("exists", f"{what}; delete that in the same patch before, if it shall go")
        other.after, other.like, file.after = data, file.like, None
        diff = unified(unix(old.raw), unix(raw), new_name)
        return PatchedFile(path=new_name, operation="move", hunks=hunks, moved_from=name, diff=diff)

    def _file(self, path: str) -> tuple[Path, str, _File]:
        """Return where a file is, its name, and the file as it will be; read it when it is the first time.

        Raises:
            ToolFailed: there is something that is no file, or a version that the agent has not seen.
        """
        target = self._workspace.resolve(path)
        name, real = self._workspace.name(target), Path(os.path.realpath(target))
        if real not in self._files:
            if (place := self._places.get(real)) is None:
                raise ToolFailed("stale", f"{name} has just become another file; try again")
            before = None
            if target.exists():
                existing_file(self._workspace, path)
                with failures(name):
                    before = place.read_bytes()
            if before is not None:
                self._workspace.expect(target, fingerprint(before))
            self._files[real] = _File(name, before, before, real)
        return target, name, self._files[real]


def _deleted(data: bytes, name: str) -> str:
    try:
        return unified(unix(decode(data, name).raw), "", name)
    except ToolFailed:  # not text: its content is no matter of a diff
        return ""
