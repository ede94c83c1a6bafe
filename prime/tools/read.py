"""``tools.read``: a window of a text file, or a picture."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from pydantic import Field

from prime.errors import ToolFailed
from prime.messages import Frozen
from prime.tools.base import tool
from prime.tools.files import existing_file, failures
from prime.tools.text import guess, is_binary, mark_of
from prime.tools.workspace import Workspace, fingerprint, hasher

#: Bytes of text in one value.
TEXT_LIMIT = 256 * 1024
#: Bytes of one picture: 5 MB when written as base64, the smallest limit among the providers.
IMAGE_LIMIT = 3_750_000
_CHUNK = 1024 * 1024
_SIGNATURES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


class TextWindow(Frozen):
    """Some lines of a text file, newlines as ``\\n``. ``truncated``: the file has more after them."""

    path: str
    text: str
    offset: int
    line_count: int
    total_lines: int
    truncated: bool
    encoding: str


class Picture(Frozen):
    """An image file; ``image`` is base64, ``bytes`` the file's size."""

    path: str
    media_type: str
    bytes: int
    image: str


def _for_model(arguments: dict[str, Any], value: Any) -> str:
    if "image" in value:
        return f"{value['path']}: {value['media_type']}, {value['bytes']:,} bytes"
    first, count, total = value["offset"], value["line_count"], value["total_lines"]
    if not count:
        return f"[{value['path']} has {total:,} lines, none from line {first:,} on]"
    lines = value["text"].removesuffix("\n").split("\n")
    text = "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, first))
    if not value["truncated"]:
        return text
    if not value["text"].endswith("\n"):
        return (
            f"{text}\n[line {first + count - 1:,} of {total:,} is cut after {TEXT_LIMIT:,} bytes; read it in a program]"
        )
    return f"{text}\n[lines {first:,}-{first + count - 1:,} of {total:,}; go on with offset={first + count}]"


def _for_human(arguments: dict[str, Any], value: Any) -> str:
    if "image" in value:
        return f"read {value['path']} ({value['media_type']}, {value['bytes']:,} bytes)"
    last = value["offset"] + value["line_count"] - 1
    return f"read {value['path']} (lines {value['offset']:,}-{last:,} of {value['total_lines']:,})"


@tool(parallel=True, effects=False, for_model=_for_model, for_human=_for_human)
def read(
    workspace: Workspace,
    path: str,
    offset: Annotated[int, Field(ge=1)] = 1,
    limit: Annotated[int, Field(ge=1)] = 2000,
) -> TextWindow | Picture:
    """Read a text file by lines, or an image.

    Gives `limit` lines from line `offset` (1-based) on, at most 256 KiB; `truncated` says that there is more: go on
    with offset + line_count. Newlines are given as \\n. PNG, JPEG, GIF and WebP files give the picture itself.
    """
    found = existing_file(workspace, path)
    name = workspace.name(found)
    with failures(name), workspace.reading(found) as place:
        with place.open("rb") as file:
            head = file.read(_CHUNK)
        media_type = _media_type(head)
        if media_type is not None:
            picture, digest = _picture(place, name, media_type)
            workspace.saw(found, digest)
            return picture
        mark, codec = mark_of(head)
        if codec is None and is_binary(head):
            raise ToolFailed("binary", f"{name} is a binary file; open it with a program that knows the format")
        try:
            window, digest = _scan(place, codec or "utf-8", len(mark), (offset, limit))
        except _Undecodable as error:
            codec = codec or guess(error.data, error.position, name)
            window, digest = _scan(place, codec, len(mark), (offset, limit), errors="replace")
    workspace.saw(found, digest)
    return TextWindow(
        path=name,
        text="".join(window.parts),
        offset=offset,
        line_count=window.count,
        total_lines=window.total,
        truncated=window.cut or offset + window.count <= window.total,
        encoding=codec or "utf-8",
    )


def _media_type(head: bytes) -> str | None:
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for signature, media_type in _SIGNATURES if head.startswith(signature)), None)


def _picture(path: Path, name: str, media_type: str) -> tuple[Picture, str]:
    size = path.stat().st_size
    if size > IMAGE_LIMIT:
        raise ToolFailed("too_large", f"{name} has {size:,} bytes, over the {IMAGE_LIMIT:,} of a picture; shrink it")
    data = path.read_bytes()
    picture = Picture(path=name, media_type=media_type, bytes=len(data), image=base64.b64encode(data).decode())
    return picture, fingerprint(data)


class _Undecodable(Exception):
    def __init__(self, data: bytes, position: int) -> None:
        super().__init__(position)
        self.data, self.position = data, position


class _Window:
    """The wanted lines of a text that arrives in pieces, and the count of all lines."""

    def __init__(self, offset: int, limit: int) -> None:
        self.parts: list[str] = []
        self.count = self.total = 0
        self.cut = False
        self._line, self._start, self._end = 1, offset, offset + limit
        self._room = TEXT_LIMIT
        self._open = False  # whether the current line has any text yet

    def add(self, text: str) -> None:
        if self._line < self._start:
            skipped = text.split("\n", self._start - self._line)
            self._pass(text[: len(text) - len(skipped[-1])] if len(skipped) > self._start - self._line else text)
            text = skipped[-1] if self._line == self._start else ""
        start = 0
        while start < len(text) and self._line < self._end and not self.cut:
            newline = text.find("\n", start)
            end = len(text) if newline < 0 else newline + 1
            self._keep(text[start:end])
            start = end
        self._pass(text[start:])

    def finish(self) -> None:
        self.total = self._line - 1 + self._open
        self.count = max(0, min(self._line - 1 + self._open, self._end - 1) - self._start + 1)

    def _keep(self, piece: str) -> None:
        size = len(piece.encode())
        if size <= self._room:
            self._room -= size
            self.parts.append(piece)
            self._pass(piece)
            return
        self.cut = True
        if self._line == self._start:  # one line larger than the whole room: its beginning is better than nothing
            self.parts.append(piece.encode()[: self._room].decode(errors="ignore"))
            self._end = self._line + 1
        else:  # a line that does not fit whole belongs to the next window
            while self.parts and not self.parts[-1].endswith("\n"):
                self.parts.pop()
            self._end = self._line
        self._pass(piece)

    def _pass(self, text: str) -> None:
        if text:
            self._line += text.count("\n")
            self._open = not text.endswith("\n")


def _scan(path: Path, codec: str, skip: int, lines: tuple[int, int], errors: str = "strict") -> tuple[_Window, str]:
    """Read the whole file once, in pieces: the window needs the total, and the fingerprint covers everything."""
    window, digest = _Window(*lines), hasher()
    decoder = codecs.getincrementaldecoder(codec)(errors)
    held = ""
    with path.open("rb") as file:
        digest.update(file.read(skip))
        for chunk in _chunks(file):
            digest.update(chunk)
            try:
                text = held + decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                raise _Undecodable(error.object, error.start) from None
            held = "\r" if text.endswith("\r") and chunk else ""  # it may be the first half of "\r\n"
            window.add(text.removesuffix("\r").replace("\r\n", "\n") if held else text.replace("\r\n", "\n"))
    window.finish()
    return window, digest.hexdigest()


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the rest of the file in pieces, and an empty one at the end."""
    while chunk := file.read(_CHUNK):
        yield chunk
    yield b""
