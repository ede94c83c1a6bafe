"""One server: a task of its own opens, keeps and closes the connection; calls come from anywhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

import anyio
import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from prime.endpoints import Endpoint, Place
from prime.errors import ToolFailed

#: Tools of one server beyond which the rest is not taken in.
_MOST_TOOLS = 1_000
#: Seconds to connect, and of silence of a response over HTTP (the calls have limits of their own).
_HTTP = httpx2.Timeout(30.0, read=3_600.0)


class Unavailable(Exception):
    """A server cannot be reached; the message says why, on one line."""


@dataclass(eq=False)
class _Link:
    """A connection that is open until ``ended`` is set, by whoever notices the end first."""

    client: Client
    tools: tuple[types.Tool, ...]
    ended: anyio.Event = field(default_factory=anyio.Event)


class Connection:
    """A server, connected when it is first needed and again after it has died."""

    def __init__(self, name: str, endpoint: Endpoint, place: Place, errors: TextIO | None) -> None:
        """``errors`` takes what a program writes to its standard error; nobody does when it is None."""
        self.name = name
        self._endpoint = endpoint
        self._place = place
        self._errors = errors
        self._link: _Link | None = None
        self._opening = asyncio.Lock()
        self._owners: set[asyncio.Task[None]] = set()
        self._scopes: set[anyio.CancelScope] = set()

    async def tools(self) -> tuple[types.Tool, ...]:
        """Return the tools of the server; connect to it when there is no connection.

        Raises:
            Unavailable: it cannot be reached within its time.
        """
        return (await self._open()).tools

    async def call(self, tool: str, arguments: Mapping[str, Any], *, repeatable: bool) -> types.CallToolResult:
        """Call a tool. When the server dies meanwhile, a ``repeatable`` call is made again, once.

        Raises:
            ToolFailed: ``unavailable``: it did not begin; ``outcome_unknown`` or ``timeout``: it may have had effects;
                ``failed``: the server says so.
        """
        for last in (not repeatable, True):
            try:
                link = await self._open()
            except Unavailable as error:
                raise ToolFailed("unavailable", f"the MCP server {self.name} {error}; the call did not begin") from None
            try:
                return await self._ask(link, tool, arguments)
            except MCPError as error:
                if error.code != types.CONNECTION_CLOSED:
                    raise ToolFailed("failed", f"the MCP server {self.name}: {error.message}") from None
                link.ended.set()
                if last:
                    break
        what = f"the connection to the MCP server {self.name} ended during the call"
        raise ToolFailed("outcome_unknown", f"{what}; it may have had effects, and was not repeated")

    async def close(self) -> None:
        """End the connection, and the program with it."""
        for scope in self._scopes:
            scope.cancel()
        if self._owners:
            await asyncio.wait(self._owners)

    async def _ask(self, link: _Link, tool: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
        limit, clock = self._endpoint.call_s, asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(limit) as deadline:

                async def progress(progress: float, total: float | None, message: str | None) -> None:
                    if not deadline.expired():
                        deadline.reschedule(clock() + limit)

                return await link.client.call_tool(tool, dict(arguments), progress_callback=progress)
        except TimeoutError:
            what = f"the MCP server {self.name} gave no sign for {limit:g} s, so the call was cancelled"
            raise ToolFailed("timeout", f"{what}; it may have had effects") from None

    async def _open(self) -> _Link:
        async with self._opening:
            if self._link is not None and not self._link.ended.is_set():
                return self._link
            ready: asyncio.Future[_Link] = asyncio.get_running_loop().create_future()
            scope = anyio.CancelScope()
            owner = asyncio.create_task(self._own(ready, scope), name=f"mcp {self.name}")
            self._owners.add(owner)
            self._scopes.add(scope)
            owner.add_done_callback(self._owners.discard)
            owner.add_done_callback(lambda _: self._scopes.discard(scope))
            try:
                async with asyncio.timeout(self._endpoint.start_s):
                    self._link = await ready
            except TimeoutError:
                scope.cancel()
                raise Unavailable(f"did not start within {self._endpoint.start_s:g} s") from None
            except asyncio.CancelledError:
                scope.cancel()
                raise
            return self._link

    async def _own(self, ready: asyncio.Future[_Link], scope: anyio.CancelScope) -> None:
        """Open a connection, keep it until it ends, and close it: all in this task, as its scopes demand."""
        with scope:
            try:
                async with AsyncExitStack() as stack:
                    ended = anyio.Event()
                    transport = await self._transport(stack)
                    client = await stack.enter_async_context(Client(_watched(transport, ended)))
                    link = _Link(client, await _listed(client), ended)
                    if not ready.done():
                        ready.set_result(link)
                    await ended.wait()
            except Exception as error:
                # after the start, an end with an error is an end like any other: the next call opens a new one
                if not ready.done():
                    ready.set_exception(Unavailable(_reason(error)))

    async def _transport(self, stack: AsyncExitStack) -> Any:
        at = self._endpoint
        if at.url is not None:
            client = httpx2.AsyncClient(headers=at.headers_with(self._place.variables), timeout=_HTTP)
            return streamable_http_client(at.url, http_client=await stack.enter_async_context(client))
        given = self._place.variables
        passed = {name: given[name] for name in at.pass_env if name in given}
        parameters = StdioServerParameters(
            command=at.command or "",
            args=list(at.args),
            env={**passed, **at.env, **self._place.mark},
            cwd=at.cwd or self._place.folder,
        )
        if self._errors is not None:
            return stdio_client(parameters, self._errors)
        return stdio_client(parameters, stack.enter_context(open(os.devnull, "w")))  # noqa: ASYNC230 (no disk is waited for)


async def _listed(client: Client) -> tuple[types.Tool, ...]:
    if client.server_capabilities.tools is None:
        return ()
    tools: list[types.Tool] = []
    cursor = None
    while len(tools) < _MOST_TOOLS:
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tuple(tools[:_MOST_TOOLS])


@asynccontextmanager
async def _watched(transport: Any, ended: anyio.Event) -> AsyncIterator[Any]:
    """Give the streams of a transport, and set ``ended`` when the other side has gone."""
    async with transport as (read, write):
        yield _Watched(read, ended), write


class _Watched:
    """A stream of messages that tells of its end."""

    def __init__(self, stream: Any, ended: anyio.Event) -> None:
        self._stream = stream
        self._ended = ended

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._ended.set()
            raise

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> _Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await self._stream.__aexit__(*failure)


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError):
        return f"cannot be started: there is no program {error.filename!r}"
    if isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED:
        return "ended before it was ready"
    words = " ".join(str(error).split()) or type(error).__name__
    return f"cannot be used: {words:.300}"
