"""The host's end of the bridge: one authenticated connection from one kernel process."""

from __future__ import annotations

import asyncio
import hmac
import socket
import struct
from collections.abc import Callable

from prime_kernel.wire import PROTOCOL, Frame, Hello, Ready, Setup, WireError, decode, encode, length


class Bridge:
    """A listening Unix socket that accepts the one kernel knowing ``token``.

    ``on_frame`` gets every frame after the handshake, in order. ``on_lost`` gets the reason when the connection ends,
    whether the kernel closed it or broke the protocol.

    Attributes:
        hello: resolves when the kernel has named itself.
        ready: resolves when it can run cells.
        token: what the kernel has to know.
    """

    def __init__(self, token: str, setup: Setup, on_frame: Callable[[Frame], None], on_lost: Callable[[str], None]):
        loop = asyncio.get_running_loop()
        self.hello: asyncio.Future[Hello] = loop.create_future()
        self.ready: asyncio.Future[Ready] = loop.create_future()
        self.token = token
        self._setup = setup
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._server: asyncio.Server | None = None
        self._connection: _Connection | None = None

    async def listen(self, path: str) -> None:
        """Listen at ``path``."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Connection(self), path)

    def send(self, frame: Frame) -> None:
        """Send a frame; dropped when the connection is gone.

        Raises:
            WireError: the frame is too large.
        """
        data = encode(frame)
        if self._connection is not None:
            self._connection.write(data)

    def peer(self) -> int:
        """Return the number that the process at the other end has for this one, whatever number it has for itself.
        Linux only."""
        assert self._connection is not None
        return self._connection.peer()

    def pause(self, paused: bool) -> None:
        """Stop or resume reading, so that a kernel cannot fill the host's memory with calls."""
        if self._connection is not None:
            self._connection.pause(paused)

    def close(self) -> None:
        """Close the socket and the connection. ``on_lost`` is not called any more."""
        self._on_lost = _ignore
        self.hello.cancel()
        self.ready.cancel()
        if self._server is not None:
            self._server.close()
        if self._connection is not None:
            self._connection.abort()

    def accept(self, connection: _Connection, hello: Frame) -> bool:
        """Tell whether the first frame of a connection makes it the kernel's, and answer it if so."""
        if self._connection is not None or not isinstance(hello, Hello):
            return False
        if not hmac.compare_digest(hello.token.encode(), self.token.encode()) or hello.protocol != PROTOCOL:
            return False
        self._connection = connection
        if self._server is not None:
            self._server.close()
        self.hello.set_result(hello)
        connection.write(encode(self._setup))
        return True

    def receive(self, frame: Frame) -> None:
        """Take a frame of the accepted connection."""
        if isinstance(frame, Ready):
            if not self.ready.done():
                self.ready.set_result(frame)
        else:
            self._on_frame(frame)

    def lose(self, connection: _Connection, reason: str) -> None:
        """Take notice that a connection has ended."""
        if connection is self._connection:
            self._on_lost(reason)


def _ignore(reason: str) -> None:
    pass


class _Connection(asyncio.Protocol):
    """One connection: bytes to frames."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._accepted = False
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._reason = "the kernel closed the bridge"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= 4:
                size = length(bytes(buffer[start : start + 4]))
                if len(buffer) - start - 4 < size:
                    break
                start += 4 + size
                self._frame(decode(bytes(buffer[start - size : start])))
        except WireError as error:
            self._reason = f"the kernel broke the bridge protocol: {error}"
            self.abort()
            return
        del buffer[:start]

    def connection_lost(self, exc: Exception | None) -> None:
        self._bridge.lose(self, self._reason)

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def peer(self) -> int:
        assert self._transport is not None
        credentials = struct.Struct("3i")
        connection = self._transport.get_extra_info("socket")
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
        pid, _, _ = credentials.unpack(found)
        return int(pid)

    def pause(self, paused: bool) -> None:
        assert self._transport is not None
        if self._transport.is_closing() or self._transport.is_reading() is not paused:
            return
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _frame(self, frame: Frame) -> None:
        if self._accepted:
            self._bridge.receive(frame)
        elif self._bridge.accept(self, frame):
            self._accepted = True
        else:
            raise WireError("the first frame is not the greeting of this host's kernel")
