"""Programs that cells start: ``!command``, ``%%bash`` and their kin.

IPython runs some of them in a pseudo-terminal and others until every holder of their output has closed it. Here a
program runs without a terminal, cannot ask anything, and is over when its own process is: what it leaves in the
background does not keep the cell waiting, and what that prints later is late output of the cell that started it.
"""

from __future__ import annotations

import codecs
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO

from .interrupt import policy
from .marks import FOLDER, SESSION

#: Takes a piece of output.
Writer = Callable[[str], object]

#: Seconds that an interrupted program has to end by itself after each of these; then its group is killed. Well within
#: the two seconds in which the host expects an interrupted cell to end.
_REQUESTS = ((signal.SIGINT, 0.3), (signal.SIGTERM, 0.2))

#: Variables that every program gets, whatever cells do to the environment.
_always: dict[str, str] = {}

#: Bytes of one read: more than a pipe can hold, so that one takes all there is.
_READ = 1_048_576


def mark() -> None:
    """Have every program bear the marks that this process has now, by which the host finds it."""
    _always.update({name: os.environ[name] for name in (SESSION, FOLDER) if name in os.environ})


def run(arguments: list[str], script: str | None = None, out: Writer | None = None, err: Writer | None = None) -> int:
    """Run a program and return its exit code (negative for a signal).

    ``script`` is its standard input, empty by default. Its output goes to ``out`` and ``err``, this cell's by default;
    the same writer for both keeps their order. An interrupt of the cell ends the program's whole process group.
    """
    out, err = out or sys.stdout.write, err or sys.stderr.write
    program: _Program | None = None
    try:
        with policy.shield:  # an interrupt between the start and its record would leave it running
            program = _Program(start(arguments, script, stderr=subprocess.STDOUT if err == out else None), out, err)
        program.follow()
    except BaseException:
        if program is not None:
            with policy.shield:  # the host repeats the interrupt until the cell has ended
                program.end()
        raise
    program.leave()
    return program.process.returncode


def start(
    arguments: list[str], script: str | None = None, *, stdout: int | None = None, stderr: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a program in a process group of its own. ``stdout`` and ``stderr`` are pipes by default.

    Raises:
        OSError: it cannot be started.
    """
    with tempfile.TemporaryFile() as given:  # not a pipe, which somebody would have to feed
        given.write((script or "").encode(errors="surrogateescape"))
        given.seek(0)
        return subprocess.Popen(
            arguments,
            stdin=given,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE if stderr is None else stderr,
            start_new_session=True,
            env={**os.environ, **_always},
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program's group: ask, give it a moment, then kill."""
    for request, grace_s in _REQUESTS:
        _signal(process, request)
        with suppress(subprocess.TimeoutExpired):  # what follows is for that
            process.wait(grace_s)
    _signal(process, signal.SIGKILL)  # also what of its group has outlived it
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # nobody is left in it
        os.killpg(process.pid, number)


def shell_program(name: str = "bash") -> str:
    """Return the path of the shell ``name``, else of ``sh``."""
    return shutil.which(name) or "/bin/sh"


class _Program:
    """A running program and its output."""

    def __init__(self, process: subprocess.Popen[bytes], out: Writer, err: Writer) -> None:
        self.process = process
        given = ((process.stdout, out), (process.stderr, err))
        self._pipes = [_Pipe(file, write) for file, write in given if file is not None]
        self._over, self._mark_over = os.pipe()
        self._waiter = threading.Thread(target=self._wait, daemon=True)
        self._waiter.start()

    def follow(self) -> None:
        """Pass its output on until it has ended."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._over, selectors.EVENT_READ)
            for pipe in self._pipes:
                selector.register(pipe.file, selectors.EVENT_READ, pipe)
            while True:
                for key, _ in selector.select():
                    if key.data is None:
                        return
                    if not key.data.pass_on():
                        selector.unregister(key.fileobj)

    def end(self) -> None:
        """End its group, and pass on what it wrote until then."""
        end(self.process)
        self._finish()
        for pipe in self._pipes:
            pipe.file.close()

    def leave(self) -> None:
        """Pass on what it wrote before its end; what it has left in the background may write on."""
        self._finish()
        for pipe in self._pipes:
            if not pipe.file.closed:
                threading.Thread(target=pipe.drain, daemon=True).start()

    def _finish(self) -> None:
        self._waiter.join()
        os.close(self._over)
        for pipe in self._pipes:
            pipe.pass_on()

    def _wait(self) -> None:
        self.process.wait()
        os.close(self._mark_over)


class _Pipe:
    """One of a program's outputs; closed at its end."""

    def __init__(self, file: IO[bytes], write: Writer) -> None:
        self.file = file
        self._write = write
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        os.set_blocking(file.fileno(), False)

    def pass_on(self) -> bool:
        """Pass on what is there; tell whether more can come."""
        if self.file.closed:
            return False
        try:
            data = os.read(self.file.fileno(), _READ)
        except BlockingIOError:
            return True
        text = self._decoder.decode(data, final=not data)
        if text:
            self._write(text)
        if not data:
            self.file.close()
        return bool(data)

    def drain(self) -> None:
        """Pass on everything until its last holder closes it."""
        os.set_blocking(self.file.fileno(), True)
        while self.pass_on():
            pass
