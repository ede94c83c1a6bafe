"""Changes of several files that happen all or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from prime.errors import ToolFailed
from prime.tools.files import beside, replace, stage


@dataclass(frozen=True, slots=True)
class Change:
    """A file's next content.

    Attributes:
        path: the file itself, not a link to it.
        name: what messages call it.
        before, after: bytes; None where there is no file.
        like: the file whose permissions it takes.
    """

    path: Path
    name: str
    before: bytes | None
    after: bytes | None
    like: Path


def make(changes: Sequence[Change]) -> None:
    """Make all changes. Everything new is on the disk before the first file changes; missing folders are made.

    Raises:
        ToolFailed: a change could not be made. ``io_error``: everything is as it was; ``partial``: some of it could not
            be put back, which the message names.
    """
    removed: list[Path] = []
    stuck: list[str] = []
    name = ""
    try:
        with ExitStack() as undo:
            drafts: dict[Path, Path] = {}
            for change in changes:
                name = change.name
                if change.after is not None:
                    for folder in _missing(change.path.parent):
                        folder.mkdir()
                        undo.callback(_undone, folder.rmdir, str(folder), stuck)
                    drafts[change.path] = draft = stage(change.path, change.after, like=change.like)
                    undo.callback(draft.unlink, missing_ok=True)
            for change in changes:
                name = change.name
                action = _change(change, drafts.get(change.path), removed)
                undo.callback(_undone, action, name, stuck)
            undo.pop_all()
    except OSError as error:
        what = f"{name}: {error.strerror or error}"
        if stuck:
            raise ToolFailed("partial", f"{what}; changed and not put back: {', '.join(stuck)}") from error
        raise ToolFailed("io_error", f"{what}; nothing was changed") from error
    for aside in removed:
        aside.unlink(missing_ok=True)


def _undone(action: Callable[[], object], name: str, stuck: list[str]) -> None:
    try:
        action()
    except OSError as error:
        stuck.append(f"{name} ({error.strerror or error})")


def _change(change: Change, draft: Path | None, removed: list[Path]) -> Callable[[], object]:
    """Make one change and return what undoes it. What takes the place of a removed file is added to ``removed``."""
    path, before = change.path, change.before
    if draft is None:
        aside = beside(path)
        path.rename(aside)
        removed.append(aside)
        return lambda: aside.rename(path)
    if before is None:
        draft.rename(path)
        return path.unlink
    draft.replace(path)
    return lambda: replace(path, before)


def _missing(folder: Path) -> list[Path]:
    """Return the folders that do not exist on the way to ``folder``, the outermost first."""
    return [each for each in reversed((folder, *folder.parents)) if not each.exists()]
