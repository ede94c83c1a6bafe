"""``tools.grep``: lines that match a regular expression.

The language is that of Python, as the ``regex`` package reads it (:mod:`re` can neither be stopped nor run beside the
event loop), whether or not ripgrep is there: ``rg``, when on the path, only says which files are worth looking at, and
only for patterns that mean the same to both; the lines are found here either way. What still differs: with ``rg`` a
file can be missed whose only match needs ``.`` to match a lone ``\\r``, or ``\\w`` to match (or not) a superscript.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import regex
from pydantic import Field

from prime.errors import ToolFailed
from prime.messages import Frozen
from prime.tools.base import tool
from prime.tools.files import failures, missing
from prime.tools.threads import abandoned, in_thread
from prime.tools.walk import Wildcard, is_left_out, walk
from prime.tools.workspace import Workspace

#: Characters of a line in a value; of a longer one, the part around the match.
LINE_LIMIT = 1_000
_MARGIN = 100
#: Seconds to try one line.
LINE_TIME_S = 2.0

#: Patterns that Python and ripgrep read alike: no look-around, back-references, flags, class operations or other
#: escapes than these. Any other pattern goes the pure Python way.
_SHARED = re.compile(
    r"""(?: \( (?:\?:)? (?!\?) | [|^$]
          | (?: [^\\\[\](){}*+?|^$\n] | \\[dDwWsSbBtrfv] | \\[!-/:;=?@\[-^`{-~]
              | \[ \^? (?: [^\\\[\]&~\n-] | \\[dDwWsS] | \\[!-/:;=?@\[-^`{-~] | (?<=\w)-(?=\w) )+ \]
              | \) )
            (?: (?: [*+?] | \{\d+(?:,\d*)?\} ) \??+ (?![*+?{]) )?
        )*+""",
    re.VERBOSE,
)
_RIPGREP = (
    *("--files-with-matches", "--null", "--crlf", "--no-mmap", "--no-messages", "--no-config", "--color=never"),
    *("--no-ignore-dot", "--no-ignore-exclude", "--no-ignore-global", "--no-ignore-files"),
)


class Match(Frozen):
    """A matching line, without its newline; ``line`` counts from 1."""

    path: str
    line: int
    text: str


class Matches(Frozen):
    """Matching lines by path and line; ``files`` counts the files they are in. ``truncated``: there are more."""

    matches: tuple[Match, ...]
    files: int
    truncated: bool


def _for_model(arguments: dict[str, Any], value: Any) -> str:
    shown: list[str] = []
    path = None
    for match in value["matches"]:
        if match["path"] != path:
            path = match["path"]
            shown.append(path)
        shown.append(f"  {match['line']}: {match['text']}")
    if value["truncated"]:
        shown.append("[there are more; narrow the pattern, path or glob, or raise limit]")
    return "\n".join(shown) or "[no match]"


def _for_human(arguments: dict[str, Any], value: Any) -> str:
    more = "+" if value["truncated"] else ""
    return f"grep {arguments['pattern']}: {len(value['matches']):,}{more} lines in {value['files']:,} files"


@tool(parallel=True, effects=False, for_model=_for_model, for_human=_for_human)
async def grep(
    workspace: Workspace,
    pattern: str,
    path: str = ".",
    glob: str | None = None,
    ignore_case: bool = False,
    literal: bool = False,
    limit: Annotated[int, Field(ge=1)] = 250,
) -> Matches:
    """Find lines that match a Python regular expression, in a file or in all files below a folder.

    Sorted by path and line. `glob` narrows the files ("*.py", "src/**/*.ts"); `literal` takes the pattern as plain
    text. Hidden, binary and .gitignore'd files are left out, unless `path` names one.
    """
    wanted = None if glob is None else Wildcard(glob)
    expression = _compile(pattern, ignore_case, literal)
    root = workspace.resolve(path, below=True)
    with failures(workspace.name(root)):
        try:
            mode = root.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            raise missing(workspace, root) from None
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise ToolFailed("not_a_file", f"{workspace.name(root)} is a device, pipe or socket, not a file")
    if stat.S_ISREG(mode):
        names: list[str] | None = [str(root)]
        wanted = None
    else:
        names = None
        if literal or _SHARED.fullmatch(pattern):
            options = ["--fixed-strings"] * literal + ["--ignore-case"] * ignore_case
            options += ["--no-ignore-parent"] * is_left_out(root)
            names = await _ripgrep(workspace, root, pattern, options)
    search = _Search(workspace, root, expression, limit)
    return await in_thread(functools.partial(search.run, names, wanted))


def _compile(pattern: str, ignore_case: bool, literal: bool) -> regex.Pattern[str]:
    if "\n" in pattern or (not literal and re.search(r"(?<!\\)(?:\\\\)*\\n", pattern)):
        raise ToolFailed("bad_pattern", "a pattern is matched within one line; leave the newline out")
    try:
        flags = regex.IGNORECASE if ignore_case else 0
        return regex.compile(regex.escape(pattern) if literal else pattern, flags)
    except (regex.error, RecursionError, OverflowError) as error:
        wanted = "mend it, or pass literal=True to find it as plain text"
        raise ToolFailed("bad_pattern", f"{pattern!r:.200} is not a regular expression: {error}; {wanted}") from None


async def _ripgrep(workspace: Workspace, root: Path, pattern: str, options: list[str]) -> list[str] | None:
    """Return the files below ``root`` that ripgrep finds worth looking at, or None when it cannot tell."""
    program = shutil.which("rg", path=workspace.environment.get("PATH", ""))
    if program is None:
        return None
    process = await asyncio.create_subprocess_exec(
        program,
        *_RIPGREP,
        *options,
        "--regexp",
        pattern,
        "--",
        str(root),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=dict(workspace.environment),
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode not in (0, 1) and not output:
        return None  # a pattern too large for it, or nothing readable: look for ourselves
    return sorted((os.fsdecode(name) for name in output.split(b"\0") if name), key=_order)


def _order(path: str) -> list[bytes]:
    return os.fsencode(path).split(b"/")


@dataclass
class _Search:
    """Collects matches, file by file, until there are more than ``limit``."""

    workspace: Workspace
    root: Path
    expression: regex.Pattern[str]
    limit: int
    found: list[Match] = field(default_factory=list)

    def __post_init__(self) -> None:
        # one repetition of one character cannot take for ever on a line; the guard costs 4 us a line, a search 0.5
        repeats = re.findall(r"(?<!\()[*+?{]|\)[*+?{]", self.expression.pattern)
        self._may_backtrack = len(repeats) > 1 or ")" in "".join(repeats)

    def run(self, names: list[str] | None, wanted: Wildcard | None) -> Matches:
        prefix = len(str(self.root).rstrip("/")) + 1
        for name in self._files() if names is None else names:
            if abandoned() or len(self.found) > self.limit:
                break
            if wanted is None or wanted.matches_anywhere(name[prefix:]):
                self._look_into(name)
        matches = tuple(self.found[: self.limit])
        files = len({match.path for match in matches})
        return Matches(matches=matches, files=files, truncated=len(self.found) > self.limit)

    def _files(self) -> Iterator[str]:
        return (entry.path for entry in walk(self.root) if entry.is_file(follow_symlinks=False))

    def _look_into(self, name: str) -> None:
        try:
            with self.workspace.reading(Path(name)) as place:
                with open(place, "rb") as file:
                    head = file.read(3)
                codec = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
                with open(place, encoding=codec, errors="replace", newline="\n") as lines:
                    self.found += self._matches(self.workspace.name(Path(name)), lines)
        except _Binary:
            return
        except OSError:
            return  # gone since it was listed, or not readable: passed over, as by ripgrep

    def _matches(self, path: str, lines: Iterable[str]) -> list[Match]:
        """Return the matches of one file, one more than could still be wanted at most."""
        found: list[Match] = []
        room = self.limit + 1 - len(self.found)
        for number, raw in enumerate(lines, 1):
            if "\0" in raw:
                raise _Binary
            if abandoned() or len(found) == room:
                break
            line = raw.removesuffix("\n").removesuffix("\r")
            if match := self._search(line, path, number):
                found.append(Match(path=path, line=number, text=_short(line, match.start())))
        return found

    def _search(self, line: str, path: str, number: int) -> regex.Match[str] | None:
        if not self._may_backtrack:
            return self.expression.search(line)
        try:
            return self.expression.search(line, timeout=LINE_TIME_S)
        except TimeoutError:
            where = f"line {number} of {path} for over {LINE_TIME_S:g} s"
            raise ToolFailed("too_slow", f"the pattern tries {where}; repeat fewer parts of it") from None


class _Binary(Exception):
    pass


def _short(line: str, start: int) -> str:
    """Return the line, or of a long one the part from just before ``start`` on."""
    if len(line) <= LINE_LIMIT:
        return line
    first = min(max(0, start - _MARGIN), len(line) - LINE_LIMIT)
    last = first + LINE_LIMIT
    return f"{'…' if first else ''}{line[first:last]}{'…' if last < len(line) else ''}"
