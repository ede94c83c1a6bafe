"""The host's end of the fork template: a process that forks ready-made kernels. See :mod:`prime_kernel.template`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from prime_kernel import template as guest

#: Seconds that the template has for its imports; then kernels are started directly.
_READY_S = 30.0

#: Bytes of environment that a kernel may have more than its template.
_ROOM = 8_192


class Forked:
    """A kernel process that is the template's child, with what is needed of :class:`asyncio.subprocess.Process`.

    Attributes:
        pid: its number.
        returncode: None as long as it lives, and when the template has ended before it and nobody can tell.
    """

    def __init__(self, pid: int, watch: int) -> None:
        loop = asyncio.get_running_loop()
        self.pid = pid
        self.returncode: int | None = None
        self._told: asyncio.Future[int | None] = loop.create_future()
        self._over: asyncio.Future[None] = loop.create_future()
        self._watch = watch
        loop.add_reader(watch, self._ended)

    async def wait(self) -> int | None:
        """Wait for its end and return its exit code, negative for a signal; None when nobody can tell."""
        await asyncio.shield(self._over)
        return await asyncio.shield(self._told)

    def tell(self, code: int | None) -> None:
        """Take its exit code from the template; None when that has ended."""
        self.returncode = code
        if not self._told.done():
            self._told.set_result(code)

    def _ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._watch)
        os.close(self._watch)
        self._over.set_result(None)


class Template:
    """One template process, started when it is first needed. It ends with :meth:`close`, with this process, when it is
    not used for ten minutes.

    ``python`` is the interpreter of the kernels that it forks and ``environment`` what theirs begins with.
    """

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        self._python = python
        self._environment = environment
        self._starting = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._socket: socket.socket | None = None
        self._ready: asyncio.Future[bool] | None = None
        self._asked: deque[asyncio.Future[Forked | None]] = deque()
        self._kernels: dict[int, Forked] = {}
        self._unusable = sys.platform != "linux"

    async def fork(
        self, python: str, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], output: int
    ) -> Forked | None:
        """Return a new process that runs a kernel as ``python`` would with these arguments, in ``cwd`` and with
        ``environment``, writing what it prints itself to ``output``; None when it has to be started directly."""
        if self._unusable or python != self._python or not self._fits(cwd, environment):
            return None
        async with self._starting:
            if self._socket is None and not await self._start():
                return None
            assert self._socket is not None
            request = {"arguments": [*arguments], "cwd": str(cwd), "environment": {**environment}}
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], [output])
            except OSError:  # it has just ended, or the environment is too large for a packet
                return None
            answer: asyncio.Future[Forked | None] = asyncio.get_running_loop().create_future()
            self._asked.append(answer)
        return await answer

    async def close(self) -> None:
        """End the template; the kernels that it has forked go on. Idempotent."""
        self._unusable = True
        self._lose()
        if self._process is not None:
            await self._process.wait()

    def _fits(self, cwd: Path, environment: Mapping[str, str]) -> bool:
        """Tell whether a kernel with ``environment`` would be the same as one that was started with it: what Python and
        the loader read at a start must be the template's."""

        def of_the_start(variables: Mapping[str, str]) -> dict[str, str]:
            return {name: value for name, value in variables.items() if name.startswith(("PYTHON", "LD_"))}

        if not cwd.is_dir():
            return False  # the direct start says so
        if any(not os.path.isabs(entry) for entry in environment.get("PYTHONPATH", "/").split(os.pathsep)):
            return False  # relative to the folder in which the process starts
        return of_the_start(environment) == of_the_start(self._environment)

    async def _start(self) -> bool:
        host, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        host.setblocking(False)
        size = sum(len(os.fsencode(name + value)) + 2 for name, value in self._environment.items())
        own = {guest.SOCKET: str(theirs.fileno()), guest.ROOM: "." * (size + _ROOM)}
        with theirs:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    self._python,
                    str(Path(guest.__file__).with_name("launch.py")),
                    cwd="/",
                    env={**self._environment, **own},
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except OSError:  # the direct start says what is wrong
                host.close()
                return False
        loop = asyncio.get_running_loop()
        self._socket, self._ready = host, loop.create_future()
        loop.add_reader(host, self._receive)
        try:
            async with asyncio.timeout(_READY_S):
                ready = await self._ready
        except TimeoutError:
            ready = False
        except BaseException:
            self._lose()
            raise
        if not ready:
            self._unusable = True
            self._lose()
        return ready

    def _receive(self) -> None:
        assert self._socket is not None
        assert self._ready is not None
        try:
            packet, descriptors, _, _ = socket.recv_fds(self._socket, guest.PACKET, 1)
        except BlockingIOError:
            return
        except OSError:
            packet, descriptors = b"", []
        if not packet:
            self._lose()
            return
        message: dict[str, Any] = json.loads(packet)
        if not message:
            self._ready.set_result(True)
        elif descriptors:
            self._born(Forked(message["pid"], descriptors[0]))
        elif forked := self._kernels.pop(message["pid"], None):
            forked.tell(message["code"])

    def _born(self, forked: Forked) -> None:
        self._kernels[forked.pid] = forked
        answer = self._asked.popleft()
        if answer.cancelled():  # whoever asked has given up
            with suppress(ProcessLookupError):  # it has ended already
                os.killpg(forked.pid, signal.SIGKILL)
        else:
            answer.set_result(forked)

    def _lose(self) -> None:
        """Take notice that the template is gone, or end it by closing its socket."""
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._socket = None
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(False)
        for answer in self._asked:
            if not answer.done():
                answer.set_result(None)
        self._asked.clear()
        for forked in self._kernels.values():
            forked.tell(None)
        self._kernels.clear()
