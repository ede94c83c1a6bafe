"""A command as a process of the host, the leader of a group of its own, from its start to its certain end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from pathlib import Path

from prime.errors import ToolFailed
from prime.tools.workspace import Workspace

#: Seconds between asking a group of processes to end and ending it.
GRACE_S = 1.0


async def start(
    workspace: Workspace, command: str, folder: Path, *, stdout: int, stderr: int
) -> asyncio.subprocess.Process:
    """Start a command in a fresh shell, without input, that writes to the two descriptors.

    Raises:
        ToolFailed: ``bad_arguments``, ``no_shell`` or ``not_started``.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *workspace.command(shell(workspace, command), folder),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=folder,
            env=workspace.environment,
            start_new_session=True,
        )
    )
    try:
        return await _started(starting)
    except OSError as error:
        raise ToolFailed("not_started", f"the command could not be started: {error.strerror or error}") from None


def shell(workspace: Workspace, command: str) -> tuple[str, ...]:
    """Return the program and its arguments that run ``command`` in a shell.

    Raises:
        ToolFailed: ``bad_arguments`` or ``no_shell``.
    """
    if "\0" in command:
        raise ToolFailed("bad_arguments", "command contains a NUL character")
    path = workspace.environment.get("PATH", os.defpath)
    found = shutil.which("bash", path=path) or shutil.which("sh", path=path)
    if found is None:
        raise ToolFailed("no_shell", f"neither bash nor sh is on the path of commands ({path})")
    return found, "-c", command


async def end(process: asyncio.subprocess.Process) -> None:
    """End the command's whole process group: ask, give it a moment, then kill. Cancelling kills at once."""
    try:
        signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):  # it did not end by itself: what follows is for that
            await asyncio.wait_for(process.wait(), GRACE_S)
    finally:
        signal_group(process.pid, signal.SIGKILL)  # also whatever of its group outlived it
    await process.wait()


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to every process of a group; to none, when none is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def exit_of(code: int | None) -> tuple[int | None, str | None]:
    """Return the exit code of a process, None when a signal ended it, and that signal's name."""
    if code is None or code >= 0:
        return code, None
    return None, signal.Signals(-code).name


async def _started(starting: asyncio.Future[asyncio.subprocess.Process]) -> asyncio.subprocess.Process:
    """Wait for the process. Cancelled in that moment, asyncio would end the shell alone and not what it started."""
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await end(await starting)
        raise
