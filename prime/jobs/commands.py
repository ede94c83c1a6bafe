"""The namespace ``jobs``: commands that run beside the cells, and what is told of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal

from pydantic import Field

from prime import events as ev
from prime.errors import ToolFailed
from prime.jobs import values
from prime.jobs.job import LiveJob, Pace
from prime.jobs.numbers import Numbers
from prime.jobs.output import Output, whole
from prime.jobs.watch import Watch
from prime.log import Log
from prime.notices import Notices
from prime.running import Job
from prime.tools.base import Tool, tool, waiting
from prime.tools.capture import Pipe
from prime.tools.files import existing_folder
from prime.tools.process import end, start
from prime.tools.workspace import Workspace

#: Bytes of one part of an output, by default and at most.
PART, LONGEST = 64 * 1024, 1024 * 1024
#: Notices of a watch, at most.
MOST = 100


class Jobs:
    """The jobs of one session. Use as an async context manager: what runs at the end of the block is ended.

    Everything that outlives this process is in the log and in ``folder``.
    """

    def __init__(self, log: Log, numbers: Numbers, folder: Path, pace: Pace = Pace()) -> None:  # noqa: B008 - frozen
        self._log = log
        self._folder = folder
        self._pace = pace
        self._notices = Notices(log)
        self._live: dict[int, LiveJob] = {}
        self._read: dict[int, int] = {}
        self._numbers = numbers

    async def __aenter__(self) -> Jobs:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(live.end("closed") for live in self._live.values()))

    async def start(
        self, workspace: Workspace, command: str, *, name: str | None = None, cwd: str | None = None
    ) -> values.Started:
        """Start a command in a fresh bash, without input, and go on: it outlives this cell and this turn. You are told
        when it ends.

        Both output streams go into one, all of which jobs.output gives. A job lasts until its process has ended and
        nothing that it started writes to its output any more. What still runs is ended with the session.
        """
        folder = existing_folder(workspace, cwd or ".")
        async with self._numbers.next() as number:
            output = Output.create(self._file(number))
            pipe = Pipe(output.add)
            try:
                process = await start(workspace, command, folder, stdout=pipe.writer, stderr=pipe.writer)
            except BaseException:
                output.discard()
                raise
            finally:
                pipe.started()
            begun = ev.JobStarted(
                job=number, kind="command", name=name or "", command=command, cwd=str(folder), pid=process.pid
            )
            try:
                self._log.append(begun, durable=True)
            except BaseException:
                await end(process)
                raise
            live = self._live[number] = LiveJob(self._log, begun, process, pipe, output)
            live.when_over(lambda: self._forget(number))
        return values.Started(job_id=number, name=begun.name, pid=process.pid)

    async def list(self) -> values.JobList:
        """List the jobs of the session, those that run and those that are over."""
        jobs = [job for job in self._log.state.running.jobs.values() if job.started.kind == "command"]
        return values.JobList(jobs=tuple(map(self._info, jobs)))

    async def output(
        self,
        job_id: int,
        wait_s: Annotated[float, Field(ge=0, le=86_400)] = 0,
        *,
        until: Literal["end", "output"] = "end",
        offset: int | None = None,
        limit: Annotated[int, Field(ge=16, le=LONGEST)] = PART,
    ) -> values.JobOutput:
        """Return what a job has written since you last read it, after waiting `wait_s` seconds at most for its end, or
        with until="output" for anything new. The wait does not count towards the cell's deadline.

        `offset` reads from that byte on instead, a negative one from so many bytes before the end.
        """
        job = self._job(job_id)
        seen = self._read.get(job_id, 0)
        if (live := self._live.get(job_id)) is not None:
            await live.wait(wait_s, lambda: until == "output" and live.output.total > seen)
        output = self._output(job)
        first = seen if offset is None else offset if offset >= 0 else max(output.total + offset, 0)
        piece = output.read(first, limit)
        job = self._job(job_id)
        complete = job.ended is not None and piece.offset + len(piece.data) == output.total
        data = piece.data if complete else whole(piece.data)
        following = piece.offset + len(data)
        if offset is None:
            self._read[job_id] = following
        if job.ended is not None or following == output.total:
            self._is_told(job)
        return values.JobOutput(
            **_standing(job),
            text=data.decode(errors="replace"),
            offset=piece.offset,
            next_offset=following,
            total_bytes=output.total,
            left_out=piece.left_out,
            more=following < output.total,
        )

    async def kill(self, job_id: int) -> values.JobInfo:
        """End a job with everything of its process group: ask, and kill what is there a second later."""
        job = self._job(job_id)
        if (live := self._live.get(job_id)) is not None:
            await live.end("killed")
        self._is_told(job)
        return self._info(self._job(job_id))

    async def watch(
        self,
        job_id: int,
        pattern: str | None = None,
        *,
        case_sensitive: bool = False,
        from_start: bool = False,
        most: Annotated[int, Field(ge=0, le=MOST)] = 20,
    ) -> values.Watching:
        """Be told of lines that a job writes from now on (from_start=True: of all), or of those in which the regular
        expression `pattern` is found, at most `most` times. This takes the place of the job's earlier watch; most=0
        only ends that.

        Lines that come together are told together, at least ten seconds lie between two notices, and no new one comes
        before you had the last one. What you have read with jobs.output is not told.
        """
        job, live = self._job(job_id), self._live.get(job_id)
        if live is None or job.ended is not None:
            raise ToolFailed(
                "not_running", f"{job.label} is over ({job.outcome}); jobs.output({job_id}) gives its output"
            )
        begin = 0 if from_start else live.output.total
        watch = Watch(live.output, pattern, case_sensitive=case_sensitive, start=begin)
        await live.watch(watch, self._pace, most)
        return values.Watching(job_id=job_id, offset=begin, most=most)

    def tools(self) -> tuple[Tool, ...]:
        """Return the namespace's tools."""
        # all of them overlap: none may have to wait for another one that waits
        return (
            tool(self.start, namespace="jobs", parallel=True, for_model=values.started_text),
            tool(self.list, namespace="jobs", parallel=True, effects=False, for_model=values.list_text),
            waiting(tool(self.output, namespace="jobs", parallel=True, effects=False, for_model=values.output_text)),
            tool(self.kill, namespace="jobs", parallel=True, for_model=values.info_text),
            tool(self.watch, namespace="jobs", parallel=True, effects=False),
        )

    def _job(self, job_id: int) -> Job:
        running = self._log.state.running
        job = running.jobs.get(job_id)
        if job is None:
            raise ToolFailed("not_found", f"this session has no job {job_id}; jobs.list() lists what it has")
        if job.started.kind != "command":
            raise ToolFailed("not_found", f"{job_id} is a terminal; {job.reader} reads it")
        return job

    def _output(self, job: Job) -> Output:
        live = self._live.get(job.started.job)
        if live is not None:
            return live.output
        try:
            return Output.stored(self._file(job.started.job), job.ended.output_bytes if job.ended else None)
        except FileNotFoundError:
            raise ToolFailed("gone", f"the output of {job.label} is not in the session's folder any more") from None

    def _forget(self, number: int) -> None:
        del self._live[number]

    def _file(self, number: int) -> Path:
        return self._folder / f"{number}.out"

    def _is_told(self, job: Job) -> None:
        """The model has read how a job stands: what waits to be told of it is old news."""
        self._notices.withdraw(job.source)
        if (live := self._live.get(job.started.job)) is not None:
            live.skip()

    def _info(self, job: Job) -> values.JobInfo:
        number, live = job.started.job, self._live.get(job.started.job)
        seconds = live.seconds if live is not None else job.ended.duration_s if job.ended is not None else None
        try:
            total = self._output(job).total
        except ToolFailed:  # its files are gone, which whoever reads it is told
            total = job.ended.output_bytes or 0 if job.ended is not None else 0
        return values.JobInfo(
            **_standing(job),
            name=job.started.name,
            command=job.started.command,
            output_bytes=total,
            unread=max(total - self._read.get(number, 0), 0),
            duration_s=round(seconds, 3) if seconds is not None else None,
        )


def _standing(job: Job) -> dict[str, Any]:
    ended = job.ended
    return {
        "job_id": job.started.job,
        "state": ended.reason if ended is not None else "running",
        "exit_code": ended.exit_code if ended is not None else None,
        "signal": ended.signal if ended is not None else None,
    }
