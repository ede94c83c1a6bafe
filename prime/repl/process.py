"""One kernel process: its private folder, its environment, its start and its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import prime_kernel
import psutil
from jupyter_client.connect import write_connection_file
from prime_kernel.launch import SOCKET, TOKEN
from prime_kernel.marks import FOLDER

from prime import reaper
from prime.errors import KernelStartFailed
from prime.repl.death import cause, oom_kills
from prime.repl.template import Forked, Template
from prime.sandbox import OFF, Sandbox

#: Bytes kept of what the process itself prints, for the message when it does not start.
_TAIL = 8_192

#: A Unix socket's path has at most 107 bytes (103 on macOS); ours add at most 20 to the folder's.
_LONGEST_FOLDER = 80

#: Want of processes, memory, or descriptors: it may pass.
_PASSING = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}

#: What a sandbox adds to the number of the signal that has ended the process inside.
_BY_SIGNAL = 128

#: Seconds from the end of a process until what it had published is surely read.
_SETTLE_S = 0.05


class Unusable(KernelStartFailed):
    """A kernel that cannot be started as asked; trying again changes nothing."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start kernel processes.

    Attributes:
        python: the interpreter; it needs ipykernel and nothing else.
        cwd: where cells run.
        environment: the whole environment of the process; ours is not inherited.
        patience_s: seconds without a heartbeat after which a process that should run a cell counts as stuck.
        sandbox: what they may see and change.
    """

    python: str
    cwd: Path
    environment: Mapping[str, str]
    patience_s: float = 30.0
    sandbox: Sandbox = OFF


class Folder:
    """The private folder (mode 0700) of one kernel process, in ``base`` (None: the system's temporary folder), or in
    ``/tmp`` when the path would be too long for a socket."""

    def __init__(self, base: Path | None = None) -> None:
        path = tempfile.mkdtemp(prefix="prk-", dir=base)
        if len(os.fsencode(path)) > _LONGEST_FOLDER:
            shutil.rmtree(path)
            path = tempfile.mkdtemp(prefix="prk-", dir="/tmp")
        self.path = Path(path)
        self.socket = str(self.path / "bridge")
        self.connection_file = str(self.path / "kernel.json")

    def write_connection(self, key: bytes) -> dict[str, Any]:
        """Write Jupyter's connection file for the ``ipc`` transport and return its content."""
        _, info = write_connection_file(
            self.connection_file, transport="ipc", ip=str(self.path / "k"), key=key, kernel_name="prime-repl"
        )
        return dict(info)

    @contextlib.asynccontextmanager
    async def giving(self, path: Path) -> AsyncIterator[Path]:
        """Give the place in the folder of a copy of the file ``path``, for a process that does not see that one."""
        with self._passage() as (place, file):
            with path.open("rb") as source:
                await asyncio.to_thread(shutil.copyfileobj, source, file)
            file.flush()
            yield place

    @contextlib.asynccontextmanager
    async def taking(self, path: Path) -> AsyncIterator[Path]:
        """Give the place in the folder of an empty file; what the process has written into it is in the file ``path``
        after the block."""
        with self._passage() as (place, file):
            yield place
            with path.open("wb") as target:
                await asyncio.to_thread(shutil.copyfileobj, file, target)

    @contextlib.contextmanager
    def _passage(self) -> Iterator[tuple[Path, BinaryIO]]:
        place = self.path / secrets.token_hex(8)
        try:
            # kept open: the process could put a link to something else in its place
            with os.fdopen(os.open(place, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "r+b") as file:
                yield place, file
        finally:
            place.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder with all it holds."""
        shutil.rmtree(self.path, ignore_errors=True)


class KernelProcess:
    """A started kernel process, in a process group of its own, whose leader it is, or the sandbox around it."""

    def __init__(self, process: asyncio.subprocess.Process | Forked, output: int, mark: reaper.Mark) -> None:
        self._process = process
        self._kernel = process.pid
        self._mark = mark
        self._descendants: set[psutil.Process] = set()
        self._output = output
        self._tail = b""
        self._oom_kills = oom_kills()
        asyncio.get_running_loop().add_reader(output, self._read)

    @classmethod
    async def start(cls, launch: Launch, folder: Folder, token: str, template: Template | None = None) -> KernelProcess:
        """Start the process, from ``template`` if it can.

        Raises:
            Unusable: the interpreter or the working directory is not there.
            KernelStartFailed: there is no room for a process now.
        """
        # also the mark of what it starts: the folder is this process's own
        mark = reaper.Mark(FOLDER, str(folder.path / "ipython"))
        variables = {**launch.environment, mark.variable: mark.value, SOCKET: folder.socket, TOKEN: token}
        arguments = ("-f", folder.connection_file)
        read, write = os.pipe()
        os.set_blocking(read, False)
        process: asyncio.subprocess.Process | Forked | None = None
        try:
            if template is not None:
                process = await template.fork(launch.python, arguments, launch.cwd, variables, write)
            if process is None:
                process = await _start(launch, folder.path, arguments, variables, write)
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        return cls(process, read, mark)

    @property
    def pid(self) -> int:
        """The number of the process that runs the cells."""
        return self._kernel

    def found(self, pid: int) -> None:
        """Take notice that the process inside the sandbox is ``pid``."""
        self._kernel = pid

    @property
    def printed(self) -> str:
        """The end of what the process itself printed."""
        self._read()
        return self._tail.decode(errors="replace").strip()

    def attend(self) -> None:
        """Take notice that a cell begins: what the process has printed and the system has done before explains no later
        end."""
        self._read()
        self._tail = b""
        self._oom_kills = oom_kills()

    async def wait(self) -> str:
        """Wait until the process has ended and what it published can be read; return how it ended, in words."""
        code = await self._process.wait()
        await asyncio.sleep(_SETTLE_S)
        if self._kernel != self._process.pid and code is not None and code > _BY_SIGNAL:
            code = _BY_SIGNAL - code
        return cause(code, self.printed, out_of_memory=oom_kills() > self._oom_kills)

    @property
    def over(self) -> bool:
        """Whether the process has ended, even if the event loop has not heard of it yet."""
        if self._process.returncode is not None:
            return True
        try:
            return psutil.Process(self._process.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def cpu_s(self) -> float:
        """Return the processor seconds that it has used, without its children's; 0 when it is gone."""
        try:
            used = psutil.Process(self.pid).cpu_times()
        except psutil.NoSuchProcess:
            return 0.0
        return float(used.user + used.system)

    def interrupt(self) -> None:
        """Send SIGINT to the group, so that ordinary children of the cell end with it."""
        self._signal(signal.SIGINT)

    def children(self) -> list[psutil.Process]:
        """Return the processes that it has started and that are alive, with theirs."""
        if self.over:  # nobody can tell any more whose children they were
            return []
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:  # it ended in this moment
            return []

    def kill(self) -> None:
        """Send SIGKILL to the group."""
        self._descendants.update(self.children())
        self._signal(signal.SIGKILL)

    async def reap(self) -> None:
        """End what the process, now ended, has started outside its group."""
        await asyncio.to_thread(reaper.end, self._mark, self._descendants)

    def release(self) -> None:
        """Stop reading what the process prints. Idempotent."""
        if self._output >= 0:
            asyncio.get_running_loop().remove_reader(self._output)
            os.close(self._output)
            self._output = -1

    def _signal(self, number: signal.Signals) -> None:
        # the group outlives its leader while a child is in it, and its number is not given again meanwhile; without
        # one there is nobody to signal
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return

    def _read(self) -> None:
        if self._output < 0:
            return
        try:
            while data := os.read(self._output, 65_536):
                self._tail = (self._tail + data)[-_TAIL:]
        except BlockingIOError:
            return
        self.release()


async def _start(
    launch: Launch, folder: Path, arguments: Sequence[str], variables: Mapping[str, str], output: int
) -> asyncio.subprocess.Process:
    command = (launch.python, str(Path(prime_kernel.__file__).with_name("launch.py")), *arguments)
    if launch.sandbox.level == "off":
        # ipykernel ends itself when this process is gone; inside of a sandbox it could not see that it is there
        variables = {**variables, "JPY_PARENT_PID": str(os.getpid())}
    try:
        return await asyncio.create_subprocess_exec(
            *launch.sandbox.command(command, launch.cwd, (folder,)),
            cwd=launch.cwd,
            env=variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    except OSError as error:
        if error.errno in _PASSING:
            raise KernelStartFailed(f"no process can be started: {error.strerror}") from None
        raise Unusable(
            f"no kernel can be started with {launch.python} in {launch.cwd}: {error.strerror or error}; "
            "check both paths"
        ) from None
