"""What runs beside the cells, and what did, as a fold of the log. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from prime import events as ev
from prime.errors import TraceError
from prime.messages import TextPart


@dataclass(frozen=True, slots=True)
class Job:
    """A job with its end, None while it runs."""

    started: ev.JobStarted
    ended: ev.JobEnded | None = None

    @property
    def label(self) -> str:
        """What it is called in a sentence."""
        what = "job" if self.started.kind == "command" else "terminal"
        name = f" ({self.started.name})" if self.started.name else ""
        return f"{what} {self.started.job}{name}"

    @property
    def source(self) -> str:
        """The source of notices about it."""
        return f"{'jobs' if self.started.kind == 'command' else 'terminals'}.{self.started.job}"

    @property
    def reader(self) -> str:
        """The call that gives what it has written."""
        call = "jobs.output" if self.started.kind == "command" else "tools.terminal_read"
        return f"{call}({self.started.job})"

    @property
    def outcome(self) -> str:
        """How it ended, in words; empty while it runs."""
        if (ended := self.ended) is None:
            return ""
        if ended.reason == "lost":
            return "lost with the process that ran it"
        how = f"ended by {ended.signal}" if ended.signal else f"exit code {ended.exit_code}"
        why = {"killed": ", as asked", "closed": ", because the session was closed"}.get(ended.reason, "")
        return f"{how}{why}" if ended.duration_s is None else f"{how}{why}, after {ended.duration_s:.1f} s"


@dataclass(frozen=True, slots=True)
class Running:
    """The jobs of a session.

    Attributes:
        begun: how many were started; a fork counts on from its parent's, whose jobs are not its own.
        jobs: by number, in the order of their starts.
    """

    begun: int = 0
    jobs: Mapping[int, Job] = field(default_factory=dict)

    def after(self, event: Any) -> Running:
        """Return what runs after ``event``.

        Raises:
            TraceError: a job out of turn, or the end of one that does not run.
        """
        if isinstance(event, ev.JobStarted):
            if event.job != self.begun + 1:
                raise TraceError(f"job {event.job} is not the next one")
            return Running(event.job, {**self.jobs, event.job: Job(event)})
        if isinstance(event, ev.JobEnded):
            job = self.jobs.get(event.job)
            if job is None or job.ended is not None:
                raise TraceError(f"job {event.job} does not run")
            return replace(self, jobs={**self.jobs, event.job: replace(job, ended=event)})
        if isinstance(event, ev.SessionForked):
            return Running(self.begun)
        return self

    @property
    def alive(self) -> list[Job]:
        """Those that run."""
        return [job for job in self.jobs.values() if job.ended is None]

    def lines(self) -> Iterator[str]:
        """Yield a line for each that runs: what a model that has lost sight of them must know."""
        for job in self.alive:
            yield f"Running: {job.label}, `{_brief(job.started.command)}`; `await {job.reader}` gives its output."


def lost(running: Running) -> tuple[Any, ...]:
    """Return the ends of all that ran when the process that ran them died, each with its notice. Deterministic."""
    events: list[Any] = []
    for job in running.alive:
        number = job.started.job
        ended = ev.JobEnded(job=number, reason="lost", exit_code=None, signal=None, output_bytes=None, duration_s=None)
        text = (
            f"{job.label} was lost: the process that ran it is gone, and so is everything that it had started "
            f"(`{_brief(job.started.command)}`). What it did until then stands; `await {job.reader}` gives what is "
            "left of its output."
        )
        told = ev.InputQueued(
            input_id=f"lost-{job.source}",
            kind="notice",
            parts=(TextPart(text=text),),
            source=job.source,
            wake=False,  # whoever opens a session may only want to look
        )
        events += (ended, told)
    return tuple(events)


def _brief(command: str, limit: int = 120) -> str:
    line = " ".join(command.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
