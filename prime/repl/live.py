"""One live kernel: its process, its channels and its bridge as one thing that runs a cell."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jupyter_client.session import Session
from prime_kernel.wire import (
    Call,
    Cancel,
    CellDone,
    Failure,
    Frame,
    Hello,
    Inspect,
    Inspected,
    Place,
    Ready,
    Restore,
    Result,
    Save,
    Setup,
    Sized,
    WireError,
    Without,
)

from prime.errors import KernelStartFailed, SnapshotFailed
from prime.messages import thaw
from prime.repl.bridge import Bridge
from prime.repl.cell import Cell, output
from prime.repl.channels import Channels
from prime.repl.heartbeat import Heartbeat
from prime.repl.process import Folder, KernelProcess, Launch, Unusable
from prime.repl.questions import Answer, Questions
from prime.repl.signals import (
    CallCancelled,
    HostCall,
    Inspection,
    Outcome,
    Output,
    Restored,
    Saved,
    Snapshot,
    Started,
    Value,
)
from prime.repl.template import Template

#: Seconds a kernel may take to become ready.
START_TIMEOUT_S = 60.0

#: Seconds a kernel has to say what goes on in it, and the most of its words that are taken: names, lines, characters.
_INSPECT_S, _NAMES, _PLACES, _TEXT = 2.0, 200, 20, 400

#: Seconds for saving the variables and for restoring them, and the most bytes that one and all may need.
_SAVE_S, _RESTORE_S = 5.0, 30.0
VARIABLE_LIMIT, TOTAL_LIMIT = 16 * 1024 * 1024, 256 * 1024 * 1024

#: The folder of the package that the kernel pickles with; it is pure Python, and need not be there for the kernel's
#: interpreter.
_FOUND = find_spec("cloudpickle")
assert _FOUND is not None
assert _FOUND.origin is not None
LIBRARY = Path(_FOUND.origin).parent

#: Seconds from the end of the bridge to the certain end of its process.
_PARTING_S = 0.2

_STUCK = (
    "the kernel process was there but gave no sign of life for {seconds:g} s (stopped, or out of memory and swapping), "
    "so it was killed"
)

#: The oldest ipykernel that announces a subscription (``iopub_welcome``).
_IPYKERNEL = 7

#: Characters of late output kept between cells, and what a piece counts at least.
_BACKLOG, _PIECE = 1_048_576, 1_024


class LiveKernel:
    """One kernel process, from its start to its end.

    Attributes:
        lost: resolves, once the process is gone, with the reason in words.
    """

    def __init__(self, generation: int, setup: Setup, launch: Launch, template: Template | None = None) -> None:
        self.generation = generation
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._setup = setup
        self._launch = launch
        self._sandboxed = launch.sandbox.level != "off"
        self._template = template
        self._targets = {binding.target for binding in setup.bindings}
        self._folder = Folder()
        self._bridge = Bridge(secrets.token_hex(16), setup, self._frame, self._bridge_lost)
        self._process: KernelProcess | None = None
        self._channels: Channels | None = None
        self._watch: asyncio.Task[None] | None = None
        self._heartbeat = Heartbeat(launch.patience_s, self._beat, self._stuck)
        self._wakes = False
        self._reason: str | None = None
        self._cell: Cell | None = None
        self._open: dict[int, str] = {}
        self._questions = Questions(self._bridge.send, self.lost)
        self._last_call = 0
        self._backlog: list[Output] = []
        self._backlog_room = _BACKLOG

    async def start(self) -> Started:
        """Start the process and wait until it can run a cell.

        Raises:
            KernelStartFailed: it ended or did not become ready in time; :class:`Unusable` when it never will.
        """
        key = secrets.token_hex(16).encode()
        connection = self._folder.write_connection(key)
        await self._bridge.listen(self._folder.socket)
        self._process = await KernelProcess.start(self._launch, self._folder, self._bridge.token, self._template)
        self._watch = asyncio.ensure_future(self._watch_process(self._process))
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                hello, ready = await self._until_ready()
                session = Session(key=key, session=self._setup.session)
                self._channels = Channels(connection, session, self._replied, self._published, self._heartbeat.answered)
                await self._channels.welcome()
        except TimeoutError:
            raise KernelStartFailed(f"the kernel was not ready within {START_TIMEOUT_S:g} s{self._printed()}") from None
        self._wakes = ready.interrupts == "wake"
        if self._sandboxed:  # there it has another number for itself
            self._process.found(self._bridge.peer())
        return Started(
            generation=self.generation,
            pid=self._process.pid,
            executable=self._launch.python,
            sandbox=self._launch.sandbox.level,
            python=hello.python,
            ipython=hello.ipython,
            ipykernel=hello.ipykernel,
            interrupts=ready.interrupts,
        )

    def run(self, cell: Cell, code: str) -> None:
        """Submit a cell. Its signals go to ``cell`` from now on."""
        assert self._channels is not None
        assert self._process is not None
        self._cell = cell
        self._process.attend()
        self._open.clear()
        for late in self._backlog:
            cell.put(late)
        self._backlog.clear()
        self._backlog_room = _BACKLOG
        if self.lost.done():
            cell.lost(self.lost.result())
        else:
            self._channels.execute(cell.id, code)
            self._heartbeat.start()

    def rest(self) -> None:
        """Take notice that no cell runs any more."""
        self._heartbeat.stop()

    async def check(self) -> bool:
        """Tell whether the process still lives; if not, ``lost`` is resolved."""
        if self._process is None or not self._process.over:
            return not self.lost.done()
        await self.lost
        return False

    def cpu_s(self) -> float:
        """Return the processor seconds that the process itself has used."""
        return 0.0 if self._process is None else self._process.cpu_s()

    def delivered(self) -> None:
        """Take notice that the consumer took a signal: reading may go on."""
        if self._cell is not None and self._cell.roomy:
            self._bridge.pause(False)

    def answer(self, call: int, outcome: Outcome) -> None:
        """Send the answer to an open call; any other is dropped."""
        if call not in self._open:
            return
        del self._open[call]
        if isinstance(outcome, Value):
            try:
                self._bridge.send(Result(call, thaw(outcome.value)))
            except WireError as error:
                self._bridge.send(Failure(call, "too_large", str(error)))
        else:
            self._bridge.send(Failure(call, outcome.code, outcome.message))

    async def inspect(self) -> Inspection | None:
        """Ask the process what goes on in it; None when it has ended or is not ready."""
        if self._channels is None or self.lost.done():
            return None
        answer = await self._questions.ask(Inspect, _INSPECT_S)
        if self.lost.done():
            return None
        told = answer or Inspected(0, (), 0, ())
        cell = self._cell if self._cell is not None and not self._cell.finished.is_set() else None
        return Inspection(
            generation=self.generation,
            connection=self._folder.connection_file,
            cell=cell.id if cell is not None else None,
            elapsed_s=cell.elapsed_s if cell is not None else None,
            calls=tuple(self._open.values()) if cell is not None else (),
            answered=answer is not None,
            names=tuple(Sized(each.name[:_TEXT], each.text[:_TEXT]) for each in told.names[:_NAMES]),
            further=told.further,
            stack=tuple(
                Place(each.file[:_TEXT], each.line, each.function[:_TEXT], each.source[:_TEXT])
                for each in told.stack[-_PLACES:]
            ),
        )

    async def save(self, path: Path) -> Saved:
        """Have the variables written into the empty file at ``path``.

        Raises:
            SnapshotFailed: they were not.
        """
        save = partial(Save, library=str(LIBRARY), variable_limit=VARIABLE_LIMIT, total_limit=TOTAL_LIMIT)
        async with self._folder.taking(path) if self._sandboxed else nullcontext(path) as place:
            answer = await self._questions.ask(partial(save, path=str(place)), _SAVE_S)
        if self.lost.done():
            raise SnapshotFailed(f"the kernel was lost while its variables were saved: {self.lost.result()}")
        if answer is None:
            self.interrupt()
            raise SnapshotFailed(f"the variables were not saved within {_SAVE_S:g} s")
        if answer.error is not None:
            raise SnapshotFailed(f"the variables were not saved: {answer.error}")
        assert self._process is not None
        processes = len(self._process.children())
        return Saved(self.generation, answer.names, answer.left_out, answer.threads, answer.tasks, processes)

    async def restore(self, snapshot: Snapshot) -> Restored:
        """Have the variables of a snapshot bound, before the first cell. A process that does not get done with it, or
        dies of it, is lost."""
        reason = snapshot.refused
        answer = None
        if reason is None:
            restore = partial(Restore, size=snapshot.size, library=str(LIBRARY))
            async with self._folder.giving(snapshot.path) if self._sandboxed else nullcontext(snapshot.path) as place:
                answer = await self._questions.ask(partial(restore, path=str(place)), _RESTORE_S)
            reason = "it was not in the snapshot"
            if answer is None:
                await self.kill(f"the variables were not restored within {_RESTORE_S:g} s")
                reason = self.lost.result()
        why = {each.name: each.reason[:_TEXT] for each in answer.missing} if answer is not None else {}
        names = tuple(each for each in answer.names if each.name in snapshot.names) if answer is not None else ()
        bound = {each.name for each in names}
        missing = (Without(name, why.get(name, why.get("", reason))) for name in snapshot.names if name not in bound)
        return Restored(self.generation, names, tuple(missing))

    def interrupt(self) -> None:
        """Interrupt the running cell, once."""
        if self._process is not None and not self.lost.done():
            self._process.interrupt()
        if self._wakes and self._channels is not None:
            self._channels.wake()

    async def kill(self, reason: str) -> None:
        """Kill the process and everything that it started, and wait for their end. Idempotent."""
        self._heartbeat.stop()
        self._reason = self._reason or reason
        self._end()
        if self._watch is not None:
            await self._watch

    @property
    def has_children(self) -> bool:
        """Whether something lives that the process has started."""
        return self._process is not None and bool(self._process.children())

    async def close(self, reason: str = "the kernel was closed") -> None:
        """Kill the process if it lives and release everything. Idempotent."""
        await self.kill(reason)
        self._bridge.close()
        if self._channels is not None:
            self._channels.close()
        if self._process is not None:
            self._process.release()
        self._folder.remove()

    async def _until_ready(self) -> tuple[Hello, Ready]:
        ready = self._bridge.ready
        either: set[asyncio.Future[Any]] = {ready, self.lost}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            if "No module named 'ipykernel'" in self._printed():
                raise Unusable(f"{self._launch.python} has no ipykernel; {self._advice()}")
            raise KernelStartFailed(f"before it was ready, {self.lost.result()}")
        hello = self._bridge.hello.result()
        if int(hello.ipykernel.partition(".")[0]) < _IPYKERNEL:
            raise Unusable(f"{self._launch.python} has ipykernel {hello.ipykernel}, which is too old; {self._advice()}")
        return hello, ready.result()

    def _advice(self) -> str:
        return f"install it with: {self._launch.python} -m pip install 'ipykernel>={_IPYKERNEL},<8'"

    def _printed(self) -> str:
        printed = self._process.printed if self._process is not None else ""
        return f"; it printed: {printed[-2_000:]}" if printed else ""

    async def _watch_process(self, process: KernelProcess) -> None:
        ended = await process.wait()
        # what it started and left in its group; not later, when its number may be another's
        process.kill()
        self.lost.set_result(self._reason or ended)
        if self._cell is not None:
            self._cell.lost(self.lost.result())
        await process.reap()

    def _bridge_lost(self, reason: str) -> None:
        # a kernel without a bridge is of no use: whatever it was doing, end it. When it is the process's own end that
        # closed the bridge, its exit says more than this, and a sandbox has to pass that on first.
        if "protocol" in reason:
            self._reason = self._reason or reason
        asyncio.get_running_loop().call_later(0 if self._reason else _PARTING_S, self._end)

    def _end(self) -> None:
        if self._process is not None and not self.lost.done():
            self._process.kill()

    def _beat(self) -> None:
        assert self._channels is not None
        self._channels.beat()

    def _stuck(self) -> None:
        self._reason = self._reason or _STUCK.format(seconds=self._launch.patience_s)
        self._end()

    def _frame(self, frame: Frame) -> None:
        cell = self._cell
        if isinstance(frame, Call):
            self._call(frame)
        elif isinstance(frame, Cancel):
            if cell is not None and cell.id == frame.cell and frame.call in self._open:
                cell.put(CallCancelled(frame.call))
        elif isinstance(frame, CellDone):
            if cell is not None and cell.id == frame.cell:
                cell.reported(frame)
        elif isinstance(frame, Answer):
            self._questions.answered(frame)
        else:
            raise WireError(f"a {type(frame).__name__} is not for the host")

    def _call(self, frame: Call) -> None:
        if frame.call <= self._last_call:
            raise WireError(f"call {frame.call} after call {self._last_call}")
        self._last_call = frame.call
        cell = self._cell
        # the kernel checks the same; it is not trusted to
        if cell is None or cell.id != frame.cell or cell.finished.is_set():
            refusal = Failure(frame.call, "stale_lease", f"{frame.target} was called outside the running cell")
        elif frame.target not in self._targets:
            refusal = Failure(frame.call, "not_found", f"there is no {frame.target}")
        elif cell.calls >= self._setup.max_calls:
            refusal = Failure(frame.call, "too_many_calls", f"this cell has made its {self._setup.max_calls:,} calls")
        else:
            cell.calls += 1
            self._open[frame.call] = frame.target
            cell.put(HostCall(frame.call, frame.target, frame.arguments))
            if cell.crowded:
                self._bridge.pause(True)
            return
        self._bridge.send(refusal)

    def _replied(self, message: dict[str, Any]) -> None:
        if self._cell is not None and message["parent_header"].get("msg_id") == self._cell.id:
            self._cell.replied(message["content"])

    def _published(self, message: dict[str, Any]) -> None:
        cell = self._cell
        mine = cell is not None and message["parent_header"].get("msg_id") == cell.id
        if message["header"].get("msg_type") == "status":
            if cell is not None and mine and message["content"].get("execution_state") == "idle":
                cell.idled()
            return
        running = cell is not None and not cell.finished.is_set()
        shown = output(message, late=not (mine and running))
        if shown is None:
            return
        if cell is not None and running:
            cell.put(shown)
            return
        size = max(_PIECE, len(shown.text) + (len(shown.image.data) if shown.image else 0))
        if size <= self._backlog_room:
            self._backlog_room -= size
            self._backlog.append(shown)
