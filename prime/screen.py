"""What a terminal would show of the text that programs write: progress bars in their last state, no colours. Pure.

The log keeps what was written; this is how models and people read it.
"""

from __future__ import annotations

import re

#: Lines above the cursor that can still be rewritten.
_LIVE_LINES = 64
#: Characters of a line that can still be rewritten; what is further to the left in a longer one is final.
_LIVE_COLUMNS = 16_384
#: Columns that one code may move the cursor to the right of what is written.
_REACH = 512
#: Characters of an unfinished code that are held back; a longer one is none.
_HELD = 4_096

_CODE = re.compile(
    r"\x1b\[(?P<numbers>[0-?]*)[ -/]*(?P<final>[@-~])"  # a control sequence
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # a string: a title, a hyperlink
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"  # any other
    r"|(?P<control>[\x00-\x08\x0b-\x1f\x7f-\x9f])"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?\Z")
_STRING = re.compile(r"\x1b[\]PX^_]")


class Screen:
    """A terminal of any height and width, written to piece by piece.

    Text that can no longer change leaves by :meth:`write`, so that memory is bounded whatever is written.
    """

    def __init__(self) -> None:
        self._lines = [""]
        self._redrawn: set[int] = set()  # rows whose trailing blanks may be left over from something longer
        self._row = self._column = 0
        self._held = ""
        self._wiped = False
        self._out: list[str | None] = []

    def write(self, text: str, *, own_line: bool = False) -> list[str | None]:
        """Write ``text``; ``own_line``: below everything else, as a display is.

        Returns the pieces that are final, in order. None among them means that the screen was cleared: whatever came
        before it is gone. A screen is cleared when something is written after the code, as notebooks do it.
        """
        if own_line:
            self._below()
        text, self._held = self._held + text, ""
        if (unfinished := _UNFINISHED.search(text, max(len(text) - _HELD, 0))) is not None:
            text, self._held = text[: unfinished.start()], unfinished[0]
        self._type(_COLOUR.sub("", text))  # most codes are these, and it is many times faster
        out, self._out = self._out, []
        return out

    def end(self) -> list[str | None]:
        """Return the rest, which is final now."""
        held, self._held = self._held, ""
        if _STRING.match(held):  # no string after all
            self._type(held[2:])
        self._settle(len(self._lines) - 1)
        out, self._out = [*self._out, self._line(0)], []
        return out

    def _type(self, text: str) -> None:
        place = 0
        for code in _CODE.finditer(text):
            self._put(text[place : code.start()])
            self._obey(code)
            place = code.end()
        self._put(text[place:])

    def _put(self, text: str) -> None:
        if not text:
            return
        self._wipe()
        while text and self._row < len(self._lines) - 1:
            line, end, text = text.partition("\n")
            self._overwrite(line)
            if end:
                self._row, self._column = self._row + 1, 0
        if not text:
            return
        line, end, text = text.partition("\n")
        self._overwrite(line)
        if end:
            self._append(text)
        if len(self._lines) > _LIVE_LINES:
            self._settle(len(self._lines) - _LIVE_LINES)
        if len(self._lines[self._row]) > 2 * _LIVE_COLUMNS:
            self._settle(self._row)
            line = self._lines[0]
            cut = len(line) - _LIVE_COLUMNS
            self._out.append(line[:cut])
            self._lines[0], self._column = line[cut:], max(self._column - cut, 0)

    def _wipe(self) -> None:
        """Clear the screen if that is due."""
        if self._wiped:
            self._wiped = False
            self._lines, self._row, self._column = [""], 0, 0
            self._redrawn.clear()
            self._out = [None]

    def _append(self, text: str) -> None:
        """Write lines below the last one."""
        first, *rest = text.rsplit("\n", _LIVE_LINES)
        if len(rest) == _LIVE_LINES:  # what is before them is not even split
            self._settle(len(self._lines) - 1)
            self._out += [f"{self._line(0)}\n", f"{first}\n"]
            self._lines = rest
            self._redrawn.clear()
        else:
            self._lines += [first, *rest]
        self._row, self._column = len(self._lines) - 1, len(self._lines[-1])

    def _overwrite(self, text: str) -> None:
        line, column = self._lines[self._row], self._column
        if column == len(line):
            self._lines[self._row] = line + text
        elif text:
            self._lines[self._row] = line[:column].ljust(column) + text + line[column + len(text) :]
            self._redrawn.add(self._row)
        self._column += len(text)

    def _settle(self, count: int) -> None:
        """Let the first ``count`` lines go."""
        if not count:
            return
        self._out.append("".join(f"{self._line(row)}\n" for row in range(count)))
        del self._lines[:count]
        self._redrawn = {row - count for row in self._redrawn if row >= count}
        self._row = max(self._row - count, 0)

    def _line(self, row: int) -> str:
        return self._lines[row].rstrip(" ") if row in self._redrawn else self._lines[row]

    def _below(self) -> None:
        self._wipe()
        self._row = len(self._lines) - 1
        self._column = len(self._lines[-1])
        if self._lines[-1]:
            self._put("\n")

    def _obey(self, code: re.Match[str]) -> None:
        if (control := code["control"]) is not None:
            self._control(control)
        elif code["final"] is not None:
            self._sequence(code["final"], code["numbers"])

    def _control(self, control: str) -> None:
        if control == "\r":
            self._column = 0
        elif control == "\b":
            self._column = max(self._column - 1, 0)
        elif control in "\v\f":
            self._put("\n")
        elif control not in "\a\x0e\x0f\x1b":
            self._put(chr(0x2400 + ord(control)) if control < " " else "␡" if control == "\x7f" else "�")

    def _sequence(self, final: str, numbers: str) -> None:
        first = numbers.partition(";")[0]
        given = int(first) if first.isdecimal() and len(first) < 6 else None
        count = given or 1
        match final:
            case "A" | "F":
                self._row = max(self._row - count, 0)
            case "B" | "E":
                self._row = min(self._row + count, len(self._lines) - 1)
            case "C":
                self._column = self._reached(self._column + count)
            case "D":
                self._column = max(self._column - count, 0)
            case "G":
                self._column = self._reached(count - 1)
            case "K":
                self._erase(given or 0)
            case "J" if not given:
                self._erase(0)
                del self._lines[self._row + 1 :]
            case "J" if given in (2, 3):
                self._wiped = True
        if final in "EF":
            self._column = 0

    def _reached(self, column: int) -> int:
        return min(column, len(self._lines[self._row]) + _REACH)

    def _erase(self, which: int) -> None:
        line, column = self._lines[self._row], self._column
        match which:
            case 0:
                line = line[:column]
            case 1:
                line = " " * min(column + 1, len(line)) + line[column + 1 :]
            case 2:
                line = ""
        self._lines[self._row] = line
        self._redrawn.add(self._row)


def collapsed(text: str) -> str:
    """Return what a terminal would show of ``text``: no control characters but tab and line end."""
    if _CODE.search(text) is None and "\x1b" not in text:
        return text
    screen = Screen()
    return joined([*screen.write(text), *screen.end()])


def joined(pieces: list[str | None]) -> str:
    """Return the pieces that a screen gave as one text."""
    start = max((place for place, piece in enumerate(pieces) if piece is None), default=-1) + 1
    return "".join(piece for piece in pieces[start:] if piece is not None)
