"""Ends what a session or a kernel has started, whoever started it and wherever it has moved to.

What belongs to an owner bears a mark: an environment variable that its kernels and commands are started with and that
their children inherit. Nothing has to be written down, so nothing can be lost between a start and its record, and a
process number that was given to another process means nothing.

Also a script, ``reaper.py VARIABLE VALUE``: what :func:`guarding` runs when its own process is dead. It imports nothing
of ours for that reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

import psutil

#: Seconds between asking processes to end and killing them, and from then on to their certain end.
GRACE_S, KILL_S = 1.0, 5.0
#: Seconds between looks at whether they have ended.
_LOOK_S = 0.02

#: Waits for a line, which says that all is done, or for the end of its input: then the process that holds the other end
#: is gone, and the given command takes its place.
_GUARD = 'read -r _ || exec "$@"'

#: What guards bear: one of a host that ran inside a cell is not ended with it, because it has work to do then.
_IS_GUARD = "PRIME_GUARD"

_logger = logging.getLogger(__name__)


class Mark(NamedTuple):
    """The environment variable, and its value, by which processes are known."""

    variable: str
    value: str


def end(mark: Mark, kin: Iterable[psutil.Process] = ()) -> None:
    """End every process that bears ``mark``, every one of ``kin``, and all their descendants: ask, give them a moment,
    then kill. Blocks until they are gone; what even that does not end within five seconds is reported to the log of
    this process."""
    asked = _family(mark, kin)
    for process in asked:
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile, or has become another user's
            process.terminate()
    alive = _wait(asked, GRACE_S)
    deadline = time.monotonic() + KILL_S
    while family := _family(mark, alive):  # with what they have started meanwhile
        if time.monotonic() > deadline:
            _logger.warning("these processes of %s could not be ended: %s", mark.value, [each.pid for each in family])
            return
        for process in family:
            with contextlib.suppress(psutil.Error):  # as above
                process.kill()
        alive = _wait(family, GRACE_S)


@contextlib.asynccontextmanager
async def guarding(mark: Mark, *, fresh: bool = False) -> AsyncIterator[None]:
    """End what bears ``mark`` before the block, when an earlier process left some; after it; and, with a small process
    that does nothing else, when this process dies inside of it. A ``fresh`` mark was never borne by anything: the look
    before the block, which reads the environment of every process (0.1 s), is spared."""
    if not fresh:
        await asyncio.to_thread(end, mark)
    guard = _guard(mark)
    try:
        yield
    finally:
        try:
            await asyncio.to_thread(end, mark)
        finally:
            _dismiss(guard)


def _guard(mark: Mark) -> subprocess.Popen[bytes]:
    # -P: its own folder on the path would hide modules of others behind ours
    command = [sys.executable, "-P", __file__, *mark]
    return subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "sh", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), _IS_GUARD: mark.value},
        start_new_session=True,
    )


def _dismiss(guard: subprocess.Popen[bytes]) -> None:
    assert guard.stdin is not None
    with contextlib.suppress(BrokenPipeError), guard.stdin:  # somebody has ended it, which is no harm any more
        guard.stdin.write(b"\n")
    guard.wait()


def _family(mark: Mark, kin: Iterable[psutil.Process]) -> set[psutil.Process]:
    children: dict[int, list[psutil.Process]] = {}
    found, guards = [*kin], set()
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error):  # it ended while it was looked at, or belongs to somebody else
            process = psutil.Process(pid)
            children.setdefault(process.ppid(), []).append(process)
            environment = process.environ()
            if environment.get(mark.variable) == mark.value:
                found.append(process)
            if _IS_GUARD in environment:
                guards.add(process)
    family: set[psutil.Process] = set()
    while found:
        process = found.pop()
        if process not in family | guards and _lives(process):
            family.add(process)
            found += children.get(process.pid, ())
    return family


def _wait(processes: Iterable[psutil.Process], timeout_s: float) -> set[psutil.Process]:
    """Return those that are alive after ``timeout_s`` seconds. Unlike :func:`psutil.wait_procs` this takes no exit code
    away from whoever waits for a child of ours."""
    deadline = time.monotonic() + timeout_s
    while alive := {process for process in processes if _lives(process)}:
        if time.monotonic() > deadline:
            break
        time.sleep(_LOOK_S)
    return alive


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


if __name__ == "__main__":
    end(Mark(*sys.argv[1:]))
