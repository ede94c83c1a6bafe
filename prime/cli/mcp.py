"""The commands about MCP servers, with their arguments."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

app = typer.Typer()

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name: its tools are `tools.NAME_TOOL`.")]
Pairs = list[str] | None


@app.callback(invoke_without_command=True)
def help_without_command(context: typer.Context) -> None:
    """Add, list, remove and test MCP servers, whose tools cells can call."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def add(
    name: Name,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND ARGS]", help="A program that is spoken to over stdio.")
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="A server that speaks streamable HTTP.")
    ] = None,
    env: Annotated[Pairs, typer.Option("--env", metavar="NAME=VALUE", help="A variable of the program.")] = None,
    pass_env: Annotated[Pairs, typer.Option("--pass-env", metavar="NAME", help="Pass on a variable of yours.")] = None,
    header: Annotated[Pairs, typer.Option("--header", metavar="NAME=VALUE", help="A header of requests.")] = None,
    token_env: Annotated[
        str | None, typer.Option("--token-env", metavar="NAME", help="The variable with the token for --url.")
    ] = None,
) -> None:
    """Add a server to your configuration: a command after `--`, or an address with --url."""
    from prime.cli import servers

    given = {
        "command": command[0] if command else None,
        "args": (command or [])[1:],
        "url": url,
        "env": servers.pairs("--env", env or ()),
        "pass_env": pass_env or [],
        "headers": servers.pairs("--header", header or ()),
        "token_env": token_env,
    }
    servers.add(name, {key: value for key, value in given.items() if value})


@app.command("list")
def list_(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False) -> None:
    """List the servers of your configuration."""
    from prime.cli import servers

    servers.table(as_json=as_json)


@app.command()
def remove(name: Name) -> None:
    """Take a server out of your configuration."""
    from prime.cli import servers

    servers.remove(name)


@app.command()
def test(name: Name) -> None:
    """Start a server and list its tools as cells see them. Exit code 1 when that fails."""
    from prime.cli import servers

    raise typer.Exit(asyncio.run(servers.test(name)))
