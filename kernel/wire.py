"""The bridge protocol: frames between the kernel (guest) and the host, shared by both ends.

A frame is a 4-byte big-endian length followed by that many bytes of UTF-8 JSON: one object whose ``kind`` names one of
the frozen dataclasses below and whose other members are its fields. Both ends treat what they receive as hostile:
:func:`length` checks the size, and :func:`decode` the kind, every field and its type, and that the values are lossless.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from dataclasses import dataclass
from typing import Any, Union, get_args

from .lossless import NotLossless, lossless

#: Bumped when either end could misread the other. The folder is loaded by path from the host's own installation, so
#: a difference means a broken installation, not an old peer.
PROTOCOL = 1

#: Largest accepted frame body, in bytes.
FRAME_LIMIT = 64 * 1024 * 1024

#: Metadata key by which a displayed result names the host call whose untouched value it is.
CALL_KEY = "prime_call"

_LENGTH = struct.Struct(">I")


class WireError(ValueError):
    """A frame that does not follow the protocol. The connection that sent it cannot be trusted any more."""


class ToolError(Exception):
    """A host call that ended in failure, as data.

    Attributes:
        tool: the call's target, such as ``"tools.read"``.
        code: a stable word such as ``"not_found"`` or ``"bad_arguments"``.
        message: what was wrong and what to do, for the model.
    """

    def __init__(self, tool: str, code: str, message: str) -> None:
        super().__init__(message)
        self.tool = tool
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.tool, self.code, self.message)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a binding: its name, its type as Python source, and its default as Python source or None."""

    name: str
    annotation: str
    default: str | None
    keyword_only: bool


@dataclass(frozen=True)
class Binding:
    """One callable of the guest's namespaces. ``target`` is ``"namespace.name"``, e.g. ``"tools.read"``."""

    target: str
    parameters: tuple[Parameter, ...]
    returns: str
    doc: str


@dataclass(frozen=True)
class Hello:
    """Kernel -> host, first frame: who is calling. ``token`` proves that the host started this process."""

    protocol: int
    token: str
    pid: int
    python: str
    ipython: str
    ipykernel: str


@dataclass(frozen=True)
class Setup:
    """Host -> kernel, answer to Hello: the namespaces to install and the caps of a cell.

    Attributes:
        bindings: every callable, grouped into namespaces by the part of the target before the dot.
        max_calls: host calls one cell may make in all.
        output_limit: bytes of output one cell may publish; what is beyond is counted and dropped in the kernel.
        session: the Jupyter session whose cells are the host's; those of any other client run without a lease.
    """

    bindings: tuple[Binding, ...]
    max_calls: int
    output_limit: int
    session: str


@dataclass(frozen=True)
class Ready:
    """Kernel -> host: the namespaces are installed and a cell may run.

    ``interrupts`` names the interrupt policy that passed its feature test (see ``interrupt.py``).
    """

    interrupts: str


@dataclass(frozen=True)
class Call:
    """Kernel -> host: call ``target`` with ``arguments`` under the lease ``cell``; ``call`` counts up from 1 in each
    kernel process."""

    cell: str
    call: int
    target: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Cancel:
    """Kernel -> host: nobody waits for this call any more (its task was cancelled); stop it if it still runs."""

    cell: str
    call: int


@dataclass(frozen=True)
class Result:
    """Host -> kernel: the canonical value of a call."""

    call: int
    value: Any


@dataclass(frozen=True)
class Failure:
    """Host -> kernel: a call failed; raised in the cell as ``ToolCallError``."""

    call: int
    code: str
    message: str


@dataclass(frozen=True)
class Name:
    """A top-level name of the namespace with its type's qualified name."""

    name: str
    type: str


@dataclass(frozen=True)
class CellDone:
    """Kernel -> host, once per cell that reached the kernel, after every call of the cell has settled.

    Attributes:
        cell: the lease that ends here.
        refused: why the cell was not run at all (syntax error, reserved name), else None.
        set: names bound or rebound to another object by the cell.
        removed: names that are gone.
        unawaited: failures of calls that the cell never looked at, one line each.
        dropped: bytes of output beyond the limit, not published.
    """

    cell: str
    refused: str | None
    set: tuple[Name, ...]
    removed: tuple[str, ...]
    unawaited: tuple[str, ...]
    dropped: int


@dataclass(frozen=True)
class Inspect:
    """Host -> kernel, at any time: say what is alive and where the cell is. Answered by ``Inspected`` with the same
    ``request``, also while a cell holds the main thread."""

    request: int


@dataclass(frozen=True)
class Sized:
    """A top-level name, and its value's type with a size where that is cheap: ``list[1000]``."""

    name: str
    text: str


@dataclass(frozen=True)
class Place:
    """A line of a cell's code that is on the stack. ``file`` is as in tracebacks (``<cell 3>``), ``source`` the text of
    the line, empty when it is not known any more."""

    file: str
    line: int
    function: str
    source: str


@dataclass(frozen=True)
class Inspected:
    """Kernel -> host: the answer to ``Inspect``.

    Attributes:
        request: that of the question.
        names: the names alive, in order of binding, as many as are shown at most.
        further: how many there are besides.
        stack: the lines of cells that are being run, the outermost first.
    """

    request: int
    names: tuple[Sized, ...]
    further: int
    stack: tuple[Place, ...]


@dataclass(frozen=True)
class Without:
    """A name that a snapshot or a restored namespace is without, and why, in words for the model."""

    name: str
    reason: str


