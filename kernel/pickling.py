"""How values of a namespace become bytes and come back as what they were, or are refused with the reason.

Over cloudpickle, of which it takes classes by value and its table of reducers, and differs in whatever that would
restore as something else: functions keep their live globals and share their closures, files and memoryviews are
refused instead of copied, views stay views.
"""

from __future__ import annotations

import array
import asyncio
import builtins
import functools
import gc
import importlib
import importlib.util
import io
import logging
import marshal
import mmap
import os
import pickle
import socket
import subprocess
import sys
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from typing import Any

from . import rebuild
from .bridge import Call
from .interrupt import CELL_FILE

#: The name under which the host's cloudpickle is loaded: one that the user has installed stays another module.
LIBRARY = f"{__package__}.cloudpickle"


class Refused(Exception):
    """A value that would not come back as what it is. The message is the reason."""


class TooLarge(Refused):
    """A value that needs more bytes than it may."""


class Sink:
    """Counts the bytes of pickles up to ``limit`` and passes them on to ``file``, if there is one."""

    def __init__(self, limit: int, file: Any = None) -> None:
        self.size = 0
        self.limit = limit
        self._file = file

    def write(self, data: Any) -> int:
        """Take a piece.

        Raises:
            TooLarge: it goes beyond the limit; nothing of it is kept.
        """
        with memoryview(data) as view:
            self.size += view.nbytes
            if self.size > self.limit:
                raise TooLarge(f"it needs more than {self.limit:,} bytes")
            if self._file is not None:
                self._file.write(view)
            return view.nbytes


def library(folder: str) -> Any:
    """Return cloudpickle, loaded from its ``folder``."""
    if LIBRARY not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            LIBRARY, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"no package in {folder}")
        package = sys.modules[LIBRARY] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(package)
    return importlib.import_module(f"{LIBRARY}.cloudpickle")


def landmarks(namespace: dict[str, Any], proxies: Mapping[str, Any], shell: Any) -> dict[str, Any]:
    """Return the objects that every kernel has one of, by the name under which a snapshot refers to them."""
    found = {
        "globals()": namespace,
        "__main__": sys.modules["__main__"],
        "builtins": vars(builtins),
        "get_ipython()": shell,
        "os.environ": os.environ,
        "sys.modules": sys.modules,
        "sys.path": sys.path,
        "sys.stdout": sys.stdout,
        "sys.stderr": sys.stderr,
    }
    for name, proxy in proxies.items():
        found[name] = proxy
        found.update({f"{name}.{member}": getattr(proxy, member) for member in dir(proxy)})
    return found


