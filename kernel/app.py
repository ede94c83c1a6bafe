"""The kernel process: ipykernel's application with our shell, our interrupts and the bridge."""

from __future__ import annotations

import faulthandler
import importlib
import logging
import os
import pdb
import platform
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

import IPython
from ipykernel._version import __version__ as ipykernel_version
from ipykernel.kernelapp import IPKernelApp
from tornado.ioloop import IOLoop
from traitlets import Type
from traitlets.config import Config

from . import commands, forks, stray
from .bridge import Bridge, end_process
from .cell import Cells
from .interrupt import InterruptibleKernel, policy
from .magics import no_debugger
from .shell import CellCompiler, Shell
from .snapshot import Snapshots
from .threads import inherit_context
from .wire import PROTOCOL, Hello, Ready, Setup, WireError

_CONFIG = {
    "IPKernelApp": {"outstream_class": f"{__package__}.streams.CappedStream"},
    # no sqlite: the default history file costs 5-13 ms a cell; the lists in memory stay
    "HistoryManager": {"enabled": False},
    "InteractiveShell": {"cache_size": 0, "colors": "nocolor"},
}

_NO_SHUTDOWN = "this kernel belongs to a session of prime-repl, which ends it; close the session instead"

_NO_INPUT = "nobody can answer {name}() here; put the value in the code, or end the cell and ask in your reply"


def _do_without_debugger() -> None:
    """Have ipykernel find no debugger: nobody can use one here, and every kernel would take 8 MB of memory for it.
    Cells can still import it."""
    if "debugpy" in sys.modules:
        return
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("ipykernel.debugger")
    finally:
        del sys.modules["debugpy"]


_do_without_debugger()


class Kernel(InterruptibleKernel):
    """An IPython kernel whose cells run under leases."""

    shell_class = Type(Shell)
    compiler_class = Type(CellCompiler)  # type: ignore[assignment]
    #: ipykernel sleeps 0.5 ms a cell for clients that do not wait for the idle message; ours does.
    _execute_sleep = 0.0
    cells: Cells | None = None

    async def execute_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        # an error in a client's cell would abort the agent's cell that waits behind it
        parent["content"]["stop_on_error"] = False
        await super().execute_request(stream, ident, parent)

    async def poll_stopped_queue(self) -> None:
        """Wait for no debugger."""

    async def shutdown_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Refuse: the kernel is the host's, which ends the process itself."""
        if self.session is None:
            return
        refusal = {"status": "error", "ename": "PermissionError", "evalue": _NO_SHUTDOWN, "traceback": []}
        restart = bool(parent["content"].get("restart", False))
        self.session.send(stream, "shutdown_reply", {**refusal, "restart": restart}, parent, ident=ident)

    async def do_execute(self, code: str, silent: bool, *args: Any, **kwargs: Any) -> dict[str, Any]:
        execute = super().do_execute
        if self.cells is None:
            raise RuntimeError("a cell before the host's set-up")
        header = self.get_parent("shell")["header"]
        if not self.cells.owns(header["session"]):
            return await self.cells.visit(lambda: execute(code, silent, *args, **kwargs))
        return await self.cells.run(header["msg_id"], code, lambda: execute(code, silent, *args, **kwargs))

    def raw_input(self, prompt: str = "") -> NoReturn:
        raise RuntimeError(_NO_INPUT.format(name="input"))

    def getpass(self, prompt: str = "", stream: Any = None, **kwargs: Any) -> NoReturn:
        raise RuntimeError(_NO_INPUT.format(name="getpass"))


class App(IPKernelApp):
    """The application of one kernel process."""

    kernel_class = Type(Kernel)

    def init_signal(self) -> None:
        if not policy.install():
            super().init_signal()

    def init_iopub(self, context: Any) -> None:
        # a full queue would lose the messages that end a cell; what a cell may publish is capped anyway
        context.sndhwm = 0
        super().init_iopub(context)

    def start(self) -> None:
        """Run the event loop until the host ends the process.

        A cell can end the loop: by stopping it, or with a SystemExit or KeyboardInterrupt in a task or a callback of
        its own, which asyncio carries through the loop. Everything in it is as it was, so it goes on. The task keeps
        its exception for whoever awaits it, and asyncio reports one that nobody does.
        """
        with suppress(SystemExit):
            super().start()
        while True:
            with suppress(SystemExit, KeyboardInterrupt):
                self.io_loop.start()


def main(argv: Sequence[str], path: str, token: str) -> None:
    """Run the kernel until the host ends it.

    Args:
        argv: ipykernel's arguments, ``-f CONNECTION_FILE``.
        path: the host's Unix socket, in the folder that is this process's own.
        token: proves to the host that it started this process.

    Raises:
        WireError: the host does not answer with its set-up.
    """
    _report_crashes()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    bridge = Bridge(connection, partial(end_process, os.path.dirname(path)))
    bridge.send(Hello(PROTOCOL, token, os.getpid(), platform.python_version(), IPython.__version__, ipykernel_version))
    app = App.instance(config=Config(_CONFIG))
    app.initialize(list(argv))
    # traitlets keeps the logger at DEBUG and filters in its handler, which costs a formatted record per message
    app.log.setLevel(logging.WARNING)
    os.environ.pop("JPY_PARENT_PID", None)
    pdb.set_trace = sys.breakpointhook = no_debugger
    received = bridge.receive()
    if received is None or not isinstance(received[0], Setup):
        raise WireError("the host did not answer with its set-up")
    inherit_context()
    commands.mark()
    app.kernel.cells = Cells(app.kernel.shell, bridge, received[0])
    loop = IOLoop.current().asyncio_loop  # type: ignore[attr-defined]
    bridge.snapshot = Snapshots(app.kernel.shell, bridge, app.kernel.cells, loop).request
    bridge.start()
    forks.watch(loop)
    stray.watch(loop)
    # once the loop runs and has published its first status: a subscription that arrives together with it goes unnoticed
    IOLoop.current().add_callback(_ready, app, bridge)
    app.start()


def _report_crashes() -> None:
    """Have a crash in native code told to the host, which reads the standard error that this process was started with:
    ipykernel takes its number for the cells."""
    faulthandler.enable(os.dup(2), all_threads=False)
    # the crash of a forked child is not the kernel's: it is told where the child's errors go, to the cell
    os.register_at_fork(after_in_child=lambda: faulthandler.enable(2, all_threads=False))


def _ready(app: App, bridge: Bridge) -> None:
    published = threading.Event()
    app.iopub_thread.schedule(published.set)
    published.wait()
    bridge.send(Ready(policy.name))
