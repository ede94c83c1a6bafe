"""The kernel's end of the bridge: host calls as handles, resolved by one reader thread."""

from __future__ import annotations

import asyncio
import contextvars
import os
import shutil
import signal
import socket
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, NoReturn

from . import lease as leases
from .interrupt import policy
from .lossless import NotLossless
from .values import Record, arguments, records
from .wire import Call as CallFrame
from .wire import (
    Cancel,
    Failure,
    Frame,
    Inspect,
    Inspected,
    Restore,
    Result,
    Save,
    ToolError,
    WireError,
    decode,
    encode,
    length,
)


class ToolCallError(ToolError):
    """A host call that failed, raised where its value is asked for. See :class:`ToolError` for the attributes."""


class StaleLease(ToolCallError):
    """A host call by work that an earlier cell left behind, or by no cell at all."""


class Call:
    """A host call under way. It started when it was made.

    ``await call`` gives its value, any number of times; ``call.result(timeout=None)`` does the same in ordinary
    functions and threads. Failures raise :class:`ToolCallError`. Cancelling the only task that awaits it cancels the
    call itself.
    """

    def __init__(self, bridge: Bridge, lease: leases.Lease, number: int, target: str) -> None:
        self._bridge = bridge
        self._lease = lease
        self._number = number
        self._target = target
        self._lock = threading.Lock()
        self._settled = threading.Event()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._value: Any = None
        self._error: ToolCallError | None = None
        self._seen = False
        self._cancelled = False

    def done(self) -> bool:
        """Tell whether the value or the failure is there."""
        return self._settled.is_set()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the value.

        Args:
            timeout: seconds to wait at most; the call goes on when they are over.

        Raises:
            ToolCallError: the call failed.
            TimeoutError: it did not settle in time.
        """
        self._seen = True
        try:
            in_time = self._settled.wait(timeout)
        except BaseException:  # the cell was interrupted: nobody waits any more
            self._cancel()
            raise
        if not in_time:
            raise TimeoutError(f"{self._target}(...) did not settle within {timeout} s; it still runs")
        return self._outcome()

    def __await__(self) -> Generator[Any, None, Any]:
        self._seen = True
        if not self._settled.is_set():
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            with self._lock:
                waiting = not self._settled.is_set()
                if waiting:
                    self._waiters.append((loop, waiter))
            if waiting:
                try:
                    yield from waiter
                except asyncio.CancelledError:
                    self._forget(waiter)
                    raise
        return self._outcome()

    def __repr__(self) -> str:
        if not self._settled.is_set():
            state = "running"
        else:
            state = "done" if self._error is None else f"failed: {self._error.code}"
        return f"<Call {self._target} #{self._number} {state}; write `await ...` to get its value>"

    def _outcome(self) -> Any:
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._value

    def _settle(self, value: Any, error: ToolCallError | None) -> None:
        with self._lock:
            self._value, self._error = value, error
            self._settled.set()
            waiters, self._waiters = self._waiters, []
        for loop, waiter in waiters:
            with suppress(RuntimeError):  # a loop of the user's that was closed meanwhile: nobody is left to wake
                loop.call_soon_threadsafe(_wake, waiter)

    def _forget(self, waiter: asyncio.Future[None]) -> None:
        with self._lock:
            self._waiters = [pair for pair in self._waiters if pair[1] is not waiter]
            alone = not self._waiters
        if alone:
            self._cancel()

    def _cancel(self) -> None:
        if not self._settled.is_set() and not self._cancelled:
            self._cancelled = True
            self._bridge.send(Cancel(self._lease.cell, self._number))

    def _teach(self) -> str:
        return f"{self._target}(...) is a running Call, not its value; write `await {self._target}(...)`"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(f"{self._teach()} before using .{name}")

    def _misused(self, *args: Any) -> NoReturn:
        raise TypeError(self._teach())

    __getitem__ = __setitem__ = __delitem__ = __iter__ = __len__ = __contains__ = __bool__ = _misused
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _misused
    __hash__ = object.__hash__


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Bridge:
    """The connection to the host. ``lost`` is called, once, in the reader thread when the host is gone.

    Attributes:
        inspect: answers the host's question what goes on, by its number, in the reader thread; set before ``start``.
        snapshot: has the host's request to save or restore the variables done and answered; set before ``start``.
    """

    inspect: Callable[[int], Inspected]
    snapshot: Callable[[Save | Restore], None]

    def __init__(self, connection: socket.socket, lost: Callable[[], None]) -> None:
        self._socket = connection
        self._stream = connection.makefile("rb", buffering=65536)
        self._lost = lost
        self._sending = threading.Lock()
        self._calls: dict[int, Call] = {}
        self._count = 0
        self._origins: dict[int, tuple[weakref.ref[Record], int, int]] = {}
        self._forked = False
        os.register_at_fork(after_in_child=self._after_fork)

    def send(self, frame: Frame) -> None:
        """Send one frame, from any thread. Interrupts of the main thread wait."""
        data = encode(frame)
        with policy.shield, self._sending:
            self._socket.sendall(data)

    def receive(self) -> tuple[Frame, bytes] | None:
        """Wait for one frame and return it with its body; None when the host has closed the connection.

        Raises:
            WireError: a malformed frame.
        """
        prefix = self._stream.read(4)
        if len(prefix) < 4:
            return None
        body = self._stream.read(length(prefix))
        return decode(body), body

    def start(self) -> None:
        """Start the reader thread."""
        # an empty context: the reader belongs to no cell
        context = contextvars.Context()
        threading.Thread(target=context.run, args=(self._read,), name="prime-bridge", daemon=True).start()

    def submit(self, target: str, values: dict[str, Any]) -> Call:
        """Start a host call under the lease of the calling context.

        Raises:
            StaleLease: the context belongs to no running cell.
            ToolCallError: ``bad_arguments`` or ``too_many_calls``; nothing was sent.
        """
        if self._forked:
            raise ToolCallError(target, "forked", f"{target} cannot be called from a forked process; call it before")
        lease = leases.carried()
        if lease is None or lease.ended:
            raise StaleLease(target, "stale_lease", _stale(lease).format(target=target))
        try:
            plain = arguments(values)
        except NotLossless as error:
            raise ToolCallError(target, "bad_arguments", f"{target}: {error}") from None
        with policy.shield, self._sending:
            number = self._count + 1
            call = Call(self, lease, number, target)
            try:
                data = encode(CallFrame(lease.cell, number, target, plain))
            except WireError as error:
                raise ToolCallError(target, "bad_arguments", f"{target}: {error}") from None
            with lease.lock:
                if lease.ended:
                    raise StaleLease(target, "stale_lease", _STALE.format(target=target))
                if lease.calls >= lease.max_calls:
                    raise ToolCallError(target, "too_many_calls", _TOO_MANY.format(limit=lease.max_calls))
                lease.calls += 1
                lease.pending[number] = call
            self._count = number
            self._calls[number] = call
            self._socket.sendall(data)
        return call

    def origin(self, value: Any) -> int | None:
        """Return the number of the call whose value ``value`` is, untouched, else None."""
        entry = self._origins.get(id(value))
        if entry is None or entry[0]() is not value:
            return None
        _, number, digest = entry
        try:
            untouched = hash(encode(Result(number, value))[4:]) == digest
        except (TypeError, ValueError, RecursionError):
            return None  # the program put something into it that is not JSON
        return number if untouched else None

    def abandon(self, lease: leases.Lease) -> None:
        """End ``lease`` although calls are pending, and cancel those."""
        for call in lease.abandon():
            call._cancel()
            self._calls.pop(call._number, None)
            call._seen = True
            call._settle(None, ToolCallError(call._target, "cancelled", f"{call._target} was cancelled with its cell"))

    def _read(self) -> None:
        try:
            while (received := self.receive()) is not None:
                frame, body = received
                if isinstance(frame, Result):
                    value = records(frame.value)
                    self._remember(value, frame.call, body)
                    self._settle(frame.call, value, None)
                elif isinstance(frame, Failure):
                    call = self._calls.get(frame.call)
                    target = call._target if call is not None else ""
                    error = StaleLease if frame.code == "stale_lease" else ToolCallError
                    self._settle(frame.call, None, error(target, frame.code, frame.message))
                elif isinstance(frame, Inspect):
                    self.send(self.inspect(frame.request))
                elif isinstance(frame, (Save, Restore)):
                    self.snapshot(frame)
        except (OSError, WireError):
            pass  # the same as the end of the connection: this kernel has no host any more
        self._lost()

    def _settle(self, number: int, value: Any, error: ToolCallError | None) -> None:
        call = self._calls.pop(number, None)
        if call is None:
            return  # abandoned meanwhile
        call._settle(value, error)
        lease = call._lease
        with lease.lock:
            lease.pending.pop(number, None)
            if error is not None:
                lease.failures.append(call)
            quiet = lease.on_quiet if not lease.pending else None
        if quiet is not None:
            quiet()

    def _remember(self, value: Any, number: int, body: bytes) -> None:
        if type(value) is Record:
            key = id(value)
            gone = weakref.ref(value, lambda _: self._origins.pop(key, None))
            self._origins[key] = (gone, number, hash(body))

    def _after_fork(self) -> None:
        self._forked = True
        os.close(self._socket.detach())


_STALE = (
    "{target} was called by work that an earlier cell left behind; call it inside the running cell, and await or join "
    "what a cell starts before it ends"
)
_FOREIGN = (
    "{target} was called by a client that is attached to this kernel; only the agent's own cells may call the host"
)
_TOO_MANY = "this cell has made its {limit:,} host calls; go on in the next cell"


def _stale(lease: leases.Lease | None) -> str:
    return _FOREIGN if lease is not None and lease.foreign else _STALE


def end_process(folder: str) -> None:
    """End this process and what it started, and remove its private ``folder``: the host that would do it is gone."""
    shutil.rmtree(folder, ignore_errors=True)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
