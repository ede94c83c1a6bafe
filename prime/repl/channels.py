"""The Jupyter side of a kernel: requests out, replies, outputs and heartbeats in, over ZeroMQ.

Smaller than jupyter_client's own client, which polls, parses every date and filters per channel: that costs about 2 ms
a cell. Its ``Session`` makes and signs the messages.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Callable
from typing import Any

import zmq
from jupyter_client.session import DELIM, Session

#: Messages that carry nothing a cell's stream needs; skipped by their topic, before they are unpacked.
_SKIPPED = b"execute_input"

#: Seconds to wait for the announcement of the subscription before asking for another sign.
_WELCOME_S = 0.2

#: Messages taken from a channel before the event loop gets its turn again.
_BATCH = 64


class Channels:
    """Shell, iopub and heartbeat channels of one kernel. ``on_reply`` and ``on_output`` get the messages that answer
    our requests, the latter everything published on their behalf. A message is a dict of ``header``,
    ``parent_header``, ``metadata`` and ``content``. ``on_beat`` is called for each :meth:`beat` that comes back."""

    def __init__(
        self,
        connection: dict[str, Any],
        session: Session,
        on_reply: Callable[[dict[str, Any]], None],
        on_output: Callable[[dict[str, Any]], None],
        on_beat: Callable[[], None],
    ) -> None:
        self._session = session
        self._on_reply = on_reply
        self._on_output = on_output
        self._on_beat = on_beat
        self._loop = asyncio.get_running_loop()
        self._welcomed: asyncio.Future[None] = self._loop.create_future()
        self._context = zmq.Context()
        self._shell = self._context.socket(zmq.DEALER)
        self._heart = self._context.socket(zmq.DEALER)
        self._iopub = self._context.socket(zmq.SUB)
        self._iopub.rcvhwm = 0  # a full queue would lose the message that ends a cell
        self._iopub.subscribe(b"")
        self._takers: dict[zmq.Socket[bytes], Callable[[list[bytes]], None]] = {
            self._shell: self._reply,
            self._iopub: self._publication,
            self._heart: self._beaten,
        }
        ports = ((self._shell, "shell_port"), (self._iopub, "iopub_port"), (self._heart, "hb_port"))
        for socket, port in ports:
            socket.linger = 0
            socket.connect(f"ipc://{connection['ip']}-{connection[port]}")
            self._loop.add_reader(socket.fileno(), self._receive, socket)
            self._receive(socket)

    async def welcome(self) -> None:
        """Wait until the subscription is in force: a cell sent before would lose output.

        ipykernel announces it (``iopub_welcome``), but loses the announcement when it publishes something at the same
        instant; then the status messages that every request causes prove it too.
        """
        while not self._welcomed.done():
            await asyncio.wait({self._welcomed}, timeout=_WELCOME_S)
            if not self._welcomed.done():
                self.wake()

    def execute(self, cell: str, code: str) -> None:
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
        self._send(message)

    def wake(self) -> None:
        """Send a request that does nothing but wake the kernel's event loop."""
        self._send(self._session.msg("kernel_info_request", {}))

    def beat(self) -> None:
        """Send a heartbeat."""
        self._heart.send(b"", zmq.NOBLOCK)
        self._loop.call_soon(self._receive, self._heart)  # see _send

    def close(self) -> None:
        """Close the channels. Idempotent."""
        for socket in self._takers:
            self._loop.remove_reader(socket.fileno())
        self._takers = {}
        self._context.destroy(linger=0)

    def _send(self, message: dict[str, Any]) -> None:
        self._shell.send_multipart(self._session.serialize(message))
        # sending may use up the signal that something has arrived: ZeroMQ's descriptor is edge-triggered
        self._loop.call_soon(self._receive, self._shell)

    def _receive(self, socket: zmq.Socket[bytes]) -> None:
        for _ in range(_BATCH):
            take = self._takers.get(socket)
            if take is None:
                return
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            take(frames)
        self._loop.call_soon(self._receive, socket)

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
        if not self._welcomed.done():
            self._welcomed.set_result(None)
        if message["parent_header"].get("session") == self._session.session:
            self._on_output(message)

    def _beaten(self, frames: list[bytes]) -> None:
        self._on_beat()

    def _unpack(self, frames: list[bytes]) -> dict[str, Any] | None:
        """Return the message, or None when it is not a well-formed signed one: the kernel's process can write anything
        into these sockets."""
        try:
            start = frames.index(DELIM)
            signature, signed = frames[start + 1], frames[start + 2 : start + 6]
            if len(signed) < 4 or not hmac.compare_digest(self._session.sign(signed), signature):
                return None
            names = ("header", "parent_header", "metadata", "content")
            message = {name: json.loads(part.decode()) for name, part in zip(names, signed, strict=True)}
        except (ValueError, IndexError, RecursionError):
            return None
        return message if all(isinstance(part, dict) for part in message.values()) else None
