"""The Jupyter side of a kernel: requests out, replies and outputs in, over ZeroMQ.

Smaller than jupyter_client's own client, which waits and filters per channel; its ``Session`` does the signing and the
message format.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import zmq
import zmq.asyncio
from jupyter_client.session import Session

#: Message types that carry nothing a cell's stream needs; skipped by their topic, before they are unpacked.
_SKIPPED = b"execute_input"


class Channels:
    """Shell and iopub channels of one kernel. ``on_reply`` and ``on_output`` get the messages that answer our requests,
    the latter everything published on their behalf."""

    def __init__(
        self,
        connection: dict[str, Any],
        key: bytes,
        on_reply: Callable[[dict[str, Any]], None],
        on_output: Callable[[dict[str, Any]], None],
    ) -> None:
        self._session = Session(key=key)
        self._on_reply = on_reply
        self._on_output = on_output
        self._context = zmq.asyncio.Context()
        self._shell = self._context.socket(zmq.DEALER)
        self._iopub = self._context.socket(zmq.SUB)
        self._iopub.rcvhwm = 0  # a full queue would lose the message that ends a cell
        self._iopub.subscribe(b"")
        for socket, port in ((self._shell, "shell_port"), (self._iopub, "iopub_port")):
            socket.linger = 0
            socket.connect(f"ipc://{connection['ip']}-{connection[port]}")
        self._welcomed = asyncio.get_running_loop().create_future()
        self._tasks = [
            asyncio.ensure_future(self._pump(self._shell, self._reply)),
            asyncio.ensure_future(self._pump(self._iopub, self._publication)),
        ]

    async def welcome(self) -> None:
        """Wait until the subscription is in force: a cell sent before would lose output."""
        await self._welcomed

    async def execute(self, cell: str, code: str) -> None:
        """Send a cell; its request's message id is ``cell``."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        message = self._session.msg("execute_request", content)
        message["msg_id"] = message["header"]["msg_id"] = cell
        await self._shell.send_multipart(self._session.serialize(message))

    async def wake(self) -> None:
        """Send a request that does nothing but wake the kernel's event loop."""
        await self._shell.send_multipart(self._session.serialize(self._session.msg("kernel_info_request", {})))

    async def close(self) -> None:
        """Close the channels. Idempotent."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):  # it was just cancelled
                await task
        self._tasks = []
        self._context.destroy(linger=0)

    async def _pump(self, socket: zmq.asyncio.Socket, take: Callable[[list[bytes]], None]) -> None:
        while True:
            take(await socket.recv_multipart())

    def _reply(self, frames: list[bytes]) -> None:
        message = self._unpack(frames)
        if message is not None:
            self._on_reply(message)

    def _publication(self, frames: list[bytes]) -> None:
        if frames[0].endswith(_SKIPPED):
            return
        message = self._unpack(frames)
        if message is None:
            return
        if message["msg_type"] == "iopub_welcome":
            if not self._welcomed.done():
                self._welcomed.set_result(None)
        elif message["parent_header"].get("session") == self._session.session:
            self._on_output(message)

    def _unpack(self, frames: list[bytes]) -> dict[str, Any] | None:
        """Return the message, or None when it is not a well-formed signed one: the kernel's process can write anything
        into these sockets."""
        try:
            _, parts = self._session.feed_identities(frames)
            message = self._session.deserialize(parts)
            if not isinstance(message["parent_header"], dict) or not isinstance(message["content"], dict):
                return None
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        return message
