"""What the calls of ``jobs`` give back, and how the model reads it. Pure."""

from __future__ import annotations

from typing import Any

from prime.messages import Frozen


class Started(Frozen):
    """A job that runs now."""

    job_id: int
    name: str
    pid: int


class JobInfo(Frozen):
    """A job. ``state`` is ``running``, or what ended it (:data:`prime.job_events.JobEnd`).

    ``exit_code`` is None while it runs, and when a signal ended it, which ``signal`` then names. ``unread`` counts the
    bytes that jobs.output has not given yet; ``duration_s`` is None for one that was lost.
    """

    job_id: int
    name: str
    command: str
    state: str
    exit_code: int | None
    signal: str | None
    output_bytes: int
    unread: int
    duration_s: float | None


class JobList(Frozen):
    """The jobs of the session, in the order of their starts."""

    jobs: tuple[JobInfo, ...]


class JobOutput(Frozen):
    """A part of a job's output, both streams as they came, and how the job stands.

    Offsets are bytes. The text begins at ``offset`` and the next part at ``next_offset``; ``left_out`` bytes before it
    are gone. ``more`` tells that there is a next part now.
    """

    job_id: int
    state: str
    exit_code: int | None
    signal: str | None
    text: str
    offset: int
    next_offset: int
    total_bytes: int
    left_out: int
    more: bool


class Watching(Frozen):
    """A watch that looks at lines from the byte ``offset`` on, and gives ``most`` notices at most."""

    job_id: int
    offset: int
    most: int


def started_text(arguments: dict[str, Any], value: Any) -> str:
    """Return what the model sees of :class:`Started`."""
    return f"job {value['job_id']} runs (pid {value['pid']}); you are told when it ends"


def info_text(arguments: dict[str, Any], value: Any) -> str:
    """Return what the model sees of :class:`JobInfo`."""
    name = f" ({value['name']})" if value["name"] else ""
    seconds = "" if value["duration_s"] is None else f", {value['duration_s']:.1f} s"
    size = f"{value['output_bytes']:,} bytes, {value['unread']:,} unread"
    return f"job {value['job_id']}{name}: {_standing(value)}{seconds}, {size}: {value['command']}"


def list_text(arguments: dict[str, Any], value: Any) -> str:
    """Return what the model sees of :class:`JobList`."""
    return "\n".join(info_text({}, job) for job in value["jobs"]) or "no jobs yet"


def output_text(arguments: dict[str, Any], value: Any) -> str:
    """Return what the model sees of :class:`JobOutput`."""
    gone = f"[{value['left_out']:,} bytes before this are gone]\n" if value["left_out"] else ""
    rest = value["total_bytes"] - value["next_offset"]
    more = f", {rest:,} bytes more" if value["more"] else ""
    text = value["text"] if value["text"].endswith("\n") or not value["text"] else value["text"] + "\n"
    return f"{gone}{text}[job {value['job_id']}: {_standing(value)}{more}]"


def _standing(value: Any) -> str:
    ended = f"ended by {value['signal']}" if value["signal"] else f"exit code {value['exit_code']}"
    return {"running": "running", "exited": ended, "lost": "lost"}.get(value["state"], f"{value['state']}, {ended}")
