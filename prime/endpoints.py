"""Where MCP servers are: what a person's configuration says of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
#: Hosts of this machine, to which a token may go without encryption.
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

_Texts = Annotated[Mapping[str, str], AfterValidator(MappingProxyType)]


def _none() -> Mapping[str, Any]:
    return MappingProxyType({})


class Endpoint(BaseModel):
    """A server: a program that is spoken to over its standard streams, or an address. Times are seconds.

    Attributes:
        command, args: the program.
        env: variables that it gets, besides ``PATH``, ``HOME`` and the like.
        pass_env: names of further variables of the user's environment that it gets.
        cwd: its folder, by default the session's.
        url: the address of a server that speaks streamable HTTP.
        headers: sent with every request.
        token_env: the variable that holds the token for ``Authorization: Bearer``.
        token_for: the origin (``https://host``) that the token is for. With another ``url`` it is not sent.
        start_s: time to start and to list its tools.
        call_s: silence of a call; a sign of progress begins it again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str | None = None
    args: tuple[str, ...] = ()
    env: _Texts = Field(default_factory=_none, repr=False)
    pass_env: tuple[str, ...] = ()
    cwd: Annotated[Path, AfterValidator(Path.expanduser)] | None = None
    url: str | None = None
    headers: _Texts = Field(default_factory=_none, repr=False)
    token_env: str | None = None
    token_for: str | None = None
    start_s: float = Field(20.0, gt=0)
    call_s: float = Field(60.0, gt=0)

    @model_validator(mode="after")
    def _one_way(self) -> Endpoint:
        if (self.command is None) == (self.url is None):
            raise ValueError("a server has either a command or a url")
        if self.url is not None and not origin(self.url):
            raise ValueError("a url begins with https:// or http:// and a host")
        if (self.token_env is None) != (self.token_for is None):
            raise ValueError("token_env and token_for stand together: where a token is, and which origin it is for")
        return self

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables whose values it is given."""
        return (*self.pass_env, *((self.token_env,) if self.token_env else ()))

    def headers_with(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of every request.

        Raises:
            ValueError: the token is for another origin, is not there, or would go over the network in the clear.
        """
        if self.token_env is None or self.url is None:
            return dict(self.headers)
        if origin(self.url) != origin(self.token_for or ""):
            raise ValueError(
                f"its url is at {origin(self.url)}, but the token in {self.token_env} is for {self.token_for}"
            )
        if urlsplit(self.url).scheme != "https" and urlsplit(self.url).hostname not in _LOOPBACK:
            raise ValueError("a token is sent over https only")
        token = variables.get(self.token_env)
        if not token:
            raise ValueError(f"the variable {self.token_env}, which holds its token, is not set")
        return {**self.headers, "Authorization": f"Bearer {token}"}


@dataclass(frozen=True, slots=True)
class Place:
    """What servers of a session are given.

    Attributes:
        folder: where programs run that name no other.
        variables: those that endpoints name, by name.
        mark: what every program of the session has in its environment.
    """

    folder: Path
    variables: Mapping[str, str] = field(default_factory=_none, repr=False)
    mark: Mapping[str, str] = field(default_factory=_none)


def origin(url: str) -> str:
    """Return scheme, host and port of an address, or nothing when it is none of HTTP."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def _named(endpoints: Mapping[str, Endpoint]) -> Mapping[str, Endpoint]:
    for name in endpoints:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name for a server: letters, digits, '-' and '_', a letter first")
    return MappingProxyType(endpoints)


#: Servers by name.
Endpoints = Annotated[Mapping[str, Endpoint], AfterValidator(_named)]
