"""A look into the process while a cell runs: the names alive, with sizes, and the lines that are being run.

Taken in the bridge's reader thread, which answers also when the cell holds the main thread. It runs no code of the
user's, which could block that thread: a size comes only from exact types whose length or shape is known to be harmless.
"""

from __future__ import annotations

import linecache
import sys
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType, ModuleType
from typing import Any

from .interrupt import CELL_FILE, policy
from .names import counts, type_name
from .values import Record
from .wire import Inspected, Place, Sized

#: Most names and lines that are shown, most characters of one text, and most frames that are looked at.
_NAMES, _PLACES, _TEXT, _FRAMES = 200, 20, 200, 2_000

_LENGTHS: dict[type, Callable[[Any], int]] = {
    **{kind: kind.__len__ for kind in (list, tuple, dict, set, frozenset, str, bytes, bytearray, deque)},
    **dict.fromkeys((Record, Counter, OrderedDict, defaultdict), dict.__len__),
}

#: Classes with a shape, and the attribute that names the type of their elements, by module and name.
_SHAPED = {("numpy", "ndarray"): "dtype", ("pandas", "Series"): "dtype", ("pandas", "DataFrame"): None}

#: What a suspended frame waits in: the attributes with its frame and with what it waits for.
_SUSPENDED: dict[type, tuple[str, str]] = {
    CoroutineType: ("cr_frame", "cr_await"),
    GeneratorType: ("gi_frame", "gi_yieldfrom"),
    AsyncGeneratorType: ("ag_frame", "ag_await"),
}

_MISSING = object()


def inspected(request: int, namespace: Mapping[str, Any], hidden: Mapping[str, Any], own: Collection[str]) -> Inspected:
    """Return the answer to ``request``. ``hidden`` and ``own`` are as in :class:`prime_kernel.names.Names`."""
    names: list[Sized] = []
    further = 0
    for name in list(namespace):  # at once: the cell goes on binding names
        # one value at a time: what the cell deletes this moment stays alive for no longer than it is looked at
        value = namespace.get(name, _MISSING) if type(name) is str else _MISSING
        if value is _MISSING or not counts(name, id(value), hidden, own):
            continue
        if len(names) < _NAMES:
            names.append(Sized(name[:_TEXT], _described(value)[:_TEXT]))
        else:
            further += 1
    stack = tuple(islice((_place(frame) for frame in _cell_frames()), _PLACES))
    return Inspected(request, tuple(names), further, stack[::-1])


def _described(value: Any) -> str:
    kind, name = type(value), type_name(value)
    measure = _LENGTHS.get(kind)
    if measure is not None:
        return f"{name}[{measure(value)}]"
    for (module, shaped), elements in _SHAPED.items():
        if kind is _class(module, shaped):
            try:
                return f"{name} {value.shape}" + (f" {getattr(value, elements)}" if elements else "")
            except Exception:  # the cell is in the middle of changing it: the type will do
                return name
    return name


def _class(module: str, name: str) -> Any:
    """Return a class of a module if that is imported, without importing it or asking the module's own code."""
    found = sys.modules.get(module)
    return vars(found).get(name, _MISSING) if type(found) is ModuleType else _MISSING


def _cell_frames() -> Iterator[FrameType]:
    """Yield the frames of cells' code, the innermost first: those on the main thread's stack, or, when the cell awaits,
    those it is suspended in."""
    running = [frame for frame in islice(_stack(), _FRAMES) if _of_a_cell(frame)]
    suspended = [frame for frame in islice(_awaiting(), _FRAMES) if _of_a_cell(frame)]
    return iter(running or suspended[::-1])


def _of_a_cell(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(CELL_FILE)


def _stack() -> Iterator[FrameType]:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _awaiting() -> Iterator[FrameType]:
    """Yield the frames that the cell's task is suspended in, the outermost first."""
    awaited = policy.coroutine()
    while (attributes := _SUSPENDED.get(type(awaited))) is not None:
        frame = getattr(awaited, attributes[0])
        if frame is not None:
            yield frame
        awaited = getattr(awaited, attributes[1])


def _place(frame: FrameType) -> Place:
    file, line = frame.f_code.co_filename, frame.f_lineno or 0
    entry = linecache.cache.get(file)
    # entries of one element are promises to load a file
    lines = entry[2] if entry is not None and len(entry) > 2 else []
    source = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return Place(_text(file), line, _text(frame.f_code.co_name), _text(source))


def _text(text: str) -> str:
    return text[:_TEXT].encode(errors="backslashreplace").decode()
