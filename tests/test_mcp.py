"""Servers of the SDK's own as real processes and over HTTP on loopback."""

import asyncio
import importlib.util
import json
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvicorn
from families import Cast, family, spawn

from prime import app
from prime.config import Config
from prime.endpoints import Endpoint
from prime.errors import ToolFailed
from prime.mcp.schema import read_schema, resolved
from prime.mcp.servers import Servers
from prime.messages import text_of
from prime.tools.base import Tool
from prime.tools.workspace import Workspace
from prime.views import jsonl

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).parent / "fixtures" / "mcp" / "server.py"


def local(*arguments: str, **others: Any) -> Endpoint:
    return Endpoint(command=sys.executable, args=(str(SERVER), *arguments), **others)


@asynccontextmanager
async def opened(folder: Path, **endpoints: Endpoint) -> AsyncIterator[dict[str, Tool]]:
    servers = Servers(endpoints, {})
    async with servers.serving(folder):
        assert servers.failures == {}
        yield {tool.target.removeprefix("tools."): tool for tool in servers.tools(())}


async def run(tool: Tool, **arguments: Any) -> Any:
    return await tool.run(Workspace(Path.cwd()), arguments)


async def refusal(tool: Tool, **arguments: Any) -> tuple[str, str]:
    with pytest.raises(ToolFailed) as caught:
        await run(tool, **arguments)
    assert "\n" not in str(caught.value)
    return caught.value.code, str(caught.value)


async def test_the_tools_of_a_server(tmp_path: Path):
    async with opened(tmp_path, fix=local()) as tools:
        assert [name for name in tools if not name.startswith("fix_")] == []
        add = tools["fix_add"]
        shown = [(one.name, one.annotation, one.default) for one in add.signature.parameters]
        assert shown == [("a", "int", None), ("b", "int", "2")]
        assert (add.binding().returns, add.doc) == ("{result: int}", "Add two numbers.")
        assert (add.effects, add.parallel) == (False, True)
        assert (tools["fix_fail"].effects, tools["fix_fail"].parallel) == (True, False)
        assert await run(add, a=1) == {"result": 3}
        assert await run(tools["fix_greet"], name="Ann") == {"text": "hello Ann", "images": []}
        assert await run(tools["fix_greet"], name="Ann", loud=True) == {"text": "hello Ann!", "images": []}
        assert tools["fix_greet"].for_model({}, {"text": "hello", "images": []}) == "hello"


async def test_arguments_are_checked_before_they_leave(tmp_path: Path):
    async with opened(tmp_path, fix=local()) as tools:
        for given, words in (
            ({"a": "x"}, ["a", "'x' is not of type 'integer'"]),
            ({}, ["missing argument 'a' (int)"]),
            ({"a": 1, "c": 2}, ["unknown argument 'c'"]),
        ):
            code, message = await refusal(tools["fix_add"], **given)
            assert code == "bad_arguments"
            assert [word for word in words if word not in message] == []


async def test_pictures_failures_and_long_texts(tmp_path: Path):
    async with opened(tmp_path, fix=local()) as tools:
        value = await run(tools["fix_picture"])
        assert [one["media_type"] for one in value["images"]] == ["image/png"]
        assert [part.media_type for part in tools["fix_picture"].images(value)] == ["image/png"]
        assert "[image 1: image/png]" in tools["fix_picture"].for_model({}, value)
        code, message = await refusal(tools["fix_fail"], why="no room")
        assert code == "failed"
        assert "no room" in message
        assert len((await run(tools["fix_large"], size=5_000_000))["text"]) == 5_000_000


async def test_a_server_that_dies_is_started_again_and_no_call_with_effects_repeated(tmp_path: Path):
    note = tmp_path / "note"
    async with opened(tmp_path, fix=local()) as tools:
        first = (await run(tools["fix_pid"]))["text"]
        code, message = await refusal(tools["fix_die"], note=str(note))
        assert code == "outcome_unknown"
        assert "not repeated" in message
        assert note.read_text() == "called\n"
        second = (await run(tools["fix_pid"]))["text"]
        assert second != first
        server = psutil.Process(int(second))
        server.kill()
        await asyncio.to_thread(psutil.wait_procs, [server], 5)
        assert await run(tools["fix_add"], a=1) == {"result": 3}
        assert await run(tools["fix_die_once"], note=str(tmp_path / "once")) == {"result": "alive"}
        last = int((await run(tools["fix_pid"]))["text"])
    assert not psutil.pid_exists(last)


async def test_a_call_that_finds_the_server_gone_has_not_begun_and_goes_to_a_new_one(tmp_path: Path):
    async with opened(tmp_path, fix=local()) as tools:
        first = (await run(tools["fix_pid"]))["text"]
        server = psutil.Process(int(first))
        server.kill()
        await asyncio.to_thread(psutil.wait_procs, [server], 5)
        for _ in range(50):  # rounds of the loop, in which the end of the stream is read
            await asyncio.sleep(0.01)
        assert tools["fix_pid"].effects
        assert (await run(tools["fix_pid"]))["text"] != first


