"""Saving the variables of a namespace into a file, and binding them again in another process.

Best effort for each variable: what cannot be saved faithfully is left out with the reason, and no code of the user's
that runs on the way (``__reduce__``, ``__setstate__``, constructors) ends more than its own variable.

The file holds records, then an index as JSON, then the index's length in 8 bytes. A record is a sequence of pickles,
one for each of its variables, which share what the variables share. Variables that share nothing that could be told
from a copy have records of their own, so that one that cannot be loaded takes only its kin along.
"""

from __future__ import annotations

import contextvars
import io
import json
import linecache
import struct
import threading
import time
import types
import warnings
from asyncio import AbstractEventLoop, all_tasks
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import MAGIC_NUMBER
from typing import Any, BinaryIO

from . import failure
from .bridge import Bridge
from .cell import Cells
from .interrupt import LIMIT_THREAD, CellInterrupt, RenderTimeout, policy, suspended_in_user_code
from .names import type_name
from .pickling import Pickler, Sink, landmarks, library
from .rebuild import Unpickler
from .wire import Name, Restore, Restored, Save, Saved, Without

#: Seconds: for looking at all variables, for one of them, for writing them, and for loading one.
_LOOK_S, _ONE_S, _WRITE_S, _LOAD_S = 2.2, 1.5, 2.2, 5.0

_LENGTH = struct.Struct(">Q")
_REASON = 300

#: Exact types whose pickling runs no code of the user's and takes no time.
_SIMPLE = frozenset({int, float, bool, str, bytes, type(None)})


@dataclass
class _Variable:
    name: str
    value: Any
    pickler: Pickler


class Snapshots:
    """Answers the host's ``Save`` and ``Restore``, in the main thread, between cells and under no lease."""

    def __init__(self, shell: Any, bridge: Bridge, cells: Cells, loop: AbstractEventLoop) -> None:
        self._shell = shell
        self._bridge = bridge
        self._cells = cells
        self._loop = loop
        self._threads: set[threading.Thread] = set()
        loop.call_soon(lambda: self._threads.update(threading.enumerate()))  # when ipykernel has started its own

    def request(self, asked: Save | Restore) -> None:
        """Have the main thread answer. Called in the reader thread."""
        if isinstance(asked, Save):
            self._loop.call_soon_threadsafe(self._save, asked, context=contextvars.Context())
        else:
            self._loop.call_soon_threadsafe(self._restore, asked, context=contextvars.Context())

    def _save(self, asked: Save) -> None:
        names: tuple[Name, ...] = ()
        left_out: dict[str, str] = {}
        error = None
        if self._cells.running:
            error = "a cell is running"
        else:
            try:
                saving = _Saving(asked, self._shell.user_ns, self._cells.names(), self._marks())
                names, left_out = saving.write(self._shell.execution_count), saving.left_out
            except BaseException as failed:  # the disk is full, or the host has interrupted: then there is no snapshot
                error = _reason(failed)
        without = tuple(Without(name, reason) for name, reason in left_out.items())
        others = [each for each in threading.enumerate() if each not in self._threads]
        threads = sum(each.name != LIMIT_THREAD for each in others)
        tasks = sum(map(suspended_in_user_code, all_tasks(self._loop)))
        self._bridge.send(Saved(asked.request, error, names, without, threads, tasks))

    def _restore(self, asked: Restore) -> None:
        loading = _Loading(asked, self._shell, self._cells, self._marks())
        try:
            loading.load()
        except BaseException as failed:  # not our file after all: the host knows which names are missing
            loading.missing[""] = _reason(failed)
        missing = tuple(Without(name, reason) for name, reason in loading.missing.items())
        self._bridge.send(Restored(asked.request, tuple(loading.bound), missing))

    def _marks(self) -> dict[str, Any]:
        return landmarks(self._shell.user_ns, self._cells.namespaces, self._shell)


