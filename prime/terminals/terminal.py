"""One terminal of this process: a program on a pseudo-terminal, and the screen that it draws."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Literal

import psutil
import regex

from prime import events as ev
from prime.errors import ToolFailed
from prime.log import Log
from prime.notices import notice
from prime.running import Job
from prime.terminals.pty import Pty
from prime.tools.process import GRACE_S, exit_of
from prime.tools.threads import in_thread

if TYPE_CHECKING:
    from prime.terminals.emulator import Emulator

#: Seconds in which a program has to take what is sent.
_TAKE_S = 5.0
#: Bytes of output since the last input in which a pattern is looked for, seconds that this may take, and seconds
#: between two looks.
RECENT, MATCH_S, _LOOK_S = 64 * 1024, 0.5, 0.03
#: Seconds for output of the last moment, when something left behind keeps the terminal open.
_DRAIN_S = 0.2

#: Sequences that draw nothing; those that move the cursor stand for a new line.
_MOVES = re.compile(rb"\x1b\[[0-9;]*[Hfd]")
_SEQUENCES = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]|[\x00-\x08\x0e-\x1f]")

Waited = Literal["quiet", "matched", "time", "ended"]


class LiveTerminal:
    """A program on a terminal. ``running`` ends when its end is in the log.

    Attributes:
        emulator: its screen.
        received: bytes that it has written.
    """

    def __init__(
        self, log: Log, started: ev.JobStarted, process: asyncio.subprocess.Process, pty: Pty, emulator: Emulator
    ) -> None:
        self.emulator = emulator
        self.received = 0
        self._log = log
        self._job = Job(started)
        self._process = process
        self._pty = pty
        self._since = self._touched = time.monotonic()
        self._reason: ev.JobEnd = "exited"
        self._readers = 0
        self._recent = bytearray()
        self._news = asyncio.Event()
        pty.listen(self._take)
        self.running = asyncio.create_task(self._run())
        self.running.add_done_callback(lambda _: self._news.set())

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return time.monotonic() - self._since

    async def send(self, data: bytes) -> None:
        """Type. What was written before does not count for a pattern any more.

        Raises:
            ToolFailed: ``not_taken`` when the program does not read.
        """
        self._recent.clear()
        self._touched = time.monotonic()
        if not self._pty.send(data):
            raise ToolFailed("not_taken", "the program does not read, and this was not typed")
        try:
            async with asyncio.timeout(_TAKE_S):
                await self._pty.sent()
        except TimeoutError:
            raise ToolFailed(
                "not_taken", "the program does not read; what it has not taken waits until it does"
            ) from None

    def resize(self, rows: int, cols: int) -> None:
        """Change the size of the terminal, of which the program is told."""
        self._pty.resize(rows, cols)
        self.emulator.resize(rows, cols)
        self._touched = time.monotonic()

    async def wait(self, seconds: float, pattern: regex.Pattern[str] | None, quiet_s: float) -> Waited:
        """Wait for the pattern in what was written since the last input, without one until nothing was written or typed
        for ``quiet_s``; at most ``seconds``, and not beyond the end of the program."""
        start = time.monotonic()
        self._readers += 1
        try:
            async with asyncio.timeout(seconds):
                while True:
                    over, news = self.running.done(), self._news
                    if pattern is not None and await self._matches(pattern):
                        return "matched"
                    if over:
                        return "ended"
                    rest = max(start, self._touched) + quiet_s - time.monotonic()
                    if pattern is not None:
                        await news.wait()
                        await asyncio.sleep(_LOOK_S)
                    elif rest > 0:
                        await asyncio.wait({self.running}, timeout=rest)
                    else:
                        return "quiet"
        except TimeoutError:
            return "time"
        finally:
            self._readers -= 1

    def signal_foreground(self, number: signal.Signals) -> None:
        """Send a signal to what is in the foreground of the terminal."""
        group = self._pty.foreground or self._process.pid
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.killpg(group, number)

    async def end(self, reason: Literal["killed", "closed"]) -> None:
        """End everything of the terminal's session: hang up, give it a moment, then kill. Cancelling kills at once."""
        if not self.running.done():
            self._reason = reason
        try:
            for number in (signal.SIGHUP, signal.SIGCONT):
                self._everywhere(number)
            await asyncio.wait({self.running}, timeout=GRACE_S)
        finally:
            self._everywhere(signal.SIGKILL)
        await asyncio.shield(self.running)

    def _everywhere(self, number: signal.Signals) -> None:
        for pid in _of_session(self._process.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it has just ended, or is another user's
                os.kill(pid, number)

    def _take(self, data: bytes) -> None:
        self.received += len(data)
        self._touched = time.monotonic()
        self._recent += data
        if len(self._recent) > 2 * RECENT:
            del self._recent[:-RECENT]
        self.emulator.feed(data)
        self._news.set()
        self._news = asyncio.Event()

    async def _matches(self, pattern: regex.Pattern[str]) -> bool:
        text = _plain(bytes(self._recent))
        try:
            return await in_thread(partial(_found, pattern, text))
        except TimeoutError:
            raise ToolFailed("too_slow", f"the pattern takes over {MATCH_S:g} s; repeat fewer parts of it") from None

    async def _run(self) -> None:
        code = await self._process.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                await self._pty.ended.wait()
        self._pty.close()
        exit_code, ended_by = exit_of(code)
        ended = ev.JobEnded(
            job=self._job.started.job,
            reason=self._reason,
            exit_code=exit_code,
            signal=ended_by,
            output_bytes=self.received,
            duration_s=round(self.seconds, 3),
        )
        job = Job(self._job.started, ended)
        told: tuple[ev.InputQueued, ...] = ()
        if not self._readers and self._reason != "killed":
            # a program at a keyboard ends because of what was typed: worth a word, not a turn
            told = (notice(f"{job.label} has ended: {job.outcome}.", source=job.source, wake=False),)
        self._log.append(ended, *told, durable=True)


def _found(pattern: regex.Pattern[str], text: str) -> bool:
    return pattern.search(text, timeout=MATCH_S, concurrent=True) is not None


def _plain(data: bytes) -> str:
    """Return the words in what was written, whatever place on the screen they were written to."""
    return _SEQUENCES.sub(b"", _MOVES.sub(b"\n", data[-RECENT:])).replace(b"\r", b"").decode(errors="replace")


def _of_session(leader: int) -> Iterator[int]:
    """Yield the processes of a session, which a shell splits into many groups."""
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it has just ended, or is another user's
            if os.getsid(pid) == leader:
                yield pid