async def test_a_sign_of_progress_keeps_a_call_alive_and_silence_ends_it(tmp_path: Path):
    note = tmp_path / "note"
    async with opened(tmp_path, fix=local(call_s=1.0)) as tools:
        slow = tools["fix_slow"]
        assert (await run(slow, note=str(note), steps=3, pause=0.5))["text"] == "done"
        code, message = await refusal(slow, note=str(note), steps=1, pause=60.0)
        assert code == "timeout"
        assert "1 s" in message
        assert "Cancel" in await asyncio.to_thread(_told, note)


async def test_a_call_that_is_cancelled_is_cancelled_at_the_server(tmp_path: Path):
    note = tmp_path / "note"
    async with opened(tmp_path, fix=local()) as tools:
        task = asyncio.create_task(run(tools["fix_slow"], note=str(note), steps=1_000, pause=0.05))
        await run(tools["fix_pid"])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert "Cancel" in await asyncio.to_thread(_told, note)
        assert await run(tools["fix_add"], a=1) == {"result": 3}


def _told(note: Path) -> str:
    """Wait until another process has written a note, and return it."""
    end = time.monotonic() + 10
    while not (note.exists() and note.read_text()) and time.monotonic() < end:
        time.sleep(0.02)
    return note.read_text()


async def test_a_server_that_fails_costs_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    endpoints = {
        "good": local(),
        "broken": local("--broken"),
        "never": local("--never", start_s=1.0),
        "missing": Endpoint(command="no-such-program"),
        "nobody": Endpoint(url="http://127.0.0.1:9/mcp"),
    }
    with caplog.at_level(logging.WARNING, "prime.mcp"):
        servers = Servers(endpoints, {})
        async with servers.serving(tmp_path):
            assert "tools.good_add" in {tool.target for tool in servers.tools(())}
            assert list(servers.found) == ["good"]
            assert set(servers.failures) == {"broken", "never", "missing", "nobody"}
    assert servers.failures["broken"] == "ended before it was ready"
    assert servers.failures["never"] == "did not start within 1 s"
    assert "no-such-program" in servers.failures["missing"]
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("prime.mcp")]
    assert len(lines) == 4
    assert [line for line in lines if "\n" in line] == []


async def test_two_tools_of_one_name_get_two(tmp_path: Path):
    servers = Servers({"a": local(), "a-": local()}, {})
    async with servers.serving(tmp_path):
        targets = [tool.target for tool in servers.tools({"tools.a_add"})]
    assert {"tools.a_add_2", "tools.a_add_3", "tools.a_greet", "tools.a_greet_2"} <= set(targets)
    assert len(set(targets)) == len(targets)
    assert "tools.a_add" not in targets


async def test_a_program_gets_the_variables_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HIDDEN", "h")
    endpoint = local(env={"FIXED": "f"}, pass_env=("PASSED", "UNSET"))
    servers = Servers({"fix": endpoint}, {"PASSED": "p", "OTHER": "o"})
    async with servers.serving(tmp_path, {"MARK": "m"}):
        [variable] = [tool for tool in servers.tools(()) if tool.target == "tools.fix_variable"]
        names = ("FIXED", "PASSED", "MARK", "UNSET", "OTHER", "HIDDEN")
        values = [(await run(variable, name=name))["text"] for name in names]
    assert values == ["f", "p", "m", "(not set)", "(not set)", "(not set)"]


async def test_cells_call_the_tools_of_servers(home: Path, tmp_path: Path):
    secret = "s3cret-token"
    config = Config(
        home=home,
        guest_environment={name: os.environ[name] for name in ("PATH", "HOME")},
        mcp_servers={"fix": local(pass_env=("KEY",))},
        server_environment={"KEY": secret},
    )
    code = (
        "import asyncio\n"
        "a, b = await asyncio.gather(tools.fix_add(1), tools.fix_add(a=2, b=3))\n"
        "print(a.result, b.result)\n"
        "try:\n    await tools.fix_die('note')\nexcept Exception as error:\n    print(error.code)\n"
        "print(tools.fix_add.__doc__, tools.fix_add.__signature__)\n"
        "r = await tools.fix_large(17_000_000)"
    )
    async with app.workshop(config, tmp_path) as shop:
        ended = await shop.cells.run(code, None, asyncio.Event())
        written = "".join(jsonl.lines(shop.log.entries()))
    shown = text_of(ended.shown)
    assert secret not in written
    assert "3 5\noutcome_unknown\nAdd two numbers. (a: int, b: int = 2) -> {result: int}" in shown
    assert ended.status == "error"
    assert "17,000,000 characters" in shown
    assert "fix_add" in written


async def test_a_family_shares_its_servers(home: Path):
    code = "print('pid', (await tools.fix_pid()).text, hasattr(tools, 'fix_pid_2'))"
    cast = Cast(
        {
            "go": [{"code": f"{code}\n{spawn('a')}"}, {"code": "await agents.collect([a.agent_id])"}],
            "a": [{"code": code}],
        }
    )
    async with family(home, cast, mcp_servers={"fix": local()}) as (agent, logs):
        await agent.ask("go")
    pids = [line for name in ("root", "a") for text in logs.shown(name) for line in text.splitlines() if "pid " in line]
    assert len(pids) == 2
    assert len(set(pids)) == 1
    assert pids[0].endswith("False")