class _Saving:
    """One save."""

    def __init__(self, asked: Save, namespace: dict[str, Any], names: list[str], marks: dict[str, Any]) -> None:
        self.left_out: dict[str, str] = {}
        self._asked = asked
        self._library = library(asked.library)
        self._landmarks = marks  # held: the id of a value that is gone would be another's
        self._marks = {id(value): name for name, value in marks.items()}
        self._buffers: dict[int, set[int]] = {}
        self._variables = self._looked_at({name: namespace[name] for name in names})

    def write(self, count: int) -> tuple[Name, ...]:
        """Write the file and return what it holds. ``count``: the number of the next cell."""
        deadline = time.monotonic() + _WRITE_S
        shared = [owner for owner, arrays in self._buffers.items() if len(arrays) > 1]
        records: list[dict[str, Any]] = []
        held: set[str] = set()
        files: set[str] = set()
        with open(self._asked.path, "wb") as file:
            for group in _groups(self._variables):
                while group:
                    start = file.tell()
                    pickler = Pickler(Sink(self._asked.total_limit - start, file), self._library, self._marks, shared)
                    failed = self._dump(pickler, group, deadline)
                    if failed is None:
                        named = [[each.name, type_name(each.value)] for each in group]
                        records.append({"names": named, "start": start, "end": file.tell()})
                        files |= pickler.files
                        held |= {each.name for each in group}
                        break
                    group.remove(failed)
                    file.seek(start)
                    file.truncate()
            index = {"python": MAGIC_NUMBER.hex(), "count": count, "sources": _sources(files), "records": records}
            data = json.dumps(index).encode()
            file.write(data + _LENGTH.pack(len(data)))
        return tuple(Name(each.name, type_name(each.value)) for each in self._variables if each.name in held)

    def _looked_at(self, values: dict[str, Any]) -> list[_Variable]:
        """Return the variables that can be saved; the others are in ``left_out``."""
        deadline = time.monotonic() + _LOOK_S
        room = self._asked.total_limit
        found = []
        for name, value in values.items():
            sink = Sink(self._asked.variable_limit)
            pickler = Pickler(sink, self._library, self._marks)
            plain = type(value) in _SIMPLE
            if not self._guarded(name, plain, deadline, partial(pickler.dump, value)):
                continue
            if sink.size > room:
                self.left_out[name] = f"all variables together need more than {self._asked.total_limit:,} bytes"
                continue
            room -= sink.size
            for owner, arrays in pickler.buffers.items():
                self._buffers.setdefault(owner, set()).update(arrays)
            found.append(_Variable(name, value, pickler))
        return found

    def _dump(self, pickler: Pickler, group: list[_Variable], deadline: float) -> _Variable | None:
        """Pickle a group; return the variable at which that failed, which is then left out."""
        for each in group:
            if not self._guarded(each.name, each.pickler.plain, deadline, partial(pickler.dump, each.value)):
                return each
        return None

    def _guarded(self, name: str, plain: bool, deadline: float, dump: Callable[[], None]) -> bool:
        left = min(_ONE_S, deadline - time.monotonic())
        if left <= 0:
            self.left_out[name] = "there was no time left to save it"
            return False
        try:
            if plain:
                dump()
            else:
                with _guard(left):
                    dump()
        except CellInterrupt:
            raise
        except BaseException as error:
            self.left_out[name] = _reason(error)
            return False
        return True


class _Loading:
    """One restore."""

    def __init__(self, asked: Restore, shell: Any, cells: Cells, marks: dict[str, Any]) -> None:
        self.bound: list[Name] = []
        self.missing: dict[str, str] = {}
        self._asked = asked
        self._shell = shell
        self._cells = cells
        self._marks = marks

    def load(self) -> None:
        """Bind what can be."""
        library(self._asked.library)
        with open(self._asked.path, "rb") as file:
            file.seek(self._asked.size - _LENGTH.size)
            (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
            file.seek(self._asked.size - _LENGTH.size - length)
            index = json.loads(file.read(length))
            if index["python"] != MAGIC_NUMBER.hex():
                raise ValueError("it was saved by another version of Python")
            # new cells get other numbers: tracebacks go on naming the right one
            self._shell.execution_count = max(self._shell.execution_count, index["count"])
            for name, source in index["sources"].items():
                linecache.cache[name] = len(source), None, source.splitlines(True), name
            for record in index["records"]:
                file.seek(record["start"])
                self._record(file, record)

    def _record(self, file: BinaryIO, record: dict[str, Any]) -> None:
        data = io.BytesIO(file.read(record["end"] - record["start"]))
        unpickler = Unpickler(data, self._marks)
        broken = None
        for name, kind in record["names"]:
            if broken is not None:
                self.missing[name] = f"it belongs together with {broken}, which could not be restored"
                continue
            try:
                with _guard(_LOAD_S):
                    value = unpickler.load()
                if type_name(value) != kind:
                    raise TypeError(f"it came back as {type_name(value)}")
                if name in self._cells.namespaces:
                    raise NameError("the name is reserved now")
            except BaseException as error:
                self.missing[name] = _reason(error)
                broken = name
                continue
            # at once: what comes later may need it
            self._shell.user_ns[name] = value
            self.bound.append(Name(name, kind))


def _groups(variables: list[_Variable]) -> list[list[_Variable]]:
    """Return the variables grouped by what they share; modules, functions and classes first, as others may need them
    when they are loaded."""
    leaders = list(range(len(variables)))

    def leader(number: int) -> int:
        while leaders[number] != number:
            leaders[number] = number = leaders[leaders[number]]
        return number

    seen: dict[int, int] = {}
    for number, variable in enumerate(variables):
        for link in variable.pickler.links:
            first = seen.setdefault(link, number)
            leaders[leader(number)] = leader(first)
    groups: dict[int, list[_Variable]] = {}
    for number, variable in enumerate(variables):
        groups.setdefault(leader(number), []).append(variable)
    ordered = [sorted(group, key=_rank) for group in groups.values()]
    return sorted(ordered, key=lambda group: _rank(group[0]))


def _rank(variable: _Variable) -> int:
    kind = type(variable.value)
    if issubclass(kind, types.ModuleType):
        return 0
    return 1 if issubclass(kind, (type, types.FunctionType)) else 2


def _sources(files: set[str]) -> dict[str, str]:
    entries = {name: linecache.cache.get(name) for name in files}
    return {name: "".join(entry[2]) for name, entry in entries.items() if entry is not None and len(entry) > 2}


@contextmanager
def _guard(seconds: float) -> Iterator[None]:
    """Run code of the user's for so long at most, without its warnings."""
    with warnings.catch_warnings(), policy.limited(seconds):
        warnings.simplefilter("ignore")  # of classes that will not be picklable some day
        yield


def _reason(error: BaseException) -> str:
    if isinstance(error, RenderTimeout):
        return "it took too long"
    return f"{type(error).__name__}: {failure.message(error)}"[:_REASON]
