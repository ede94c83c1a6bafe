"""What a running cell says, as one ordered stream of values. The repl knows no tools and no log."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from prime_kernel.wire import Name, Place, Sized, Without

from prime.sandbox import Level

#: How a cell ended. ``refused``: it never ran (syntax error, reserved name). ``interrupted``: stopped at the host's
#: request, namespace kept. ``timeout``: the same, by the deadline. ``killed``: it did not stop and the kernel was
#: killed. ``died``: the kernel was gone by itself.
Status = Literal["ok", "error", "interrupted", "timeout", "killed", "died", "refused"]


@dataclass(frozen=True, slots=True)
class Started:
    """A kernel process is ready. ``generation`` counts the kernel processes of a session from 1.

    ``interrupts`` names the interrupt policy in force, ``sandbox`` the level of the sandbox;
    ``restored`` says what came of :meth:`Repl.restore`.
    """

    generation: int
    pid: int
    executable: str
    python: str
    ipython: str
    ipykernel: str
    interrupts: str
    restored: Restored | None = None
    sandbox: Level = "off"


@dataclass(frozen=True, slots=True)
class Lost:
    """The kernel process of ``generation`` is gone, and its namespace with it."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Image:
    """A displayed image; ``data`` is base64."""

    media_type: str
    data: str


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of output, in the order in which it was produced.

    Attributes:
        stream: ``result`` is the completion value's display, ``display`` any other.
        text: plain text, possibly empty when there is an image.
        image: the image form, when there is one.
        call: set when the completion is the untouched value of that host call, whose own rendering may be shown.
        late: produced by work that an older cell left behind; kept in the log, not part of this cell's result.
        svg: the source of an svg image, when that is all there is.
        display: the name under which a later output replaces this one.
    """

    stream: Literal["stdout", "stderr", "display", "result"]
    text: str
    image: Image | None = None
    call: int | None = None
    late: bool = False
    svg: str | None = None
    display: str | None = None


@dataclass(frozen=True, slots=True)
class HostCall:
    """The cell calls the host; answer it with :meth:`Repl.answer`."""

    call: int
    target: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CallCancelled:
    """Nobody in the cell waits for this call any more."""

    call: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The error that ended a cell. ``traceback`` is trimmed, plain text of at most 4,000 characters."""

    name: str
    message: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The last signal of a cell.

    Attributes:
        generation: the kernel process that ran it, None when it reached none.
        error: for ``error`` and ``refused``, and where known for the others.
        set: names bound by the cell, with their types.
        removed: names that are gone.
        unawaited: failures of calls that the cell never looked at, one line each.
        dropped: bytes of output beyond the limit, published nowhere.
        duration_s: seconds from submission to the end.
    """

    status: Status
    generation: int | None
    error: Failed | None
    set: tuple[Name, ...]
    removed: tuple[str, ...]
    unawaited: tuple[str, ...]
    dropped: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class Restored:
    """The variables of a snapshot are bound in the kernel process that was just started.

    Attributes:
        names: those that are, with their types.
        missing: the other names of the snapshot, with the reasons.
    """

    generation: int
    names: tuple[Name, ...]
    missing: tuple[Without, ...]


Signal = Started | Lost | Output | HostCall | CallCancelled | Ended


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the next kernel process is to restore.

    Attributes:
        path: the file that :meth:`Repl.save` wrote; what follows after its first ``size`` bytes is not read.
        names: the variables in it.
        refused: why it must not be read; then all its names are missing.
    """

    path: Path
    size: int
    names: tuple[str, ...]
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Saved:
    """What :meth:`Repl.save` has written.

    Attributes:
        generation: the kernel process.
        names: the variables that were saved, with their types.
        left_out: those that could not be, with the reasons.
        threads, tasks, processes: how many that cells have started are alive; no snapshot holds them.
    """

    generation: int
    names: tuple[Name, ...]
    left_out: tuple[Without, ...]
    threads: int
    tasks: int
    processes: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """What goes on in a kernel at one moment, taken without disturbing the cell.

    Attributes:
        generation: the kernel process.
        connection: its Jupyter connection file.
        cell: the lease id of the running cell, None when none runs.
        elapsed_s: seconds since it was submitted.
        calls: the targets of its host calls that are not answered yet, in order.
        answered: whether the kernel's process has answered in time. It cannot while C code holds the interpreter; what
            follows is empty then.
        names: the names alive, in order of binding.
        further: how many names there are besides.
        stack: the lines of cells that are being run, or at which the cell awaits, the outermost first.
    """

    generation: int
    connection: str
    cell: str | None
    elapsed_s: float | None
    calls: tuple[str, ...]
    answered: bool
    names: tuple[Sized, ...]
    further: int
    stack: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """A host call succeeded with this canonical JSON value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Error:
    """A host call failed. ``code`` is a stable word, ``message`` says what to do."""

    code: str
    message: str


Outcome = Value | Error


class Repl(Protocol):
    """A kernel as a stream of signals. One cell at a time."""

    def run(self, code: str, *, cell: str, timeout_s: float | None = None) -> AsyncGenerator[Signal, None]:
        """Run one cell and yield what it says; the last signal is always :class:`Ended`.

        ``cell`` is the lease id, unique in the session. Starts a kernel first when none is alive (yielding ``Started``,
        after ``Lost`` when one was alive before). Never runs a cell twice. Closing the generator early stops the cell.

        Raises:
            KernelStartFailed: no kernel could be started; nothing ran.
            CellBusy: a cell is running.
        """
        ...

    async def answer(self, call: int, outcome: Outcome) -> None:
        """Answer a :class:`HostCall`. Answers to calls of a cell or kernel that is gone are dropped."""
        ...

    def hold(self, call: int, held: bool) -> None:
        """Take notice that an open call waits for a person, or does so no longer. Meanwhile the deadline of the cell
        counts computing only."""
        ...

    async def interrupt(self) -> None:
        """Stop the running cell: interrupt, then kill after the grace. Returns when it is decided; ``run`` yields the
        outcome. Without a running cell it does nothing."""
        ...

    async def inspect(self) -> Inspection | None:
        """Return what goes on in the kernel, whether a cell runs or not; None when none is alive."""
        ...

    async def save(self, path: Path) -> Saved | None:
        """Write the variables into the empty file at ``path``, each that can be; None when no kernel is alive.

        Raises:
            SnapshotFailed: nothing was saved.
            CellBusy: a cell is running.
        """
        ...

    def restore(self, snapshot: Snapshot) -> None:
        """Have each kernel process that is started from now on restore this; ``Started`` says what came of it."""
        ...

    async def give_up(self, reason: str, *, saved: bool = False) -> bool:
        """End the kernel, for ``reason``, if nobody would miss it: no cell runs, no child process lives and there is no
        name, or what there is was ``saved``. Tell whether that was so. The next cell starts another one."""
        ...

    async def prewarm(self) -> None:
        """Start the kernel now, in the background, so that the first cell need not wait. Failures show at ``run``."""
        ...

    async def close(self) -> None:
        """End the kernel and everything it started. Idempotent."""
        ...
