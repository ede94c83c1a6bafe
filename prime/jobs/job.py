"""One job of this process, from its start until its end is in the log."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

from prime import events as ev
from prime.jobs.output import Output
from prime.jobs.watch import Watch
from prime.log import Log
from prime.notices import Notices, notice
from prime.running import Job
from prime.tools.capture import Pipe
from prime.tools.process import GRACE_S, exit_of, signal_group

#: Seconds until a pipe that outlives the killed group of its job is given up: a process has left the group.
_ESCAPED_S = 1.0


class Pace(NamedTuple):
    """How often a watch may speak: lines of ``gather_s`` seconds go into one notice, between two are ``gap_s``."""

    gather_s: float = 1.0
    gap_s: float = 10.0


class LiveJob:
    """A job that runs, and what waits for it.

    Attributes:
        output: what it has written.
    """

    def __init__(
        self, log: Log, started: ev.JobStarted, process: asyncio.subprocess.Process, pipe: Pipe, output: Output
    ) -> None:
        self.output = output
        self._log = log
        self._notices = Notices(log)
        self._job = Job(started)
        self._process = process
        self._pipe = pipe
        self._since = time.monotonic()
        self._reason: ev.JobEnd = "exited"
        self._readers = 0
        self._watch: Watch | None = None
        self._following: asyncio.Task[None] | None = None
        self._running = asyncio.create_task(self._run())

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return time.monotonic() - self._since

    def when_over(self, then: Callable[[], None]) -> None:
        """Have ``then`` called when its end is in the log."""
        self._running.add_done_callback(lambda _: then())

    async def wait(self, seconds: float, enough: Callable[[], bool]) -> None:
        """Wait for the end of the job, or until it is ``enough``. Who waits is told the end by that, and by no notice
        unless the waiting is cancelled."""
        output = self.output
        self._readers += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await output.until(lambda: output.over or enough())
        except asyncio.CancelledError:
            if output.over and self._readers == 1 and self._reason != "killed":
                self._log.append(self._told(""), durable=True)
            raise
        finally:
            self._readers -= 1

    async def end(self, reason: Literal["killed", "closed"]) -> None:
        """End everything of the job's process group: ask, give it a moment, then kill. Cancelling kills at once."""
        if self._process.returncode is not None and self._pipe.ended.is_set():  # it has ended by itself
            await asyncio.shield(self._running)
            return
        self._reason = reason
        try:
            signal_group(self._process.pid, signal.SIGTERM)
            await asyncio.wait({self._running}, timeout=GRACE_S)
        finally:
            if not self._running.done():
                signal_group(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        try:
            await asyncio.wait_for(self._pipe.ended.wait(), _ESCAPED_S)
        except TimeoutError:  # what has left the group ends with the session
            self._pipe.close()
        await asyncio.shield(self._running)

    async def watch(self, watch: Watch, pace: Pace, most: int) -> None:
        """Give notices of what ``watch`` finds, ``most`` at most, instead of what an earlier one does."""
        await self._unwatch()
        if most:
            self._watch = watch
            self._following = asyncio.create_task(self._follow(watch, pace, most))

    def skip(self) -> None:
        """Tell no line that is there now: the model has read them."""
        if self._watch is not None:
            self._watch.skip()

    async def _run(self) -> None:
        code = await self._process.wait()
        await self._pipe.ended.wait()
        watch = self._watch
        await self._unwatch()
        if watch is not None:
            await watch.look(final=True)
        exit_code, ended_by = exit_of(code)
        ended = ev.JobEnded(
            job=self._job.started.job,
            reason=self._reason,
            exit_code=exit_code,
            signal=ended_by,
            output_bytes=self.output.total,
            duration_s=round(self.seconds, 3),
        )
        self._job = Job(self._job.started, ended)
        self.output.close()  # up to the entry nothing else runs now: whoever has waited finds the end in the log
        silent = self._readers or self._reason == "killed"
        found = _quoted(watch) if watch is not None else ""
        self._log.append(ended, *(() if silent else (self._told(found),)), durable=True)

    async def _follow(self, watch: Watch, pace: Pace, most: int) -> None:
        output, job, left = self.output, self._job, most
        while left:
            seen = output.total
            await watch.look()
            if watch.failed:
                break
            if not watch.count:
                await output.until(lambda seen=seen: output.total > seen)  # type: ignore[misc]
                continue
            await asyncio.sleep(pace.gather_s)
            await watch.look()
            await self._notices.taken(job.source)
            if found := _quoted(watch):  # else the model has read it meanwhile
                left -= 1
                last = "" if left else " This was the last notice of the watch."
                text = f"{job.label} has written lines that you watch for.{last} `await {job.reader}` gives all of it."
                self._notices.give(f"{text}\n{found}", source=job.source)
                await asyncio.sleep(pace.gap_s)
        self._watch = None
        if watch.failed:
            self._notices.give(f"the watch of {job.label} has ended: {watch.failed}", source=job.source)

    async def _unwatch(self) -> None:
        self._watch = None
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait({self._following})

    def _told(self, found: str) -> ev.InputQueued:
        """Return the notice of the end; ``found`` are lines that were watched for."""
        job = self._job
        text = f"{job.label} has ended: {job.outcome}. `await {job.reader}` gives what it has written"
        text += f" ({self.output.total:,} bytes)."
        return notice("\n".join(filter(None, (text, found))), source=job.source, wake=self._reason == "exited")


def _quoted(watch: Watch) -> str:
    """Return what a watch has found, marked as words of a program; empty for nothing."""
    count = watch.count
    lines = watch.told()
    return f"[{count:,} lines of its output, no request of anybody]\n{lines}" if lines else ""
