"""Text files as they are: their encoding, their newline style, and the way back to the same bytes."""

from __future__ import annotations

import codecs
import difflib
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from prime.errors import ToolFailed

#: Byte order marks and the codec each one means; UTF-32 first, because its mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
#: Bytes from which an encoding is guessed.
_SAMPLE = 256 * 1024
#: Bytes at the start of a file in which a NUL means that it is not text.
_HEAD = 64 * 1024
#: Lines among which the nearest to a missing text is looked for.
_SEARCHED = 20_000


@dataclass(frozen=True)
class Text:
    """A text file's content.

    Attributes:
        raw: the text with its newlines as they are, without the byte order mark.
        encoding: a Python codec.
        mark: the byte order mark, possibly empty.
    """

    raw: str
    encoding: str
    mark: bytes

    @property
    def newline(self) -> str:
        """The newline of most lines: ``"\\n"`` or ``"\\r\\n"``."""
        windows = self.raw.count("\r\n")
        return "\r\n" if windows > self.raw.count("\n") - windows else "\n"

    def encode(self, raw: str, name: str) -> bytes:
        """Return the bytes of this file with another text.

        Raises:
            ToolFailed: ``encoding`` when the file's encoding has no such character.
        """
        try:
            return self.mark + raw.encode(self.encoding)
        except UnicodeEncodeError as error:
            what = f"{raw[error.start]!r} does not exist in {self.encoding}, the encoding of {name}"
            raise ToolFailed("encoding", f"{what}; convert the file first, or use other characters") from None


def unix(text: str) -> str:
    """Return the text with ``\\n`` for every ``\\r\\n``. A lone ``\\r`` is part of its line."""
    return text.replace("\r\n", "\n")


def mark_of(head: bytes) -> tuple[bytes, str | None]:
    """Return the byte order mark that ``head`` starts with and the codec it means, or ``(b"", None)``."""
    return next(((mark, codec) for mark, codec in _MARKS if head.startswith(mark)), (b"", None))


def is_binary(head: bytes) -> bool:
    """Return whether the first bytes of a file without a byte order mark show that it is not text."""
    return b"\0" in head[:_HEAD]


def guess(data: bytes, position: int, name: str) -> str:
    """Return the likely codec of bytes that are not UTF-8 at ``position``.

    Raises:
        ToolFailed: ``binary`` when they look like no text at all.
    """
    # 3 MB that a session whose files are UTF-8 need not hold
    from charset_normalizer import from_bytes  # noqa: PLC0415

    start = max(0, position - _SAMPLE // 2)
    best = from_bytes(data[start : start + _SAMPLE]).best()
    if best is None:
        raise ToolFailed("binary", f"{name} is not text in any encoding; open it with a program that knows the format")
    return best.encoding


def decode(data: bytes, name: str) -> Text:
    """Return the text of a whole file, such that encoding it again gives the same bytes.

    Raises:
        ToolFailed: ``binary`` when it is no text, ``encoding`` when its encoding cannot be told well enough.
    """
    mark, codec = mark_of(data)
    if codec is None and is_binary(data):
        raise ToolFailed("binary", f"{name} is a binary file; change it with a program that knows the format")
    body = data[len(mark) :]
    try:
        return Text(body.decode(codec or "utf-8"), codec or "utf-8", mark)
    except UnicodeDecodeError as error:
        found = codec or guess(body, error.start, name)
    try:
        text = Text(body.decode(found), found, mark)
        if text.encode(text.raw, name) == data:
            return text
    except (UnicodeDecodeError, ToolFailed):
        pass  # falls through to the refusal: the guess does not lead back to the same bytes
    raise ToolFailed("encoding", f"{name} has bytes outside its encoding (likely {found}); change it with a program")


def occurrences(text: str, piece: str, *, overlapping: bool = False) -> list[int]:
    """Return the offsets of ``piece`` (not empty) in ``text``."""
    pattern = f"(?={re.escape(piece)})" if overlapping else re.escape(piece)
    return [match.start() for match in re.finditer(pattern, text)]


def replaced(raw: str, starts: Sequence[int], length: int, new: str) -> str:
    """Return ``raw`` with the pieces at ``starts`` (offsets and length after :func:`unix`) replaced by ``new``.

    Every other character, newlines included, stays as it is.
    """
    # where unix() took away a "\r": offsets of the "\n" that stayed
    taken = [match.start() - index for index, match in enumerate(re.finditer("\r\n", raw))]
    pieces, end = [], 0
    for start in starts:
        pieces += [raw[end : start + bisect_left(taken, start)], new]
        end = start + length + bisect_left(taken, start + length)
    return "".join([*pieces, raw[end:]])


def whereabouts(text: str, old: str) -> str:
    """Return in words where ``text``, which does not have ``old``, has the nearest to its first telling line."""
    wanted = next((line for line in unix(old).split("\n") if line.strip()), "")
    lines = text.split("\n")[:_SEARCHED]
    if wanted in lines:
        return f"; its first line is line {lines.index(wanted) + 1}, what follows differs"
    stripped = [line.strip() for line in lines]
    if wanted.strip() in stripped and wanted.strip():
        return f"; line {stripped.index(wanted.strip()) + 1} differs from it in white space only"
    close = difflib.get_close_matches(wanted.strip(), set(stripped), n=1)
    if not close:
        return "; read the file again"
    number = stripped.index(close[0]) + 1
    return f"; the nearest is line {number}: {lines[number - 1].strip()!r:.120}"
