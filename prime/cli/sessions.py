"""The commands about recorded sessions, with their arguments."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()

Id = Annotated[str, typer.Argument(metavar="ID", help="An id, the start of one, or `last`.")]

_SHEET = "Prices to compare by instead of the model's own, such as flash."


class Format(StrEnum):
    """What a session can be exported to."""

    md = "md"
    jsonl = "jsonl"


@app.callback(invoke_without_command=True)
def help_without_command(context: typer.Context) -> None:
    """List, show, export, fork, verify, price and delete recorded sessions, and say what they cost."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("list")
def list_(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    children: Annotated[bool, typer.Option("--children", help="List those of children below their parents'.")] = False,
) -> None:
    """List all sessions, newest first."""
    from prime.cli import recorded

    recorded.table(as_json=as_json, children=children)


@app.command()
def show(
    name: Id,
    as_json: Annotated[bool, typer.Option("--json", help="Print every entry, one JSON object a line.")] = False,
    live: Annotated[bool, typer.Option("--live", help="Look into its running cell: names, place, time.")] = False,
    connection: Annotated[bool, typer.Option("--connection", help="Print its kernel's connection file.")] = False,
) -> None:
    """Print what happened in a session, or what goes on in one that a process holds."""
    from prime.cli import inspections, recorded

    if live and connection:
        raise typer.BadParameter("give --live or --connection, not both")
    if live:
        inspections.show(name, as_json=as_json)
    elif connection:
        inspections.connection(name)
    else:
        recorded.show(name, as_json=as_json)


@app.command()
def export(
    name: Id,
    to: Annotated[Format, typer.Option("--to", help="Markdown to read, or every entry as JSON.")] = Format.md,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write.")] = None,
) -> None:
    """Export a session to stdout or a file. The images of a Markdown file go into a folder beside it."""
    from prime.cli import recorded

    recorded.export(name, to.value, output)


@app.command()
def fork(
    name: Id,
    turn: Annotated[int | None, typer.Option("--turn", metavar="N", help="Keep the turns up to this one.")] = None,
    at: Annotated[int | None, typer.Option("--at", metavar="SEQ", help="Keep the entries up to this one.")] = None,
) -> None:
    """Copy a session, whole or up to a point. Prints the id of the copy."""
    from prime.cli import recorded

    if turn is not None and at is not None:
        raise typer.BadParameter("give --turn or --at, not both")
    typer.echo(recorded.fork(name, turn, at))


@app.command()
def verify(
    name: Annotated[str | None, typer.Argument(metavar="ID", help="An id, the start of one, or `last`.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Check every session.")] = False,
    recoverable: Annotated[
        bool, typer.Option("--recoverable", help="Check that its next request leads to everything in it.")
    ] = False,
) -> None:
    """Check a session and every request it sent. Exit code 1 when something is not as it was written."""
    from prime.cli import recorded

    if (name is None) == (not every):
        raise typer.BadParameter("give a session's ID or --all")
    raise typer.Exit(0 if recorded.verify(name, recoverable=recoverable) else 1)


@app.command()
def cost(
    name: Annotated[str | None, typer.Argument(metavar="ID", help="One session and its children.")] = None,
    day: Annotated[bool, typer.Option("--day", help="Add up by day.")] = False,
    sheet: Annotated[str | None, typer.Option("--sheet", metavar="NAME", help=_SHEET)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Say what all sessions have cost, or one with its children, by what the providers reported."""
    from prime.cli import costs

    costs.show(name, sheet, by_day=day, as_json=as_json)


@app.command()
def price(
    name: Id,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", metavar="POLICY", help="Another context policy; may be repeated.")
    ] = None,
    sheet: Annotated[str | None, typer.Option("--sheet", metavar="NAME", help=_SHEET)] = None,
    window: Annotated[
        int | None, typer.Option("--window", metavar="N", min=1, help="The model's window in tokens, if unknown.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Price a session's requests, also as other context policies would have made them. No model is asked."""
    from prime.cli import prices

    prices.show(name, policy or [], sheet, window, as_json=as_json)


@app.command()
def delete(
    name: Id,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a session for good."""
    from prime.cli import recorded

    session = recorded.resolve(name)
    if not yes and not sys.stdin.isatty():
        raise typer.BadParameter(f"deleting {session} is for good; pass --yes")
    if not yes:
        typer.confirm(f"Delete {session} for good?", abort=True)
    recorded.delete(session)
    typer.echo(f"deleted {session}")
