"""What a job has written: all of it on the disk up to a bound, and of what goes beyond it the end.

Kept in bytes and paged by offset: who reads slowly loses nothing, and who writes fast fills no memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

#: Bytes of one job that are on the disk, from its beginning; and of a session, beyond which a new job gets
#: :data:`LEAST` only.
DISK, SESSION = 64 * 1024 * 1024, 1024 * 1024 * 1024
#: Bytes that each job may have on the disk in any case (design: agents, "Jobs").
LEAST = 512 * 1024
#: Bytes of the end that are kept when a job has written more than it may have on the disk.
TAIL = 1536 * 1024


class Piece(NamedTuple):
    """Bytes from ``offset`` on, before which ``left_out`` bytes that were asked for are gone."""

    data: bytes
    offset: int
    left_out: int


class Output:
    """The output of one job. Its files stay with the session and can be read by later processes (:meth:`stored`).

    Attributes:
        total: bytes written so far.
        over: whether no more will come.
    """

    def __init__(self, path: Path, total: int, room: int) -> None:
        self._path = path
        self._room = room
        self._on_disk = path.stat().st_size
        self._tail: bytearray | None = None
        self._news = asyncio.Event()
        self.over = room == 0
        self.total = max(total, self._on_disk)

    @classmethod
    def create(cls, path: Path) -> Output:
        """Return the output of a job that starts; ``path`` is that of its file, whose folder is the session's."""
        path.parent.mkdir(mode=0o700, exist_ok=True)
        used = sum(file.stat().st_size for file in path.parent.iterdir())
        path.touch(mode=0o600, exist_ok=False)
        return cls(path, 0, DISK if used + DISK <= SESSION else LEAST)

    @classmethod
    def stored(cls, path: Path, total: int | None) -> Output:
        """Return the output of a job that is over. ``total`` is None when nobody knows how much it had written.

        Raises:
            FileNotFoundError: its files are gone.
        """
        return cls(path, total or 0, 0)

    def add(self, data: bytes) -> None:
        """Take in what the job has written."""
        room = self._room - self._on_disk
        if room > 0 and self._tail is None:
            data = data[self._write(data[:room]) :]
        if data:
            self._tail = bytearray() if self._tail is None else self._tail
            self._tail += data
            self.total += len(data)
            if len(self._tail) > 2 * TAIL:  # cut now and then, not with every piece
                del self._tail[:-TAIL]
        self._announce()

    def close(self) -> None:
        """Put what is in memory on the disk: the job is over."""
        if self._tail is not None:
            with contextlib.suppress(OSError):  # a full disk: the end is left out, as a reader is told
                self._tail_file.write_bytes(self._tail[-TAIL:])
        self._tail = None
        self.over = True
        self._announce()

    def discard(self) -> None:
        """Remove the files: there was no such job."""
        self._path.unlink()

    def read(self, offset: int, limit: int) -> Piece:
        """Return at most ``limit`` bytes from ``offset`` on, or from the first that is kept after it."""
        offset, data = min(offset, self.total), b""
        if offset < self._on_disk:
            with self._path.open("rb") as file:
                file.seek(offset)
                data = file.read(min(limit, self._on_disk - offset))
        if len(data) == limit:
            return Piece(data, offset, 0)
        tail = self._kept()
        start, end = self.total - len(tail), offset + len(data)
        if start <= end:
            return Piece(data + tail[end - start : end - start + limit - len(data)], offset, 0)
        if data:  # what follows it is gone, which the next read tells
            return Piece(data, offset, 0)
        return Piece(bytes(tail[:limit]), start, start - offset)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds, looking whenever there is more or the job is over."""
        while not condition():
            await self._news.wait()

    @property
    def _tail_file(self) -> Path:
        return self._path.with_suffix(".tail")

    def _kept(self) -> bytes | bytearray:
        if self._tail is not None:
            return self._tail
        return self._tail_file.read_bytes() if self.total > self._on_disk and self._tail_file.exists() else b""

    def _write(self, data: bytes) -> int:
        try:
            with self._path.open("ab", buffering=0) as file:
                written = file.write(data)
        except OSError:  # a full disk: what follows is kept in memory, as far as it goes
            written = 0
        self._on_disk += written
        self.total += written
        return written

    def _announce(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def whole(data: bytes) -> bytes:
    """Return ``data`` without the beginning of a UTF-8 character at its end, of which more is to come."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:  # inside of a character
            continue
        needs = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return data[:-back] if needs > back else data
    return data
