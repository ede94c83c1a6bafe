"""A pseudo-terminal on the event loop: the program has one end, this is the other."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

#: Bytes read at a time, and bytes of input that wait at most.
_CHUNK, INPUT = 64 * 1024, 1024 * 1024


class Pty:
    """Both ends of a pseudo-terminal, until the program has its own.

    Attributes:
        ended: set when no process has its end any more, or this one was closed.
    """

    def __init__(self, rows: int, cols: int) -> None:
        self.ended = asyncio.Event()
        self._master, self._slave = os.openpty()
        os.set_blocking(self._master, False)
        self._waiting = bytearray()
        self._drained = asyncio.Event()
        self._drained.set()
        self._take: Callable[[bytes], None] = lambda data: None
        self.resize(rows, cols)

    async def start(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> asyncio.subprocess.Process:
        """Start the program, as the leader of a session of its own whose terminal this is.

        Raises:
            OSError: it cannot be started.
        """
        script = str(Path(__file__).with_name("ctty.py"))
        try:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", script, *command),
                stdin=self._slave,
                stdout=self._slave,
                stderr=self._slave,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        finally:
            os.close(self._slave)

    def listen(self, take: Callable[[bytes], None]) -> None:
        """Have ``take`` called with what the program writes."""
        self._take = take
        asyncio.get_running_loop().add_reader(self._master, self._read)

    def resize(self, rows: int, cols: int) -> None:
        """Change the size, of which the program is told."""
        termios.tcsetwinsize(self._master, (rows, cols))

    @property
    def foreground(self) -> int | None:
        """The group of processes that gets what is typed, None when there is none."""
        try:
            return os.tcgetpgrp(self._master) or None
        except OSError:  # the program has gone
            return None

    def reply(self, data: bytes) -> None:
        """Type what the terminal itself answers to the program, if it reads."""
        self.send(data)

    def send(self, data: bytes) -> bool:
        """Type, as fast as the program reads; return whether this is taken, now or later: no more than :data:`INPUT`
        bytes wait."""
        if self.ended.is_set() or len(self._waiting) + len(data) > INPUT:
            return False
        self._waiting += data
        self._write()
        return True

    async def sent(self) -> None:
        """Wait until all that was typed has been taken."""
        await self._drained.wait()

    def close(self) -> None:
        """Hang up. Idempotent."""
        if not self.ended.is_set():
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._master)
            loop.remove_writer(self._master)
            os.close(self._master)
            self._waiting.clear()
            self._drained.set()
            self.ended.set()

    def _read(self) -> None:
        try:
            data = os.read(self._master, _CHUNK)
        except BlockingIOError:  # somebody was faster, or it was a false alarm
            return
        except OSError:  # how Linux says that the other end is closed
            data = b""
        if data:
            self._take(data)
        else:
            self.close()

    def _write(self) -> None:
        try:
            sent = os.write(self._master, self._waiting)
        except BlockingIOError:
            sent = 0
        except OSError:  # the program has gone
            self.close()
            return
        del self._waiting[:sent]
        loop = asyncio.get_running_loop()
        if self._waiting:
            self._drained.clear()
            loop.add_writer(self._master, self._write)
        else:
            loop.remove_writer(self._master)
            self._drained.set()
