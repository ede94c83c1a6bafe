"""Walking a folder as ripgrep does: sorted, without hidden files and what ``.gitignore`` files leave out.

Rules, equal to those of ``rg`` with the options in ``grep.py``: in a Git repository, every ``.gitignore`` from the
file's folder up to the repository's root counts, the innermost first and its last matching line before the others;
``!`` lines also bring back hidden files; links are not followed; folders that may not be read are passed over. Whoever
names a folder that is left out itself means it: nothing above such a folder counts.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import bracex
from pathspec import GitIgnoreSpec
from wcmatch import glob as wildcards

from prime.errors import ToolFailed

#: Braces may expand to this many patterns.
_EXPANSIONS = 1000


@dataclass(frozen=True)
class _Rules:
    """The lines of one ``.gitignore``: last line first, and all of them in one expression that says no quickly."""

    folder: str
    lines: tuple[tuple[re.Pattern[str], bool], ...]
    any: re.Pattern[str]

    def ignores(self, path: str, is_folder: bool) -> bool | None:
        """Return whether the path is left out, or None when no line speaks of it."""
        name = path[len(self.folder) :].lstrip("/")
        if not self.any.search(f"{name}/" if is_folder else name):
            return None
        return next((ignored for line, ignored in self.lines if _speaks_of(line, name, is_folder)), None)


def _speaks_of(line: re.Pattern[str], name: str, is_folder: bool) -> bool:
    """Return whether a line means this path itself. Its group ``ps_d`` is the slash after the folder it matched: when
    that is not the last one, the line means a folder above the path, which was let in already."""
    match = line.search(name)
    if match and match.groupdict().get("ps_d") is None:
        return True
    if not is_folder or "ps_d" not in line.groupindex:
        return False
    return any(match.end("ps_d") == len(name) + 1 for match in line.finditer(f"{name}/"))


#: From the innermost folder outwards; None outside a repository, where such files mean nothing.
_Chain = tuple[_Rules, ...] | None


def walk(root: Path, *, hidden: bool = False, depth: int | None = None) -> Iterator[os.DirEntry[str]]:
    """Yield everything in ``root`` that is no folder, in the order of the path's parts (by their bytes).

    ``hidden`` lets hidden names in, ``.git`` folders excepted; ``depth`` is how many levels are looked at.
    """
    stack = [_entries(str(root), _chain(str(root), _outer(root)[0]), hidden)]
    while stack:
        found = next(stack[-1], None)
        if found is None:
            stack.pop()
        elif found[0].is_dir(follow_symlinks=False):
            if depth is None or len(stack) < depth:
                stack.append(_entries(found[0].path, _chain(found[0].path, found[1]), hidden))
        else:
            yield found[0]


def _entries(folder: str, chain: _Chain, hidden: bool) -> Iterator[tuple[os.DirEntry[str], _Chain]]:
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda entry: os.fsencode(entry.name))
    except (PermissionError, FileNotFoundError):
        return  # not readable, or gone since its name was read: nothing in it to find
    for entry in entries:
        ignored = _ignored(chain, entry.path, entry.is_dir(follow_symlinks=False))
        if ignored or (ignored is None and entry.name.startswith(".") and not (hidden and entry.name != ".git")):
            continue
        yield entry, chain


def _ignored(chain: _Chain, path: str, is_folder: bool) -> bool | None:
    return next((said for rules in chain or () if (said := rules.ignores(path, is_folder)) is not None), None)


def is_left_out(root: Path) -> bool:
    """Return whether the rules above ``root`` leave it out, or a folder it is in."""
    return _outer(root)[1]


def _outer(root: Path) -> tuple[_Chain, bool]:
    """Return the rules that stand above ``root``, and whether those that are there leave it out."""
    chain: _Chain = None
    for folder, inner in itertools.pairwise((*reversed(root.parents), root)):
        chain = _chain(str(folder), chain)
        if _ignored(chain, str(inner), is_folder=True):
            return (), True
    return chain, False


def _chain(folder: str, outer: _Chain) -> _Chain:
    """Return the rules in force inside ``folder``, given those outside."""
    if os.path.lexists(os.path.join(folder, ".git")):
        outer = ()
    if outer is None:
        return None
    try:
        text = Path(folder, ".gitignore").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return outer  # there is none, or none that may be read
    lines = tuple(_lines(text))[::-1]
    if not lines:
        return outer
    either = "|".join(f"(?:{line.pattern.replace('(?P<ps_d>/)', '/')})" for line, _ in lines)
    return (_Rules(folder, lines, re.compile(either)), *outer)


def _lines(text: str) -> Iterator[tuple[re.Pattern[str], bool]]:
    for line in text.splitlines():
        try:
            patterns = GitIgnoreSpec.from_lines([line]).patterns
        except ValueError:
            continue  # a line that is no pattern, such as a lone "!", means nothing to git either
        for pattern in patterns:
            if pattern.include is not None and pattern.regex is not None:
                yield pattern.regex, pattern.include


class Wildcard:
    """A file name pattern: ``*``, ``?``, ``[...]``, ``{a,b}``, and ``**`` for any number of folders.

    ``*`` and ``**`` do not match a leading dot; a pattern with a part that begins with one does (``hidden``).
    ``depth`` is how many levels it reaches down, None without bound.
    """

    def __init__(self, pattern: str) -> None:
        """Raises:
        ToolFailed: ``bad_pattern``.
        """
        if not pattern or pattern.startswith(("/", "~")) or ".." in pattern.split("/"):
            raise ToolFailed("bad_pattern", f"{pattern!r} must be relative; give the folder to look in as path")
        try:
            patterns = [item.removeprefix("./") for item in bracex.expand(pattern, limit=_EXPANSIONS)]
        except bracex.ExpansionLimitException:
            raise ToolFailed("bad_pattern", f"the braces of {pattern!r} stand for over {_EXPANSIONS:,} names") from None
        parts = [item.split("/") for item in patterns]
        self.hidden = any(part.startswith(".") for item in parts for part in item)
        self.depth = None if "**" in pattern else max(len(item) for item in parts)
        self._in_folders = any(len(item) > 1 for item in parts)
        self._matcher = wildcards.compile(patterns, flags=wildcards.GLOBSTAR)

    def matches(self, path: str) -> bool:
        """Return whether a path relative to the searched folder matches the whole pattern."""
        return self._matcher.match(path)

    def matches_anywhere(self, path: str) -> bool:
        """Like :meth:`matches`, but a pattern without ``/`` is held against the file's name alone."""
        return self.matches(path if self._in_folders else path.rpartition("/")[2])
