"""What an interrupt (SIGINT) does: the policy, and the private ipykernel seams it needs.

ipykernel's own handling loses an interrupt while a cell awaits (the cancellation is scheduled without waking the loop)
and dies of one that lands outside user code. Here one permanent handler decides, from the interrupted stack, among
three acts: raise :class:`CellInterrupt` inside user code, cancel the cell's task where it is suspended in user code, or
do nothing, because the host repeats the signal every 100 ms. ``CellInterrupt`` is not a ``KeyboardInterrupt`` because
asyncio re-raises that one through the event loop, which ends the kernel.

The seams are ``Kernel.pre_handler_hook``, ``Kernel.post_handler_hook`` and ``IPythonKernel._cancel_on_sigint``. When a
future ipykernel does not use them (:func:`seams`), its own handling stays and the host wakes the loop with a message
after each signal.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ipykernel.ipkernel import IPythonKernel

#: File name prefix of everything compiled from a cell.
CELL_FILE = "<cell "

#: Names of the two policies, as reported in ``Ready.interrupts``.
FRAME, WAKE = "frame", "wake"

#: Name of the threads that end what takes too long.
LIMIT_THREAD = "prime-limit"


class CellInterrupt(BaseException):
    """Raised inside a cell that the host interrupts. Not an ``Exception``: ``except Exception`` lets it pass."""


class RenderTimeout(BaseException):
    """Raised inside a display method of the user's that takes too long; never leaves the display guard."""


class Policy:
    """The state and the handler of SIGINT in this process."""

    def __init__(self) -> None:
        self.name = WAKE
        self.shield = _Shield()
        self._task: asyncio.Future[Any] | None = None
        self._signals = 0
        self._stop_drain: Callable[[], None] | None = None
        self._limits = 0
        self._expired = False

    def install(self, kernel_class: type = IPythonKernel) -> bool:
        """Take SIGINT over if ``kernel_class`` has the seams; tell whether it was done. Main thread only."""
        if not seams(kernel_class):
            return False
        self.name = FRAME
        signal.signal(signal.SIGINT, self._handle)
        return True

    @contextmanager
    def watching(self, task: asyncio.Future[Any]) -> Iterator[None]:
        """For the block, ``task`` runs the cell's code."""
        self._task = task
        try:
            yield
        finally:
            self._task = None

    def coroutine(self) -> Any:
        """Return the coroutine of the cell that runs, None for a cell without await or when none runs."""
        task = self._task
        return task.get_coro() if isinstance(task, asyncio.Task) else None

    def begin_cell(self) -> None:
        """Count signals anew, and take SIGINT back from a cell that had put a handler of its own in place."""
        self._signals = 0
        if self.name == FRAME:
            signal.signal(signal.SIGINT, self._handle)

    @contextmanager
    def draining(self, stop: Callable[[], None]) -> Iterator[None]:
        """For the block, user code has finished and an interrupt calls ``stop`` in the event loop."""
        self._stop_drain = stop
        try:
            yield
        finally:
            self._stop_drain = None

    @contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """Raise :class:`RenderTimeout` in the block after ``seconds``. Without effect outside the main thread and under
        the ``wake`` policy."""
        if self.name != FRAME or threading.current_thread() is not threading.main_thread():
            yield
            return
        timer = threading.Timer(seconds, self._expire)
        timer.daemon = True
        timer.name = LIMIT_THREAD
        timer.start()
        self._limits += 1
        try:
            yield
        finally:
            self._limits -= 1
            self._expired = False
            timer.cancel()

    def _expire(self) -> None:
        self._expired = True
        # unlike interrupt_main(), this also ends a blocking system call
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self._expired:
            self._expired = False
            if self._limits:
                raise RenderTimeout
            return
        self._signals += 1
        if self.shield.depth:
            return  # in the middle of a frame to the host
        if self._stop_drain is not None:
            self._stop_drain()
            return
        in_user_code = _on_stack(frame)
        task = self._task
        if task is None:  # a cell without await, or nothing
            if in_user_code:
                raise CellInterrupt
            return
        loop = task.get_loop()
        if task.done():
            return
        if _current_task(loop) is task:
            if in_user_code:
                raise CellInterrupt
            return
        if suspended_in_user_code(task):
            task.cancel()
            loop.call_soon_threadsafe(_nothing)  # wakes the selector
        if in_user_code and self._signals > 1:
            raise CellInterrupt  # another task holds the thread and keeps the cell from being cancelled


class _Shield:
    """A block that an interrupt of the main thread must not tear: ``with policy.shield``."""

    def __init__(self) -> None:
        self.depth = 0
        self._main = threading.main_thread().ident

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:
            self.depth += 1

    def __exit__(self, *exc_info: object) -> None:
        if threading.get_ident() == self._main:
            self.depth -= 1


policy = Policy()


def seams(kernel_class: type) -> bool:
    """Tell whether ``kernel_class`` calls the private methods that the ``frame`` policy replaces."""
    try:
        runs = kernel_class.do_execute.__code__.co_names  # type: ignore[attr-defined]
        handles = kernel_class.dispatch_shell.__code__.co_names  # type: ignore[attr-defined]
    except AttributeError:
        return False
    return "_cancel_on_sigint" in runs and {"pre_handler_hook", "post_handler_hook"} <= set(handles)


class InterruptibleKernel(IPythonKernel):
    """An IPython kernel whose SIGINT is left to :data:`policy` when that is installed."""

    def pre_handler_hook(self) -> None:
        if policy.name != FRAME:
            super().pre_handler_hook()

    def post_handler_hook(self) -> None:
        if policy.name != FRAME:
            super().post_handler_hook()

    @contextmanager
    def _cancel_on_sigint(self, future: asyncio.Future[Any]) -> Iterator[None]:
        with policy.watching(future) if policy.name == FRAME else super()._cancel_on_sigint(future):
            yield


def _is_user(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(CELL_FILE)


def _on_stack(frame: FrameType | None) -> bool:
    while frame is not None:
        if _is_user(frame):
            return True
        frame = frame.f_back
    return False


def suspended_in_user_code(task: asyncio.Future[Any]) -> bool:
    """Tell whether the chain of awaits of ``task`` goes through user code. Cancelling it earlier or later would let the
    CancelledError escape from ipykernel's own code, and the cell would never be answered."""
    awaited: Any = task.get_coro() if isinstance(task, asyncio.Task) else None
    while awaited is not None:
        frame = (
            getattr(awaited, "cr_frame", None)
            or getattr(awaited, "gi_frame", None)
            or getattr(awaited, "ag_frame", None)
        )
        if frame is not None and _is_user(frame):
            return True
        awaited = (
            getattr(awaited, "cr_await", None)
            or getattr(awaited, "gi_yieldfrom", None)
            or getattr(awaited, "ag_await", None)
        )
    return False


def _current_task(loop: asyncio.AbstractEventLoop) -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task(loop)
    except RuntimeError:
        return None


def _nothing() -> None:
    pass
