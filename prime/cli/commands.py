"""Every command with its arguments, and what becomes of errors: one line and an exit code.

What a command needs is imported when it runs: the kernel's and the models' libraries take most of a second, and
``--help`` or ``sessions list`` need none of them.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from prime.cli import mcp, sessions
from prime.cli.options import KernelOptions, ModelOptions, OutputOptions, flat
from prime.errors import ConfigError, ModelNotFound, PrimeError

#: Exit codes: a failure, wrong usage or configuration, a signal (as shells count it).
FAILED, USAGE, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    name="prime-repl",
    help="An agent whose only tool is a persistent IPython kernel. New here? Try `prime-repl demo`.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(sessions.app, name="sessions")
app.add_typer(mcp.app, name="mcp")

Session = Annotated[
    str | None, typer.Option("--session", "-s", metavar="ID", help="Go on with this session: an id, its start, `last`.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"prime-repl {version('prime-repl')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    shows_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Take the options that stand before a command, and help when there is none. :func:`main` reads ``--debug``."""
    sessions.help_without_command(context)


@app.command()
@flat
def run(
    model: ModelOptions,
    kernel: KernelOptions,
    output: OutputOptions,
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="What to do; `-` reads standard input.")] = None,
    session: Session = None,
    image: Annotated[
        list[Path] | None, typer.Option("--image", metavar="FILE", help="Show the model a picture.")
    ] = None,
) -> None:
    """Work on one task: progress on stderr, the answer on stdout.

    Exit code: 0 done, 1 error, 2 wrong usage, 3 a limit was reached, 130 interrupted.
    """
    from prime.cli import headless

    if output.approvals not in (None, "stdin") or (output.approvals and (not output.as_json or task in (None, "-"))):
        raise typer.BadParameter("--approvals is `stdin`, with --json and the task as an argument")
    pictures = tuple(image or ())
    job = headless.Job(_task(task), pictures, session, kernel.cwd, output.form, output.approvals is not None)
    _leave(headless.run(model.config(kernel), job))


@app.command()
@flat
def chat(
    model: ModelOptions,
    kernel: KernelOptions,
    session: Session = None,
    goes_on: Annotated[bool, typer.Option("--continue", "-c", help="Go on with the last session.")] = False,
) -> None:
    """Talk with the agent. Ctrl-C interrupts it, Ctrl-D ends; typing while it works steers it."""
    from prime.cli import chat as talk

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("chat needs a terminal; use `prime-repl run` in scripts")
    _leave(talk.chat(model.config(kernel), kernel.cwd, "last" if goes_on else session))


@app.command()
@flat
def cell(
    kernel: KernelOptions,
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="File with one cell; `-`: standard input.")] = None,
    code: Annotated[list[str] | None, typer.Option("-c", metavar="CODE", help="A cell; may be given again.")] = None,
    session: Session = None,
    as_json: Json = False,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Run later cells after one that failed.")] = False,
) -> None:
    """Run cells in a kernel with the agent's tools, without a model. Exit code 1 when one fails."""
    from prime.cli import cells

    if (file is None) == (not code):
        raise typer.BadParameter("give either -c CODE or one FILE (`-`: standard input)")
    sources = tuple(code) if code else (_read(file or ""),)
    _leave(cells.run(kernel.config(), cells.Job(sources, session, kernel.cwd, as_json, keep_going)))


@app.command()
@flat
def demo(model: ModelOptions, kernel: KernelOptions) -> None:
    """Watch the agent work in the current folder. Without a model a script that ships plays its part."""
    from prime.cli import demo as shown

    _leave(shown.demo(model.config(kernel), kernel.cwd))


@app.command()
@flat
def models(
    model: ModelOptions,
    as_json: Json = False,
    check: Annotated[bool, typer.Option("--check", help="Ask each for a tiny reply (this may cost money).")] = False,
) -> None:
    """List the models that can be used. The first one is what `run` takes."""
    from prime.cli import models as listed

    _leave(listed.show(model.config(KernelOptions()), as_json=as_json, check=check))


@app.command()
@flat
def doctor(model: ModelOptions, kernel: KernelOptions, as_json: Json = False) -> None:
    """Check the environment, with a fix for each finding. Exit code 1 when something needed is broken."""
    from prime.cli import doctor as checked

    _leave(checked.doctor(model.config(kernel), as_json=as_json))


def main() -> NoReturn:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    debug = "--debug" in sys.argv[1:3]
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains at its end
        sys.exit(FAILED)
    except Exception as error:
        if debug:
            raise
        print(f"error: {_line(error)}", file=sys.stderr)
        usage = isinstance(error, (ConfigError, ModelNotFound))
        sys.exit(USAGE if usage else getattr(error, "exit_code", FAILED))


def _line(error: Exception) -> str:
    if isinstance(error, typer.Abort):
        return "given up"
    words = error.format_message() if isinstance(error, typer.TyperException) else str(error)
    if not isinstance(error, (PrimeError, typer.TyperException, OSError, UnicodeError)):
        words = f"{type(error).__name__}: {words} (a bug of prime-repl; `prime-repl --debug …` says where)"
    return " ".join(words.split())


def _leave(work: Coroutine[object, object, int]) -> NoReturn:
    """Run a command to its end and exit with its code. The first Ctrl-C cancels it, which closes every bracket."""
    raise typer.Exit(asyncio.run(work))


def _task(task: str | None) -> str:
    if task is None and sys.stdin.isatty():
        raise typer.BadParameter('give a task: prime-repl run "TASK" (`-` reads standard input)')
    words = sys.stdin.read() if task in (None, "-") else str(task)
    if not words.strip():
        raise typer.BadParameter("the task is empty")
    return words


def _read(file: str) -> str:
    return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
