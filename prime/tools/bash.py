"""``tools.bash``: a command in a fresh shell."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Annotated, Any

from pydantic import Field

from prime.messages import Frozen
from prime.tools.base import tool
from prime.tools.capture import Capture
from prime.tools.files import existing_folder
from prime.tools.process import end, exit_of, start
from prime.tools.workspace import Workspace

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
    started = time.monotonic()
    out, err = Capture(), Capture()
    try:
        process = await start(workspace, command, folder, stdout=out.writer, stderr=err.writer)
    finally:
        out.started()
        err.started()
    timed_out = False
    try:
        await asyncio.wait_for(process.wait(), timeout_s)
    except TimeoutError:
        timed_out = True
        await end(process)
    except asyncio.CancelledError:
        await end(process)
        raise
    finally:
        await _settle(out, err)
    exit_code, ended_by = exit_of(process.returncode)
    return Ran(
        exit_code=exit_code,
        signal=ended_by,
        timed_out=timed_out,
        stdout=out.text(),
        stderr=err.text(),
        truncated=out.truncated or err.truncated,
        duration_s=round(time.monotonic() - started, 3),
    )


async def _settle(out: Capture, err: Capture) -> None:
    """Take what was written up to now. Something left in the background may keep the pipes open for ever."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(out.ended.wait(), err.ended.wait()), _DRAIN_S)
