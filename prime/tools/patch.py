"""The grammar of patches: text to sections of hunks. Nothing here looks at a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prime.errors import ToolFailed

_BEGIN, _END, _END_OF_FILE = "*** Begin Patch", "*** End Patch", "*** End of File"
_ENVIRONMENT, _MOVE = "*** Environment ID:", "*** Move to:"
_HEADERS: dict[str, Operation] = {"*** Add File:": "add", "*** Delete File:": "delete", "*** Update File:": "update"}
_HEREDOC = ("<<EOF", "<<'EOF'", '<<"EOF"')

Operation = Literal["add", "delete", "update"]


@dataclass(frozen=True, slots=True)
class Hunk:
    """A change of one place.

    Attributes:
        number: from 1 in its section.
        context: a line of the file that the place comes after.
        lines: ``(sign, text)`` with the signs ``" "`` (stays), ``"-"`` (goes) and ``"+"`` (comes).
        at_end: whether it is the last lines of the file.
    """

    number: int
    context: str | None
    lines: tuple[tuple[str, str], ...]
    at_end: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """What becomes of one file. ``content`` is the text of an added one, ``move_to`` the new path of an updated one."""

    operation: Operation
    path: str
    content: str = ""
    move_to: str | None = None
    hunks: tuple[Hunk, ...] = ()


def parse(patch: str) -> tuple[Section, ...]:
    """Return the sections of a patch, in order.

    Raises:
        ToolFailed: ``invalid_patch``, naming the line of the patch.
    """
    return tuple(_Parser(patch).sections())


class _Parser:
    """A position in the lines between the first and the last marker."""

    def __init__(self, patch: str) -> None:
        text = patch.replace("\r\n", "\n")
        if "\r" in text:
            number = text.count("\n", 0, text.index("\r")) + 1
            raise _invalid(number, "it contains a carriage return that ends no line; change such a line with edit")
        lines = text.strip().split("\n")
        # of the line at position 0, from 1, as the caller counts
        self._first = text.count("\n", 0, len(text) - len(text.lstrip())) + 1
        if len(lines) >= 4 and lines[0] in _HEREDOC and lines[-1] == "EOF":
            lines, self._first = lines[1:-1], self._first + 1
        if lines[0].strip() != _BEGIN:
            raise _invalid(self._first, f"the first line must be {_BEGIN!r}, not {lines[0]!r:.80}")
        if len(lines) == 1 or lines[-1].strip() != _END:
            raise _invalid(self._first + len(lines) - 1, f"the last line must be {_END!r}, not {lines[-1]!r:.80}")
        self._lines, self._at, self._first = lines[1:-1], 0, self._first + 1

    def sections(self) -> list[Section]:
        if (environment := self._value(_ENVIRONMENT)) is not None:
            if not environment:
                raise self._wrong("the environment has no name")
            self._at += 1
        found = []
        while self._at < len(self._lines):
            found.append(self._section())
        if not found:
            raise self._wrong(
                "it changes nothing: there is no '*** Add File:', '*** Update File:' or '*** Delete File:'"
            )
        return found

    def _section(self) -> Section:
        for header, operation in _HEADERS.items():
            path = self._value(header)
            if path is None:
                continue
            if not path:
                raise self._wrong(f"there is no path after {header!r}")
            self._at += 1
            if operation == "add":
                return Section(operation, path, content=self._content(path))
            if operation == "delete":
                return Section(operation, path)
            move_to = self._value(_MOVE)
            if move_to is not None:
                if not move_to:
                    raise self._wrong(f"there is no path after {_MOVE!r}")
                self._at += 1
            return Section(operation, path, move_to=move_to, hunks=tuple(self._hunks(path)))
        raise self._wrong(
            "expected '*** Add File: PATH', '*** Update File: PATH' or '*** Delete File: PATH', "
            f"not {self._lines[self._at]!r:.80}"
        )

    def _content(self, path: str) -> str:
        lines = []
        while not self._is_header():
            line = self._lines[self._at]
            if not line.startswith("+"):
                raise self._wrong(f"every line of the new file {path} starts with '+', this is {line!r:.80}")
            lines.append(f"{line[1:]}\n")
            self._at += 1
        return "".join(lines)

    def _hunks(self, path: str) -> list[Hunk]:
        hunks: list[Hunk] = []
        while not self._is_header():
            hunks.append(self._hunk(path, len(hunks) + 1))
        if not hunks:
            raise self._wrong(
                f"the update of {path} has no hunk; to move a file only, give one of its lines as context"
            )
        return hunks

    def _hunk(self, path: str, number: int) -> Hunk:
        context, opening = None, self._lines[self._at]
        if (marked := opening.rstrip()) == "@@" or opening.startswith("@@ "):
            context = opening[3:] if marked != "@@" else None
            self._at += 1
        elif number > 1:
            raise self._wrong(f"hunk {number} of {path} starts with '@@', not with {opening!r:.80}")
        lines: list[tuple[str, str]] = []
        while not self._is_header():
            line = self._lines[self._at]
            if line.strip() == _END_OF_FILE and line[0] not in " +-":
                if not lines:
                    break  # an empty hunk, refused below
                self._at += 1
                return Hunk(number, context, tuple(lines), at_end=True)
            if line.rstrip() == "@@" or line.startswith("@@ "):
                break
            if line and line[0] not in " +-":
                raise self._wrong(f"a line of hunk {number} of {path} starts with ' ', '+' or '-', not {line!r:.80}")
            lines.append((line[:1] or " ", line[1:]))
            self._at += 1
        if not lines:
            raise self._wrong(f"hunk {number} of {path} is empty; give lines that start with ' ', '+' or '-'")
        return Hunk(number, context, tuple(lines))

    def _is_header(self) -> bool:
        """Return whether the next line starts a section, or there is none."""
        return self._at == len(self._lines) or any(self._value(header) is not None for header in _HEADERS)

    def _value(self, header: str) -> str | None:
        """Return what the next line has after ``header``, or None when it is not such a line."""
        line = self._lines[self._at] if self._at < len(self._lines) else ""
        if line[:1] in (" ", "+", "-") or not line.strip().startswith(header):
            return None
        return line.strip().removeprefix(header).strip()

    def _wrong(self, what: str) -> ToolFailed:
        return _invalid(self._first + min(self._at, len(self._lines)), what)


def _invalid(line: int, what: str) -> ToolFailed:
    return ToolFailed("invalid_patch", f"line {line} of the patch: {what}")