class Pickler(pickle.Pickler):
    """Pickles values that belong together: what two of them share is shared again when they come back.

    Attributes:
        files: names of the files of cells whose code was pickled.
        buffers: for each numpy array that owns memory, the arrays that were met in it, by id; see ``shared``.
    """

    def __init__(self, sink: Sink, library: Any, marks: Mapping[int, str], shared: Iterable[int] = ()) -> None:
        """``marks``: names of the landmarks by their ids. ``shared``: ids of the arrays in whose memory several arrays
        lie; these become views again."""
        super().__init__(sink, protocol=5)
        self.dispatch_table = library.Pickler.dispatch_table
        self.files: set[str] = set()
        self.buffers: dict[int, set[int]] = {}
        self._library = library
        self._limit = sink.limit
        self._marks = marks
        self._shared = frozenset(shared)
        self._cells: set[int] = set()
        self._inert = set(_IMMUTABLE)
        self._met: set[int] = set()
        self._imported: set[int] = set()
        self._reducers: dict[type, Callable[[Pickler, Any], Any] | None] = {}
        self._array = getattr(sys.modules.get("numpy"), "ndarray", None)

    def persistent_id(self, obj: Any) -> str | None:
        """Return the name of a landmark. Asked for every object, so that this also sees what there is to share, and
        stops at a large text before that is copied."""
        kind = type(obj)
        if kind in _TEXTS and len(obj) > self._limit:
            raise TooLarge(f"it needs more than {self._limit:,} bytes")
        if kind in self._inert:
            return None
        number = id(obj)
        name = self._marks.get(number)
        if name is None:
            self._met.add(number)
        return name

    def reducer_override(self, obj: Any) -> Any:
        """Return how to make ``obj`` again. Not asked for the simple built-in types."""
        kind = type(obj)
        if kind not in self._reducers:
            self._reducers[kind] = self._reducer(kind)
            if kind.__module__ in _IMMUTABLE_MODULES:
                self._inert.add(kind)
                self._imported.add(id(obj))
        reducer = self._reducers[kind]
        made = NotImplemented if reducer is None else reducer(self, obj)
        by_name = made is NotImplemented and issubclass(kind, (type, types.FunctionType))
        if by_name or issubclass(kind, types.ModuleType):
            self._imported.add(id(obj))
        return made

    @property
    def plain(self) -> bool:
        """Whether nothing was met but built-in values, which are pickled without any code of the user's."""
        return not self._reducers

    @property
    def links(self) -> set[int]:
        """The ids of the objects met whose identity matters. Valid while this pickler is alive: some objects live only
        in its memo."""
        return (self._met - self._imported) | self.buffers.keys()

    def _reducer(self, kind: type) -> Callable[[Pickler, Any], Any] | None:
        for refused, why in _REFUSED:
            if issubclass(kind, refused) and kind not in _KEPT:
                return functools.partial(_refuse, f"{why} cannot be saved")
        if issubclass(kind, type):
            return _class
        if self._array is not None and issubclass(kind, self._array):
            return Pickler._ndarray
        if issubclass(kind, BaseException):
            return _exception
        if issubclass(kind, types.ModuleType):
            return _module
        return _REDUCERS.get(kind)

    def _function(self, function: types.FunctionType) -> Any:
        if self._library._should_pickle_by_reference(function):
            return NotImplemented
        names: Any = function.__globals__
        module = sys.modules.get(str(names.get("__name__")))
        if module is not None and vars(module) is names and id(names) not in self._marks:
            names = _ModuleNames(module.__name__)
        cells = function.__closure__ or ()
        self._cells.update(map(id, cells))
        state = {name: getattr(function, name) for name in _FUNCTION_STATE}
        # the cells' contents come with the state, when the function is there: they may lead back to it
        contents = [(cell, cell.cell_contents) for cell in cells if _filled(cell)]
        arguments = function.__code__, names, function.__closure__
        return rebuild.new_function, arguments, (state, function.__dict__, contents), None, None, rebuild.fill_function

    def _code(self, code: types.CodeType) -> Any:
        if code.co_filename.startswith(CELL_FILE):
            self.files.add(code.co_filename)
        return marshal.loads, (marshal.dumps(code),)

    def _cell(self, cell: types.CellType) -> Any:
        if id(cell) not in self._cells:
            raise Refused("a closure's cell cannot be saved without its function")
        return types.CellType, ()

    def _ndarray(self, found: Any) -> Any:
        owner = found
        while isinstance(owner.base, self._array):  # type: ignore[arg-type]
            owner = owner.base
        if isinstance(owner.base, _FOREIGN_MEMORY) and owner.flags.writeable:
            raise Refused("an array in the memory of another object cannot be saved; save a copy")
        self.buffers.setdefault(id(owner), set()).add(id(found))
        if found.nbytes > self._limit:
            raise TooLarge(f"it holds an array of {found.nbytes:,} bytes; {self._limit:,} may be saved")
        if owner is found or id(owner) not in self._shared:
            return NotImplemented
        if type(found) is not self._array or found.dtype.hasobject or not owner.flags.forc:
            raise Refused("it shares memory with another array in a way that cannot be saved; save a copy")
        start = found.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        return rebuild.new_view, (owner, found.dtype, found.shape, start, found.strides, found.flags.writeable)


