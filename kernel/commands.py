"""Shell commands in cells: ``!command``, ``%%bash`` and ``%%sh``.

IPython runs the first in a pseudo-terminal and the others until every holder of their output has closed it. Here a
command runs without a terminal, cannot ask anything, and is over when its own process is: what it leaves in the
background does not keep the cell waiting.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from typing import IO, Any

from IPython.core.magic import Magics, cell_magic, magics_class

#: Seconds that output still on its way may take after the command itself has ended.
_REST_S = 0.2


def run(arguments: list[str], script: str | None = None) -> int:
    """Run a program, its output going to this cell's, and return its exit code (negative for a signal).

    An interrupt of the cell kills the program. ``script`` is its standard input, empty by default.
    """
    process = subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL if script is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    pumps = [
        threading.Thread(target=_pump, args=(process.stdout, sys.stdout), daemon=True),
        threading.Thread(target=_pump, args=(process.stderr, sys.stderr), daemon=True),
    ]
    for pump in pumps:
        pump.start()
    try:
        if process.stdin is not None:
            _feed(process.stdin, script or "")
        code = process.wait()
    except BaseException:  # the interrupt of the cell, above all
        process.kill()
        process.wait()
        raise
    for pump in pumps:
        pump.join(_REST_S)
    return code


def shell_program(name: str = "bash") -> str:
    """Return the path of the shell ``name``, else of ``sh``."""
    return shutil.which(name) or "/bin/sh"


@magics_class
class CommandMagics(Magics):
    """The cell magics that run a shell script."""

    @cell_magic
    def bash(self, line: str, cell: str) -> None:
        """Run the cell with bash. A non-zero exit raises ``CalledProcessError``."""
        _script("bash", line, cell)

    @cell_magic
    def sh(self, line: str, cell: str) -> None:
        """Run the cell with sh. A non-zero exit raises ``CalledProcessError``."""
        _script("sh", line, cell)


def _script(name: str, line: str, cell: str) -> None:
    if line.strip():
        raise ValueError(f"%%{name} takes no options here; put everything in the cell")
    code = run([shell_program(name), "-s"], cell)
    if code:
        raise subprocess.CalledProcessError(code, f"%%{name}")


def _feed(pipe: IO[bytes], script: str) -> None:
    try:
        with pipe:
            pipe.write(script.encode())
    except BrokenPipeError:
        return  # the program ended without reading it all


def _pump(pipe: IO[bytes], stream: Any) -> None:
    with pipe:
        while data := pipe.read1(65_536):  # type: ignore[attr-defined]
            stream.write(data.decode(errors="replace"))
