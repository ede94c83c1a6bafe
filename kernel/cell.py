"""A cell's life in the kernel: checked, run under a lease, drained, reported."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from . import failure, lease, source, stray
from .bridge import Bridge, ToolCallError
from .inspection import inspected
from .interrupt import policy
from .lease import Lease
from .names import Names, alive
from .proxies import namespaces
from .shell import Shell
from .streams import Descriptors
from .wire import CellDone, Setup

#: Failures of calls that were never looked at, reported one line each.
_UNAWAITED = 20


class Cells:
    """Runs the cells of one kernel process.

    Attributes:
        namespaces: the host's calls, by the names that no cell may bind.
        running: whether a cell runs, the host's or another client's.
    """

    def __init__(self, shell: Shell, bridge: Bridge, setup: Setup) -> None:
        self._shell = shell
        self._bridge = bridge
        self._setup = setup
        self.namespaces = namespaces(setup.bindings, bridge)
        self.running = False
        self._streams: tuple[Any, Any] = sys.stdout, sys.stderr
        self._descriptors = Descriptors()
        self._extras = {"asyncio": asyncio, "ToolCallError": ToolCallError}
        self._own = {*self.namespaces, "exit", "quit", "get_ipython", "In", "Out"}
        shell.bridge = bridge
        bridge.inspect = partial(inspected, namespace=shell.user_ns, hidden=shell.user_ns_hidden, own=self._own)
        shell.user_ns_hidden.update(self._extras)
        shell.user_ns_hidden.update(self.namespaces)
        self._install()

    async def run(self, cell: str, code: str, execute: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """Run the cell with the lease ``cell`` and return its Jupyter reply. ``execute`` runs the code."""
        self.running = True
        try:
            return await self._run(cell, code, execute)
        finally:
            self.running = False

    async def _run(self, cell: str, code: str, execute: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        shell = self._shell
        shell.begin_cell()
        self._install()
        refused = self._objection(code)
        if refused is not None:
            self._bridge.send(CellDone(cell, refused.message, (), (), (), 0))
            return self._reply("error", ename=refused.name, evalue=refused.message, traceback=[refused.message])
        held = Lease(cell, self._setup.max_calls, self._setup.output_limit)
        before = Names(shell.user_ns, shell.user_ns_hidden, self._own)
        policy.begin_cell()
        lease.begin(held)
        stray.begin_cell()
        try:
            reply = await execute()
        except BaseException as error:  # also a SystemExit of the user's in ipykernel's own code: a cell is answered
            reply = self._reply("error", ename=type(error).__name__, evalue="", traceback=[])
        if shell.failed is not None and reply["status"] == "error":
            reply["ename"] = type(shell.failed).__name__
            reply["evalue"] = failure.message(shell.failed)
            reply["traceback"] = shell._last_traceback
        await self._drain(held)
        shell.user_ns.pop(f"_i{shell.execution_count - 1}", None)  # one more name with every cell; In has the text
        bound, removed = before.difference(shell.user_ns)
        unawaited = tuple(
            f"{call._target}: {call._error.code}: {call._error.message}"[:500]
            for call in held.failures
            if not call._seen and call._error is not None
        )
        sys.stdout, sys.stderr = self._streams  # a cell may put something else there and forget it
        self._descriptors.restore()
        self._publish_rest(held)
        self._bridge.send(CellDone(cell, None, bound, removed, unawaited[:_UNAWAITED], held.meter.dropped))
        return reply

    async def visit(self, execute: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """Run a cell that another client of this kernel sent, as any IPython kernel would: the host hears nothing of
        it, and it may not call the host."""
        self._shell.begin_cell()
        self._install()
        policy.begin_cell()
        held = Lease("", 0, self._setup.output_limit, foreign=True)
        lease.begin(held)
        stray.begin_cell()
        self.running = True
        try:
            return await execute()
        finally:
            self.running = False
            self._publish_rest(held)

    def _publish_rest(self, held: Lease) -> None:
        """Publish the end of an output that was over the limit, and all that is still in a buffer."""
        stdout, stderr = self._streams
        stdout.flush()
        stderr.flush()
        for name, text in held.meter.rest():
            stream = stderr if name == "stderr" else stdout
            stream.publish(text)
            stream.flush()  # at once: between two streams there is no order but this

    def names(self) -> list[str]:
        """Return the names that cells have bound, also those that begin with an underscore, in order of binding."""
        return alive(self._shell.user_ns, self._shell.user_ns_hidden, self._own)

    def owns(self, session: str) -> bool:
        """Tell whether the cells of a Jupyter session are the host's."""
        return session == self._setup.session

    def _install(self) -> None:
        """Put our names where cells find them: whatever took them away, the next cell has them again."""
        names = self._shell.user_ns
        for name, value in self._extras.items():
            names.setdefault(name, value)
        names.update(self.namespaces)

    def _objection(self, code: str) -> source.Objection | None:
        try:
            transformed = self._shell.transform_cell(code)
        except SyntaxError as error:
            return source.syntax_objection(error)
        except Exception as error:
            name = type(error).__name__
            return source.Objection(name, f"this cell cannot be read ({failure.message(error)}); nothing ran")
        return source.objection(transformed, self.namespaces, self._shell.compile.flags)

    def _reply(self, status: str, **fields: Any) -> dict[str, Any]:
        count = self._shell.execution_count
        return {"status": status, "execution_count": count, "user_expressions": {}, "payload": [], **fields}

    async def _drain(self, held: Lease) -> None:
        """Wait until every accepted call of the cell has settled and end its lease. An interrupt gives the rest up."""
        loop = asyncio.get_running_loop()
        wake = asyncio.Event()
        stopped = False

        def stop() -> None:
            nonlocal stopped
            stopped = True
            loop.call_soon_threadsafe(wake.set)

        held.on_quiet = lambda: loop.call_soon_threadsafe(wake.set)  # type: ignore[assignment]
        with policy.draining(stop):
            while not stopped:
                wake.clear()
                if held.end():
                    return
                await wake.wait()
            self._bridge.abandon(held)
