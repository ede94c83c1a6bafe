"""The servers of a session, and their tools as tools of its cells."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TextIO

from prime.endpoints import Endpoint, Place
from prime.errors import ToolFailed
from prime.mcp.schema import read_schema, word
from prime.tools.base import Tool

if TYPE_CHECKING:
    import mcp_types as types

    from prime.mcp.connection import Connection

_logger = logging.getLogger(__name__)

#: Characters of a tool's description that are taken over.
_DOC = 4_000
#: Characters of its first paragraph, which stands in every prompt.
_FIRST = 400
#: Characters of one value; a longer one belongs into a file.
_LARGEST = 16 * 1024 * 1024
_MISSING = "needs an optional part that is not installed: pip install 'prime-repl[mcp]'"


class Servers:
    """All servers of a session, started together. One that fails costs a line, and its tools are not there.

    Attributes:
        failures: by server, why it is not there.
        found: by server, how many tools it has.
    """

    def __init__(
        self, endpoints: Mapping[str, Endpoint], variables: Mapping[str, str], errors: TextIO | None = None
    ) -> None:
        """``variables`` are those that endpoints name; ``errors`` takes what programs write to their standard error, by
        default nobody does."""
        self.failures: dict[str, str] = {}
        self.found: dict[str, int] = {}
        self._endpoints = endpoints
        self._variables = variables
        self._errors = errors
        self._tools: list[tuple[Connection, types.Tool]] = []

    @asynccontextmanager
    async def serving(self, folder: Path, mark: Mapping[str, str] = MappingProxyType({})) -> AsyncIterator[None]:
        """Start them all, wait until each is ready or has failed, and end them at the end. ``folder`` is where programs
        run that name no other; all get the variables ``mark``."""
        if not self._endpoints:
            yield
            return
        async with AsyncExitStack() as stack:
            await self._start(stack, Place(folder, self._variables, mark))
            for name, why in self.failures.items():
                _logger.warning("the MCP server %s %s; its tools are missing", name, why)
            yield

    async def _start(self, stack: AsyncExitStack, place: Place) -> None:
        try:
            from prime.mcp.connection import Connection, Unavailable  # noqa: PLC0415
        except ImportError:
            self.failures = dict.fromkeys(self._endpoints, _MISSING)
            return
        connections = [Connection(name, each, place, self._errors) for name, each in self._endpoints.items()]
        for connection in connections:
            stack.push_async_callback(connection.close)
        async with asyncio.TaskGroup() as group:
            listing = [group.create_task(self._list(each, Unavailable)) for each in connections]
        for connection, task in zip(connections, listing, strict=True):
            self._tools += [(connection, tool) for tool in task.result()]

    async def _list(self, connection: Connection, unavailable: type[Exception]) -> list[types.Tool]:
        try:
            tools = await connection.tools()
        except unavailable as error:
            self.failures[connection.name] = str(error)
            return []
        self.found[connection.name] = len(tools)
        return sorted(tools, key=lambda tool: tool.name)

    def tools(self, taken: Collection[str]) -> tuple[Tool, ...]:
        """Return the tools of all servers as ``tools.SERVER_TOOL``, none of them named like one of ``taken``."""
        names = set(taken)
        made = []
        for connection, tool in self._tools:
            wanted = f"tools.{word(connection.name)}_{word(tool.name)}"
            target, number = wanted, 2
            while target in names:
                target, number = f"{wanted}_{number}", number + 1
            names.add(target)
            made.append(_made(target, connection, tool))
        return tuple(made)


def _made(target: str, connection: Connection, tool: types.Tool) -> Tool:
    signature, names = read_schema(target.rpartition(".")[2], tool.input_schema, tool.output_schema)
    read_only = tool.annotations is not None and tool.annotations.read_only_hint is True

    async def function(**values: Any) -> dict[str, Any]:
        arguments = _arguments(values, names, tool.input_schema)
        return _value(tool, await connection.call(tool.name, arguments, repeatable=read_only))

    return Tool(
        target=target,
        doc=_doc(tool) or f"The tool {tool.name} of the MCP server {connection.name}.",
        function=function,
        parallel=read_only,
        effects=not read_only,
        signature=signature,
        model_view=None if tool.output_schema is not None else _shown,
        human_view=None,
    )


def _doc(tool: types.Tool) -> str:
    """Return the description, with a first paragraph that is no longer than one in a prompt may be."""
    doc = (tool.description or tool.title or "").strip()[:_DOC]
    first = doc.partition("\n\n")[0]
    return doc if len(first) <= _FIRST else f"{first[:_FIRST]}…\n\n{doc}"


def _arguments(values: Mapping[str, Any], names: Mapping[str, str], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments under the server's names, without those that were left out.

    Raises:
        ToolFailed: ``bad_arguments``: they are not as the schema says.
    """
    from prime.mcp.checks import problem  # noqa: PLC0415

    required = schema.get("required")
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        if not names[name]:
            arguments |= value if isinstance(value, dict) else {}
        elif value is not None or (isinstance(required, list) and names[name] in required):
            arguments[names[name]] = value
    if (wrong := problem(arguments, schema)) is not None:
        raise ToolFailed("bad_arguments", wrong)
    return arguments


def _value(tool: types.Tool, result: types.CallToolResult) -> dict[str, Any]:
    text, images = [], []
    for part in result.content:
        if part.type == "text":
            text.append(part.text)
        elif part.type == "image":
            images.append({"media_type": part.mime_type, "image": part.data})
        elif part.type == "resource":
            text.append(getattr(part.resource, "text", None) or f"[resource {part.resource.uri}]")
        elif part.type == "resource_link":
            text.append(f"[resource {part.uri}]")
        else:
            text.append(f"[{part.type}]")
    words = "\n".join(text)
    size = len(words) + sum(len(one["image"]) for one in images)
    if size > _LARGEST:
        what = f"{tool.name} gave {size:,} characters, more than {_LARGEST:,}"
        raise ToolFailed("too_large", f"{what}; ask for less, or have the server write a file")
    if result.is_error:
        raise ToolFailed("failed", words or f"{tool.name} failed and does not say why")
    structured = result.structured_content
    if tool.output_schema is not None and isinstance(structured, dict):
        return structured
    return {"text": words, "images": images} | ({"structured": structured} if isinstance(structured, dict) else {})


def _shown(arguments: dict[str, Any], value: Any) -> str:
    pictures = "".join(f"\n[image {number}: {one['media_type']}]" for number, one in enumerate(value["images"], 1))
    return f"{value['text']}{pictures}".strip() or "(nothing)"
