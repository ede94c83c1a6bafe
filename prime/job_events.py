"""The events of what runs beside the cells: commands and terminals."""

from __future__ import annotations

from typing import Literal

from prime.messages import Frozen

#: ``exited``: by itself; ``killed``: asked for by the agent; ``closed``: with its session; ``lost``: with the process
#: that ran it, written by the repair.
JobEnd = Literal["exited", "killed", "closed", "lost"]


class JobStarted(Frozen):
    """A command, or a terminal, runs beside the cells. ``job`` counts up from 1 in a session; ``name`` is for people
    and may be empty; ``cwd`` is absolute."""

    type: Literal["job_started"] = "job_started"
    job: int
    kind: Literal["command", "terminal"]
    name: str
    command: str
    cwd: str
    pid: int


class JobEnded(Frozen):
    """It is over.

    Attributes:
        reason: what ended it.
        exit_code: None when a signal ended it, which ``signal`` then names, or when nobody knows.
        output_bytes: what it has written, None when nobody knows.
        duration_s: seconds from its start, None when nobody knows.
    """

    type: Literal["job_ended"] = "job_ended"
    job: int
    reason: JobEnd
    exit_code: int | None
    signal: str | None
    output_bytes: int | None
    duration_s: float | None