async def test_a_long_description_stands_in_the_prompt_by_its_beginning(tmp_path: Path):
    async with opened(tmp_path, fix=local()) as tools:
        first, _, rest = tools["fix_wordy"].doc.partition("\n\n")
    assert len(first) == 401
    assert rest == "Wordy. " * 199 + "Wordy."


# HTTP


@contextmanager
def served(token: str = "") -> Iterator[tuple[str, list[str]]]:
    """Serve the fixture over HTTP; give its address and the tokens that came."""
    spec = importlib.util.spec_from_file_location("mcp_fixture", SERVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    inner = module.server.streamable_http_app()
    seen: list[str] = []

    async def checked(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"authorization", b"").decode()
            seen.append(given)
            if token and given != f"Bearer {token}":
                await send({"type": "http.response.start", "status": 401, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
        await inner(scope, receive, send)

    web = uvicorn.Server(uvicorn.Config(checked, port=0, log_level="critical", lifespan="on"))
    thread = threading.Thread(target=web.run)
    thread.start()
    while not web.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{web.servers[0].sockets[0].getsockname()[1]}/mcp", seen
    finally:
        web.should_exit = True
        thread.join()


async def test_a_server_over_http(tmp_path: Path):
    with served() as (url, _):
        async with opened(tmp_path, web=Endpoint(url=url)) as tools:
            assert await run(tools["web_add"], a=1) == {"result": 3}
            code, message = await refusal(tools["web_fail"], why="no room")
            assert (code, "no room" in message) == ("failed", True)


async def test_a_token_goes_to_its_endpoint_and_nowhere_else(tmp_path: Path):
    with served("t0ken") as (url, seen), served() as (other, stolen):
        mine = Endpoint(url=url, token_env="TOKEN", token_for=url)
        moved = Endpoint(url=other, token_env="TOKEN", token_for=url)
        servers = Servers({"mine": mine, "moved": moved}, {"TOKEN": "t0ken"})
        async with servers.serving(tmp_path):
            assert list(servers.found) == ["mine"]
            assert "is for" in servers.failures["moved"]
        servers = Servers({"mine": mine}, {})
        async with servers.serving(tmp_path):
            assert "TOKEN" in servers.failures["mine"]
            assert "not set" in servers.failures["mine"]
    assert set(seen) == {"Bearer t0ken"}
    assert stolen == []


def test_a_token_is_not_sent_in_the_clear():
    url = "http://example.org/mcp"
    with pytest.raises(ValueError, match="https"):
        Endpoint(url=url, token_env="T", token_for=url).headers_with({"T": "x"})


# schemas


def shown(schema: dict[str, Any]) -> str:
    signature, _ = read_schema("t", schema, None)
    return ", ".join(
        f"{one.name}: {one.annotation}" + (f" = {one.default}" if one.default else "") for one in signature.parameters
    )


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "object"}, ""),
        (
            {"type": "object", "properties": {"class": {"type": "string"}, "my-key": True}},
            "class_: str | None = None, my_key: Any = None",
        ),
        (
            {"properties": {"a-b": {"type": "string"}, "a_b": {"type": "string"}}, "required": ["a-b", "a_b"]},
            "a_b: str, a_b_2: str",
        ),
        ({"properties": {"x": {"type": ["string", "null"]}}}, "x: str | None = None"),
        (
            {"properties": {"x": {"$ref": "#/$defs/X"}}, "required": ["x"], "$defs": {"X": {"enum": ["a", "b"]}}},
            "x: Literal['a', 'b']",
        ),
        (
            {
                "properties": {"x": {"$ref": "#/definitions/N"}},
                "required": ["x"],
                "definitions": {"N": {"type": "object", "properties": {"next": {"$ref": "#/definitions/N"}}}},
            },
            "x: {next: NotRequired[Any]}",
        ),
        ({"properties": {"x": {"$ref": "https://example.org/s.json"}}, "required": ["x"]}, "x: Any"),
        ({"properties": {"x": {"type": "array", "items": {"type": "integer"}, "default": [1]}}}, "x: list[int] = [1]"),
        ({"properties": ["x"], "required": 5}, ""),
        ({"properties": {"x": {"enum": 1, "properties": [], "anyOf": 3}}, "required": ["x"]}, "x: Any"),
        ({"type": "object", "additionalProperties": True}, "arguments: dict | None = None"),
        ({"properties": {"x": {"allOf": [{"type": "integer"}]}, "1": {}}, "required": ["x", "1"]}, "x: int, n1: Any"),
    ],
)
def test_odd_schemas(schema: dict[str, Any], text: str):
    assert shown(schema) == text
    read_schema("t", schema, None)[0].schema()
    json.dumps(resolved(schema, schema))
