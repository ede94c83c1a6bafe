"""``tools.bash``: a command in a fresh shell."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from typing import Annotated, Any

from pydantic import Field

from prime.errors import ToolFailed
from prime.messages import Frozen
from prime.tools.base import tool
from prime.tools.capture import Capture
from prime.tools.files import existing_folder
from prime.tools.workspace import Workspace

#: Seconds between asking a group of processes to end and ending it.
GRACE_S = 1.0
#: Seconds for output of the last moment, when something left behind keeps the pipes open.
_DRAIN_S = 0.1


class Ran(Frozen):
    """How a command ended and what it wrote. ``exit_code`` is None when a signal ended it, which ``signal`` then names.

    Of more than 256 KiB in one stream the middle is left out (``truncated``).
    """

    exit_code: int | None
    signal: str | None
    timed_out: bool
    stdout: str
    stderr: str
    truncated: bool
    duration_s: float


def _for_model(arguments: dict[str, Any], value: Any) -> str:
    parts = [value["stdout"].rstrip("\n")]
    if value["stderr"]:
        parts += ["[stderr]", value["stderr"].rstrip("\n")]
    if value["exit_code"] != 0:
        parts.append(f"[{_ending(value)}]")
    return "\n".join(part for part in parts if part) or "[no output]"


def _for_human(arguments: dict[str, Any], value: Any) -> str:
    return f"$ {arguments['command']} ({_ending(value)}, {value['duration_s']:.1f} s)"


def _ending(value: dict[str, Any]) -> str:
    ended = f"ended by {value['signal']}" if value["signal"] else f"exit code {value['exit_code']}"
    return f"timed out, {ended}" if value["timed_out"] else ended


@tool(for_model=_for_model, for_human=_for_human)
async def bash(
    workspace: Workspace,
    command: str,
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 120,
    cwd: str | None = None,
) -> Ran:
    """Run a command in a fresh bash, without input, and wait for it.

    A non-zero exit code is a value, not an error. Ends the command and everything it started after `timeout_s` seconds.
    Programs put in the background with & run on; use jobs.start for what should be watched.
    """
    folder = existing_folder(workspace, cwd or ".")
    shell = _shell(workspace.environment.get("PATH", os.defpath))
    if "\0" in command:
        raise ToolFailed("bad_arguments", "command contains a NUL character")
    started = time.monotonic()
    out, err = Capture(), Capture()
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *workspace.command((shell, "-c", command), folder),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out.writer,
            stderr=err.writer,
            cwd=folder,
            env=workspace.environment,
            start_new_session=True,
        )
    )
    try:
        process = await _started(starting)
    except OSError as error:
        raise ToolFailed("not_started", f"the command could not be started: {error.strerror or error}") from None
    finally:
        out.started()
        err.started()
    timed_out = False
    try:
        await asyncio.wait_for(process.wait(), timeout_s)
    except TimeoutError:
        timed_out = True
        await _end(process)
    except asyncio.CancelledError:
        await _end(process)
        raise
    finally:
        await _settle(out, err)
    code = process.returncode
    return Ran(
        exit_code=None if code is None or code < 0 else code,
        signal=signal.Signals(-code).name if code is not None and code < 0 else None,
        timed_out=timed_out,
        stdout=out.text(),
        stderr=err.text(),
        truncated=out.truncated or err.truncated,
        duration_s=round(time.monotonic() - started, 3),
    )


def _shell(path: str) -> str:
    shell = shutil.which("bash", path=path) or shutil.which("sh", path=path)
    if shell is None:
        raise ToolFailed("no_shell", f"neither bash nor sh is on the path of commands ({path})")
    return shell


async def _started(starting: asyncio.Future[asyncio.subprocess.Process]) -> asyncio.subprocess.Process:
    """Wait for the process. Cancelled in that moment, asyncio would end the shell alone and not what it started."""
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await _end(await starting)
        raise


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the command's whole process group: ask, give it a moment, then kill. Cancelling kills at once."""
    try:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):  # it did not end by itself: what follows is for that
            await asyncio.wait_for(process.wait(), GRACE_S)
    finally:
        _signal(process.pid, signal.SIGKILL)  # also whatever of its group outlived it
    await process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # nobody is left in it, which is what was wanted
        os.killpg(group, number)


async def _settle(out: Capture, err: Capture) -> None:
    """Take what was written up to now. Something left in the background may keep the pipes open for ever."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(out.ended.wait(), err.ended.wait()), _DRAIN_S)
