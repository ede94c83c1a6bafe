"""MCP servers in the user's configuration file, which is edited with its comments."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomlkit
import typer
from pydantic import TypeAdapter, ValidationError
from tomlkit.exceptions import TOMLKitError

from prime.config import Config, load, user_file
from prime.endpoints import Endpoint, Endpoints, origin
from prime.errors import ConfigError
from prime.mcp.servers import Servers

_TABLE = "mcp_servers"


def pairs(option: str, given: Iterable[str]) -> dict[str, str]:
    """Return ``NAME=VALUE`` pairs as a dict.

    Raises:
        BadParameter: one of them is none.
    """
    found = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{option} takes NAME=VALUE, not {pair!r}")
        found[name] = value
    return found


def add(name: str, given: Mapping[str, Any]) -> None:
    """Add a server.

    Raises:
        ConfigError: there is one of that name, or it cannot be one.
    """
    settings = dict(given)
    if "token_env" in settings:
        settings["token_for"] = origin(settings.get("url", ""))
    try:
        TypeAdapter(Endpoints).validate_python({name: settings})
    except ValidationError as error:
        raise ConfigError(f"{name}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    document = _document()
    servers = document.setdefault(_TABLE, tomlkit.table(is_super_table=True))
    if name in servers:
        raise ConfigError(f"there is a server {name} already; run `prime-repl mcp remove {name}` first")
    servers[name] = settings
    _write(document)
    print(f"added {name} to {user_file()}")


def remove(name: str) -> None:
    """Remove a server.

    Raises:
        ConfigError: there is none of that name.
    """
    document = _document()
    servers = document.get(_TABLE, {})
    if name not in servers:
        raise _unknown(name, servers)
    del servers[name]
    if not servers:
        del document[_TABLE]
    _write(document)
    print(f"removed {name} from {user_file()}")


def table(*, as_json: bool) -> None:
    """Print the servers; of variables and headers only the names."""
    for name, endpoint in _config().mcp_servers.items():
        if as_json:
            print(json.dumps(_row(name, endpoint), ensure_ascii=False))
            continue
        token = f"  (token: {endpoint.token_env})" if endpoint.token_env else ""
        print(f"{name:<16} {_where(endpoint)}{token}")


async def test(name: str) -> int:
    """Start a server and print its tools; return 1 when it fails. What it writes to its standard error is shown."""
    config = _config()
    if name not in config.mcp_servers:
        raise _unknown(name, config.mcp_servers)
    servers = Servers({name: config.mcp_servers[name]}, config.server_environment, sys.stderr)
    async with servers.serving(Path.cwd()):
        for tool in servers.tools(()):
            taken = ", ".join(
                f"{one.name}: {one.annotation}" + (f" = {one.default}" if one.default is not None else "")
                for one in tool.signature.parameters
            )
            print(f"{tool.target}({taken}) -> {tool.binding().returns}")
        return 1 if servers.failures else 0


def _row(name: str, endpoint: Endpoint) -> dict[str, Any]:
    return {
        "name": name,
        "at": _where(endpoint),
        "env": [*endpoint.env, *endpoint.pass_env],
        "headers": [*endpoint.headers],
        "token_env": endpoint.token_env,
    }


def _where(endpoint: Endpoint) -> str:
    return endpoint.url or " ".join((endpoint.command or "", *endpoint.args))


def _config() -> Config:
    # the configuration of the user: a project's file has no part in it, wherever the command is run
    return load(user_file().parent)


def _unknown(name: str, known: Iterable[str]) -> ConfigError:
    return ConfigError(f"there is no server {name!r}; there are: {', '.join(known) or 'none'}")


def _document() -> tomlkit.TOMLDocument:
    path = user_file()
    try:
        return tomlkit.parse(path.read_text(encoding="utf-8")) if path.exists() else tomlkit.document()
    except (OSError, ValueError, TOMLKitError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


def _write(document: tomlkit.TOMLDocument) -> None:
    """Replace the file in one step. A new one is for its owner alone: it may hold keys."""
    path = user_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    draft.touch(mode=path.stat().st_mode & 0o777 if path.exists() else 0o600)
    draft.write_text(tomlkit.dumps(document), encoding="utf-8")
    draft.replace(path.resolve())