@dataclass(frozen=True)
class Save:
    """Host -> kernel, while no cell runs: write the variables into the file at ``path``, which is there and empty.

    Attributes:
        library: the folder of the cloudpickle package that does it; the kernel's interpreter need not have one.
        variable_limit, total_limit: bytes that one variable and all of them may need at most.
    """

    request: int
    path: str
    library: str
    variable_limit: int
    total_limit: int


@dataclass(frozen=True)
class Saved:
    """Kernel -> host: the answer to ``Save``.

    Attributes:
        request: that of the question.
        error: why nothing was saved, else None.
        names: what the file holds, with types, in order of binding.
        left_out: the variables that it is without.
        threads: threads of cells that are alive.
        tasks: tasks of cells that are not done.
    """

    request: int
    error: str | None
    names: tuple[Name, ...]
    left_out: tuple[Without, ...]
    threads: int
    tasks: int


@dataclass(frozen=True)
class Restore:
    """Host -> kernel, before its first cell: bind what is in the file that a ``Save`` has written.

    ``library`` is as in ``Save``; ``size`` is the number of bytes at the start of the file that ``Save`` wrote.
    """

    request: int
    path: str
    size: int
    library: str


@dataclass(frozen=True)
class Restored:
    """Kernel -> host: the answer to ``Restore``: the names that are bound now, and those that could not be. The empty
    name has the reason for all that are in neither."""

    request: int
    names: tuple[Name, ...]
    missing: tuple[Without, ...]


Frame = Union[  # noqa: UP007 - 3.10 at run time
    Hello, Setup, Ready, Call, Cancel, Result, Failure, CellDone, Inspect, Inspected, Save, Saved, Restore, Restored
]

_KINDS: dict[str, type] = {kind.__name__: kind for kind in get_args(Frame)}
_NESTED: dict[str, type] = {
    "tuple[Binding, ...]": Binding,
    "tuple[Parameter, ...]": Parameter,
    "tuple[Name, ...]": Name,
    "tuple[Sized, ...]": Sized,
    "tuple[Place, ...]": Place,
    "tuple[Without, ...]": Without,
}
_SCALARS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "str": (str,),
    "bool": (bool,),
    "str | None": (str, type(None)),
    "dict[str, Any]": (dict,),
}


def encode(frame: Frame) -> bytes:
    """Return the frame's bytes, length included.

    Raises:
        WireError: when the body is larger than :data:`FRAME_LIMIT`, or the frame holds something that is not JSON.
    """
    fields = {"kind": type(frame).__name__, **_plain(frame)}
    try:
        body = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise WireError(f"a frame that cannot be written as JSON: {error}") from None
    if len(body) > FRAME_LIMIT:
        raise WireError(f"a frame of {len(body):,} bytes is over the limit of {FRAME_LIMIT:,}; pass the data in a file")
    return _LENGTH.pack(len(body)) + body


def decode(body: bytes) -> Frame:
    """Return the frame of a body (without its length).

    Raises:
        WireError: when it is not a well-formed frame.
    """
    try:
        fields = json.loads(body.decode())  # json.loads(bytes) would also take UTF-16 and -32
    except (ValueError, RecursionError) as error:
        raise WireError(f"a frame that is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise WireError("a frame that is not an object")
    name = fields.pop("kind", None)
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise WireError("a frame of no known kind")
    try:
        # NaN, 1e999, -0.0, escaped lone surrogates and endless digits are JSON to the parser and refused further in
        fields = {field: lossless(value) for field, value in fields.items()}
    except NotLossless as error:
        raise WireError(f"a {name} with a value that is not lossless: {error}") from None
    return _build(kind, fields)  # type: ignore[no-any-return]


def length(prefix: bytes) -> int:
    """Return the body length announced by the 4 bytes of ``prefix``.

    Raises:
        WireError: when it is over :data:`FRAME_LIMIT`.
    """
    size: int = _LENGTH.unpack(prefix)[0]
    if size > FRAME_LIMIT:
        raise WireError(f"a frame of {size:,} bytes is over the limit of {FRAME_LIMIT:,}")
    return size


def _plain(value: Any) -> dict[str, Any]:
    # dataclasses.asdict would copy the payload deeply, which costs more than encoding it
    plain = {}
    for name in value.__dataclass_fields__:
        item = getattr(value, name)
        if isinstance(item, tuple):
            item = [_plain(part) if dataclasses.is_dataclass(part) else part for part in item]
        plain[name] = item
    return plain


def _build(kind: type, fields: Any) -> Any:
    if not isinstance(fields, dict) or fields.keys() != kind.__dataclass_fields__.keys():  # type: ignore[attr-defined]
        raise WireError(f"a {kind.__name__} with missing or unknown fields")
    built = {}
    for name, field in kind.__dataclass_fields__.items():  # type: ignore[attr-defined]
        built[name] = _check(kind, name, str(field.type), fields[name])
    return kind(**built)


def _check(kind: type, name: str, annotation: str, value: Any) -> Any:
    if annotation == "Any":
        return value
    scalar = _SCALARS.get(annotation)
    if scalar is not None:
        if not isinstance(value, scalar) or (isinstance(value, bool) and bool not in scalar):
            raise WireError(f"{kind.__name__}.{name} is not {annotation}")
        return value
    if not isinstance(value, list):
        raise WireError(f"{kind.__name__}.{name} is not a list")
    nested = _NESTED.get(annotation)
    if nested is not None:
        return tuple(_build(nested, item) for item in value)
    if not all(isinstance(item, str) for item in value):
        raise WireError(f"{kind.__name__}.{name} holds something other than text")
    return tuple(value)
