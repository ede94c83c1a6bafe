"""The host's end of the bridge against connections that are not the kernel, or no longer behave like it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from prime_kernel.wire import PROTOCOL, Call, Frame, Hello, Ready, Result, Setup, decode, encode, length

from prime.repl.bridge import Bridge

pytestmark = pytest.mark.anyio

HELLO = Hello(PROTOCOL, "token", 1, "3.11", "9", "7")


@pytest.fixture
def path() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="b-", dir="/tmp") as folder:
        yield str(Path(folder) / "s")


class Host:
    def __init__(self) -> None:
        self.frames: asyncio.Queue[Frame] = asyncio.Queue()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.bridge = Bridge("token", Setup((), 5, 6, "session"), self.frames.put_nowait, self.lost.set_result)


@pytest.fixture
async def host(path: str, anyio_backend: str) -> AsyncIterator[Host]:
    host = Host()
    await host.bridge.listen(path)
    yield host
    host.bridge.close()


async def greet(path: str, hello: Frame) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(encode(hello))
    return reader, writer


async def receive(reader: asyncio.StreamReader) -> Frame:
    return decode(await reader.readexactly(length(await reader.readexactly(4))))


async def test_the_handshake_and_frames_in_order(host: Host, path: str) -> None:
    reader, writer = await greet(path, HELLO)
    assert await receive(reader) == Setup((), 5, 6, "session")
    assert await host.bridge.hello == HELLO
    writer.write(encode(Ready("frame")))
    assert await host.bridge.ready == Ready("frame")
    data = b"".join(encode(Call("c", n, "tools.x", {})) for n in range(20))
    for start in range(0, len(data), 7):  # frames cut anywhere
        writer.write(data[start : start + 7])
        await writer.drain()
    assert [await host.frames.get() for _ in range(20)] == [Call("c", n, "tools.x", {}) for n in range(20)]
    host.bridge.send(Result(1, {"a": 1}))
    assert await receive(reader) == Result(1, {"a": 1})
    writer.close()
    assert await host.lost == "the kernel closed the bridge"


@pytest.mark.parametrize(
    "hello",
    [Hello(PROTOCOL, "wrong", 1, "", "", ""), Hello(PROTOCOL + 1, "token", 1, "", "", ""), Call("c", 1, "tools.x", {})],
)
async def test_a_stranger_is_turned_away_and_the_kernel_still_comes_in(host: Host, path: str, hello: Frame) -> None:
    reader, writer = await greet(path, hello)
    assert await reader.read() == b""
    writer.close()
    assert not host.lost.done()
    reader, writer = await greet(path, HELLO)
    assert isinstance(await receive(reader), Setup)
    writer.close()


@pytest.mark.parametrize(
    "data", [(2**31).to_bytes(4, "big"), b"\0\0\0\2[]", b"\0\0\0\1{", b"\0\0\0\x10" + b'{"kind":"Nope"} ']
)
async def test_a_broken_frame_ends_the_connection(host: Host, path: str, data: bytes) -> None:
    reader, writer = await greet(path, HELLO)
    await receive(reader)
    writer.write(data)
    assert (await host.lost).startswith("the kernel broke the bridge protocol: ")
    writer.close()


async def test_pausing_stops_the_flow_and_resuming_continues_it(host: Host, path: str) -> None:
    reader, writer = await greet(path, HELLO)
    await receive(reader)
    host.bridge.pause(True)
    host.bridge.pause(True)
    writer.write(encode(Call("c", 1, "tools.x", {})))
    await writer.drain()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(host.frames.get(), 0.05)
    host.bridge.pause(False)
    assert await host.frames.get() == Call("c", 1, "tools.x", {})
    writer.close()
