"""One kernel process: its private folder, its environment, its start and its end."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import prime_kernel
import psutil
from jupyter_client.connect import write_connection_file
from prime_kernel.launch import SOCKET, TOKEN
from prime_kernel.marks import FOLDER

from prime import reaper
from prime.errors import KernelStartFailed
from prime.repl.death import cause, oom_kills
from prime.repl.template import Forked, Template

#: Bytes kept of what the process itself prints, for the message when it does not start.
_TAIL = 8_192

#: A Unix socket's path has at most 107 bytes (103 on macOS); ours add at most 20 to the folder's.
_LONGEST_FOLDER = 80

#: Want of processes, memory, or descriptors: it may pass.
_PASSING = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}

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
    """

    python: str
    cwd: Path
    environment: Mapping[str, str]
    patience_s: float = 30.0


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

    def remove(self) -> None:
        """Remove the folder with all it holds."""
        shutil.rmtree(self.path, ignore_errors=True)


class KernelProcess:
    """A started kernel process, the leader of its own process group."""

    def __init__(self, process: asyncio.subprocess.Process | Forked, output: int, mark: reaper.Mark) -> None:
        self._process = process
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
                process = await _start(launch, arguments, variables, write)
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        return cls(process, read, mark)

    @property
    def pid(self) -> int:
        """The process id, which is also the group's."""
        return self._process.pid

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
        return cause(code, self.printed, out_of_memory=oom_kills() > self._oom_kills)

    @property
    def over(self) -> bool:
        """Whether the process has ended, even if the event loop has not heard of it yet."""
        if self._process.returncode is not None:
            return True
        try:
            return psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE
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
    launch: Launch, arguments: Sequence[str], variables: Mapping[str, str], output: int
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            launch.python,
            str(Path(prime_kernel.__file__).with_name("launch.py")),
            *arguments,
            cwd=launch.cwd,
            # ipykernel ends itself when this process is gone
            env={**variables, "JPY_PARENT_PID": str(os.getpid())},
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
