"""IPython's magics where they would start programs, ask somebody or need a screen: done without, or refused with a line
that says what to write instead."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.core.magics.basic import BasicMagics
from IPython.core.magics.osm import OSMagics
from IPython.core.magics.script import ScriptMagics

from . import commands

_NO_DEBUGGER = "nobody can type into a debugger here; print what you want to see, or catch the exception and look at it"

#: Magics that cannot work here, and what to do instead.
REFUSED = {
    "edit": "there is no editor here; write the file with `%%writefile PATH`",
    "debug": _NO_DEBUGGER,
    "pdb": _NO_DEBUGGER,
    "tb": "the traceback is in the result of the cell that raised it",
    "gui": "there is no screen here; save figures to files, or let `%matplotlib inline` show them",
    "colors": "what cells print is plain text here",
    "qtconsole": "there is no screen here",
    "connect_info": "the connection of this kernel holds its key, which does not belong into a record",
    "pastebin": "it would publish the code on a public site; write it to a file with `%save PATH LINES`",
}

#: Shells, which are given a script as an argument: read from standard input, it would be eaten by what it runs.
_SHELLS = ("bash", "sh")


@magics_class
class Scripts(ScriptMagics):
    """``%%script``, and ``%%bash`` and all the others that are made of it."""

    shell: Any

    @cell_magic
    def script(self, line: str, cell: str) -> None:
        """Run the cell with a program, such as ``%%script perl -w``.

        Options: ``--out NAME`` and ``--err NAME`` put its output into a variable, ``--no-raise-error`` lets it fail,
        ``--bg`` does not wait for it (then NAME is a pipe, and ``--proc NAME`` its process).
        """
        self.shebang(line, cell)

    def shebang(self, line: str, cell: str) -> None:
        """Run the cell with the program of the line: what the magics of all interpreters come to."""
        options, command = ScriptMagics.shebang.parser.parse_known_args(shlex.split(line))
        if not command:
            raise UsageError("%%script needs a program, such as `%%script perl`")
        program = shutil.which(command[0]) or (commands.shell_program() if command[0] in _SHELLS else None)
        if program is None:
            raise UsageError(f"%%{command[0]}: there is no program {command[0]!r} here")
        arguments, script = [program, *command[1:]], cell if cell.endswith("\n") else cell + "\n"
        given: str | None = script
        if command[0] in _SHELLS and "-s" not in command:
            arguments, given = [*arguments, "-c", script, command[0]], None
        if options.bg:
            self._start(options, arguments, given)
            return
        code = self._run(options, arguments, given)
        if code and options.raise_error:
            raise subprocess.CalledProcessError(code, shlex.join(command))

    def _run(self, options: Any, arguments: list[str], script: str | None) -> int:
        names = self.shell.user_ns
        out: list[str] = []
        err: list[str] = []
        try:
            code = commands.run(
                arguments, script, out.append if options.out else None, err.append if options.err else None
            )
        finally:
            for name, pieces in ((options.out, out), (options.err, err)):
                if name:
                    names[name] = "".join(pieces)
        names["_exit_code"] = code
        return code

    def _start(self, options: Any, arguments: list[str], script: str | None) -> None:
        process = commands.start(
            arguments,
            script,
            stdout=None if options.out else subprocess.DEVNULL,
            stderr=None if options.err else subprocess.DEVNULL,
        )
        self.bg_processes = [each for each in self.bg_processes if each.poll() is None] + [process]
        kept = {options.out: process.stdout, options.err: process.stderr, options.proc: process}
        self.shell.user_ns.update({name: value for name, value in kept.items() if name})

    @line_magic
    def killbgscripts(self, line: str = "") -> None:  # type: ignore[override]
        """End all programs that ``%%script --bg`` has started."""
        self.kill_bg_processes()

    def kill_bg_processes(self) -> None:
        while self.bg_processes:
            commands.end(self.bg_processes.pop())


@magics_class
class Folders(OSMagics):
    """``%cd``, which says that it moves the kernel alone."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)  # type: ignore[no-untyped-call]
        self._start = os.getcwd()

    @line_magic
    def cd(self, parameter_s: str = "") -> None:
        """Change the kernel's current folder: ``%cd PATH``, ``%cd -`` for the one before, ``%cd`` for the home."""
        target = parameter_s.strip()
        before = os.getcwd()
        super().cd(parameter_s)
        if os.getcwd() != self._start and os.getcwd() != before and "-q" not in target.split():
            print(f"(the kernel alone has moved; host calls take paths from {self._start})")


@magics_class
class Packages(Magics):
    """``%pip`` and ``%uv``, for the interpreter of this kernel."""

    shell: Any

    @line_magic
    def pip(self, line: str) -> None:
        """Run pip for this kernel's interpreter, with uv where that has no pip. The exit code is in ``_exit_code``."""
        if importlib.util.find_spec("pip") is not None:
            self._run(f"{shlex.quote(sys.executable)} -m pip {line}")
        else:
            self._uv(f"pip {line}")

    @line_magic
    def uv(self, line: str) -> None:
        """Run uv for this kernel's interpreter. The exit code is in ``_exit_code``."""
        self._uv(line)

    def _uv(self, line: str) -> None:
        if shutil.which("uv") is None:
            raise UsageError(f"{sys.executable} has no pip, and uv is not there; try `!{sys.executable} -m ensurepip`")
        self._run(f"UV_PYTHON={shlex.quote(sys.executable)} uv {line}")

    def _run(self, command: str) -> None:
        self.shell.system(command)
        importlib.invalidate_caches()  # what is new can be imported at once


@magics_class
class Awaiting(BasicMagics):
    """``%autoawait``, which cells cannot do without."""

    @line_magic
    def autoawait(self, parameter_s: str = "") -> None:
        """Show whether cells may await. It cannot be switched off."""
        if parameter_s.strip():
            raise UsageError("%autoawait: cells of this kernel may always await, with asyncio; nothing to set")
        print("cells may await, with asyncio")


def no_debugger(*args: object, **kwargs: object) -> NoReturn:
    """Stand in for everything that starts a debugger."""
    raise RuntimeError(_NO_DEBUGGER)


def register(shell: InteractiveShell) -> None:
    """Put our magics in the place of IPython's."""
    shell.register_magics(Scripts, Folders, Packages, Awaiting)
    for name, reason in REFUSED.items():
        refusal = _refusing(f"%{name}: {reason}")
        shell.magics_manager.register_function(refusal, "line", name)
        shell.magics_manager.register_function(refusal, "cell", name)
    shell.magics_manager.register_alias("ed", "edit")


def _refusing(message: str) -> Callable[..., NoReturn]:
    def refuse(*given: str) -> NoReturn:
        raise UsageError(message)

    refuse.__doc__ = f"Refused here. {message}"
    return refuse