class _ModuleNames:
    """Stands for the namespace of an imported module."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild.module_names, (self._module,)


def _refuse(why: str, pickler: Pickler, obj: Any) -> Any:
    raise Refused(why)


def _class(pickler: Pickler, cls: type) -> Any:
    return pickler._library._class_reduce(cls)


def _module(pickler: Pickler, module: types.ModuleType) -> Any:
    name = module.__name__
    if sys.modules.get(name) is not module or getattr(module, "__spec__", None) is None:
        raise Refused("a module that was made at run time cannot be saved")
    # `import xml.etree` binds xml alone: its parts have to be imported again too
    return rebuild.import_module, (name, tuple(part for part in list(sys.modules) if part.startswith(f"{name}.")))


def _exception(pickler: Pickler, error: BaseException) -> Any:
    kind = type(error)
    if kind.__reduce__ is not BaseException.__reduce__ or kind.__setstate__ is not BaseException.__setstate__:
        return NotImplemented
    state = {**error.__dict__}
    for name in ("__cause__", "__context__", "__suppress_context__"):
        if value := getattr(error, name):
            state[name] = value
    return rebuild.new_exception, (kind, error.args), state


def _lru_cache(pickler: Pickler, cached: Any) -> Any:
    module = sys.modules.get(cached.__module__)
    if cached.__module__ != "__main__" and getattr(module, cached.__qualname__, None) is cached:
        return NotImplemented
    parameters = cached.cache_parameters()
    return rebuild.new_lru_cache, (cached.__wrapped__, parameters["maxsize"], parameters["typed"]), cached.__dict__


def _logger(pickler: Pickler, logger: logging.Logger) -> Any:
    if logger.handlers or logger.filters or logger.level != (logging.WARNING if logger is logging.root else 0):
        raise Refused("a logger that was set up cannot be saved")
    return logging.getLogger, () if logger is logging.root else (logger.name,)


def _mapping_proxy(pickler: Pickler, proxy: Any) -> Any:
    (mapping,) = gc.get_referents(proxy)
    if "__dict__" in proxy:  # of a class, whose own mapping nobody may hold
        raise Refused("the namespace of a class cannot be saved")
    return types.MappingProxyType, (mapping,)


def _dict_view(name: str, pickler: Pickler, view: Any) -> Any:
    (mapping,) = gc.get_referents(view)
    return rebuild.new_dict_view, (mapping, name)


def _cached_property(pickler: Pickler, found: Any) -> Any:
    return rebuild.new_cached_property, (found.func, found.attrname)


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - reading is the question
    except ValueError:
        return False
    return True


_FUNCTION_STATE = (
    "__name__",
    "__qualname__",
    "__module__",
    "__doc__",
    "__defaults__",
    "__kwdefaults__",
    "__annotations__",
)

_TEXTS = frozenset({str, bytes, bytearray})

#: Memory that an array may lie in and that others may write to.
_FOREIGN_MEMORY = (bytearray, memoryview, mmap.mmap, array.array)

#: Types whose objects nobody can tell from a copy, and modules of which all types are such.
_IMMUTABLE = frozenset(
    {
        *(str, bytes, int, float, complex, bool, tuple, frozenset, range, slice, type(None), type(...)),
        *(types.BuiltinFunctionType, types.CodeType),
    }
)
_IMMUTABLE_MODULES = frozenset(
    {"datetime", "decimal", "fractions", "numpy.dtypes", "pathlib", "re", "uuid", "zoneinfo"}
)

_EMPTY: dict[str, Any] = {}

_KEPT = frozenset({io.StringIO, io.BytesIO})

_REFUSED: tuple[tuple[Any, str], ...] = (
    (Call, "running calls"),
    ((io.IOBase, mmap.mmap, socket.socket), "open files and sockets"),
    (memoryview, "memoryviews"),
    (
        (weakref.ref, weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.finalize),
        "weak references",
    ),
    ((types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType), "generators and coroutines"),
    ((types.FrameType, types.TracebackType), "frames and tracebacks"),
    (
        (type(iter(_EMPTY)), type(iter(_EMPTY.values())), type(iter(_EMPTY.items())), type(iter(_EMPTY.keys() & ()))),
        "iterators of dicts and sets",
    ),
    (
        (type(reversed(_EMPTY)), type(reversed(_EMPTY.values())), type(reversed(_EMPTY.items()))),
        "iterators of dicts and sets",
    ),
    ((asyncio.Future, asyncio.AbstractEventLoop), "tasks, futures and event loops"),
    ((threading.Thread, Executor), "threads"),
    ((type(threading.Lock()), type(threading.RLock()), threading.Condition), "locks"),
    (subprocess.Popen, "processes"),
    (logging.Handler, "handlers of logs"),
)

_REDUCERS: dict[type, Callable[[Pickler, Any], Any]] = {
    types.FunctionType: Pickler._function,
    types.CodeType: Pickler._code,
    types.CellType: Pickler._cell,
    types.MappingProxyType: _mapping_proxy,
    functools._lru_cache_wrapper: _lru_cache,
    functools.cached_property: _cached_property,
    logging.Logger: _logger,
    logging.RootLogger: _logger,
    **{
        type(getattr(mapping, name)()): functools.partial(_dict_view, name)
        for mapping in (_EMPTY, OrderedDict(_EMPTY))
        for name in ("keys", "values", "items")
    },
}
