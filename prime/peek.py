"""A look into a session that another process holds: that process answers one question, what goes on in its kernel.

The owner listens on a Unix socket in the session's folder, which is its user's own (mode 0700). A connection may ask
``{"request": "inspect"}`` on one line, gets one line of JSON, and is closed: nothing can be changed through it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from prime.errors import LogError, SessionNotOpen
from prime.repl.signals import Inspection

#: Seconds that a connection may take, at either end. A kernel has two to answer.
TIMEOUT_S = 5.0

#: Largest question and largest answer, in bytes.
_REQUEST, _REPLY = 256, 1_048_576

#: Questions answered at the same time; a further one is turned away.
_AT_ONCE = 8

#: A Unix socket's path has at most 107 bytes (103 on macOS).
_LONGEST_PATH = 103

_logger = logging.getLogger(__name__)


class _Question(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    request: Literal["inspect"]


class _Reply(BaseModel):
    inspection: Inspection | None = None
    error: str | None = None


@contextlib.asynccontextmanager
async def answering(
    folder: Path, inspect: Callable[[], Awaitable[Inspection | None]], *, timeout_s: float = TIMEOUT_S
) -> AsyncIterator[None]:
    """For the block, answer whoever looks into the session of ``folder``, which this process holds.

    ``inspect`` gives the answer; ``timeout_s`` is what a connection may take in all, in seconds.
    """
    window = _Window(inspect, timeout_s)
    async with contextlib.AsyncExitStack() as stack:
        try:
            path = address(folder)
            server = await asyncio.start_unix_server(window.answer, path, limit=_REQUEST)
        except OSError as error:  # a session that cannot be looked into is one all the same
            _logger.warning("session %s cannot be looked into from other processes: %s", folder.name, error)
        else:
            stack.push_async_callback(window.close)
            stack.callback(path.unlink, missing_ok=True)
            stack.callback(server.close)
        yield


def look(folder: Path) -> Inspection | None:
    """Return what goes on in the kernel of the session of ``folder``, None when it has no kernel now. Blocks.

    Raises:
        SessionNotOpen: no process holds the session.
        LogError: the process that holds it does not answer.
    """
    try:
        reply = _Reply.model_validate_json(_asked(address(folder)))
    except (FileNotFoundError, ConnectionRefusedError):
        raise SessionNotOpen(
            f"no process holds session {folder.name}, so nothing runs in it; `prime-repl sessions show` without --live "
            "tells what has happened"
        ) from None
    except (OSError, ValidationError) as error:
        words = "in time" if isinstance(error, TimeoutError) else f"as it should ({type(error).__name__})"
        raise LogError(f"the process that holds session {folder.name} does not answer {words}; try again") from None
    if reply.error is not None:
        raise LogError(f"the process that holds session {folder.name} refuses: {reply.error}")
    return reply.inspection


class _Window:
    """The owner's side."""

    def __init__(self, inspect: Callable[[], Awaitable[Inspection | None]], timeout_s: float) -> None:
        self._inspect = inspect
        self._timeout_s = timeout_s
        self._answering: set[asyncio.Task[None]] = set()

    def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection."""
        if len(self._answering) >= _AT_ONCE:
            writer.close()
            return
        task = asyncio.create_task(self._answer(reader, writer))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def close(self) -> None:
        """End what is being answered."""
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await self._reply(reader)
                writer.write(reply.model_dump_json().encode() + b"\n")
                await writer.drain()
        except (TimeoutError, OSError):
            pass  # whoever asked has asked nothing in time, or has gone
        finally:
            writer.close()

    async def _reply(self, reader: asyncio.StreamReader) -> _Reply:
        try:
            _Question.model_validate_json(await reader.readline())
        except ValueError:  # too long a line, or something else than the question
            return _Reply(error='the only request is {"request": "inspect"} on one line')
        return _Reply(inspection=await self._inspect())


def _asked(path: Path) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(path))
        connection.sendall(b'{"request": "inspect"}\n')
        data = b""
        while len(data) <= _REPLY and (piece := connection.recv(65_536)):
            data += piece
    return data


def address(folder: Path) -> Path:
    """Return where the owner of a session listens: in its folder, or, when that path is too long for a socket, in a
    folder of the user's own in ``/tmp``.

    Raises:
        OSError: somebody else has taken that one.
    """
    folder = folder.resolve()
    path = folder / "live"
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        return path
    private = Path("/tmp") / f"prime-repl-{os.getuid()}"  # not TMPDIR, which may differ between the processes
    private.mkdir(mode=0o700, exist_ok=True)
    found = private.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{private} is not a folder of this user alone; remove it")
    return private / hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]
