"""Saving and restoring the variables of real kernels."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels import Kernel, kernel
from prime_kernel.snapshot import _Loading, _Saving
from prime_kernel.wire import Restore, Save

from prime.repl.signals import Restored, Saved, Snapshot

pytestmark = pytest.mark.anyio


@pytest.fixture
async def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[], Kernel]]:
    monkeypatch.chdir(tmp_path)
    made = []

    def make() -> Kernel:
        made.append(kernel(tmp_path))
        return made[-1]

    yield make
    for each in made:
        await each.repl.close()


async def saved(k: Kernel, path: Path) -> tuple[Saved, Snapshot]:
    await asyncio.to_thread(path.touch)
    found = await k.repl.save(path)
    assert found is not None
    size = (await asyncio.to_thread(path.stat)).st_size
    return found, Snapshot(path, size, tuple(name.name for name in found.names))


async def restored(k: Kernel, snapshot: Snapshot) -> Restored:
    k.repl.restore(snapshot)
    seen = await k.cell("None")
    (started,) = seen.started
    assert started.restored is not None
    return started.restored


#: What a cell binds to ``x`` (and other names), and what must hold of it again.
FAITHFUL = {
    "numbers": (
        "x = (1, 2.5, 3j, True, None, ..., NotImplemented, 10**50)",
        "x == (1, 2.5, 3j, True, None, ..., NotImplemented, 10**50)",
    ),
    "text and bytes": (
        "x = ['é\\ud800', b'\\x00', bytearray(b'a')]",
        "x == ['é\\ud800', b'\\x00', bytearray(b'a')]",
    ),
    "collections": (
        """
from collections import *
x = {'a': [1, {2}], 'b': (OrderedDict(z=1), Counter('aab'), deque([1], maxlen=3), ChainMap({1: 2}))}
""",
        "x['b'][2].maxlen == 3 and x['b'][1]['a'] == 2 and x['a'] == [1, {2}]",
    ),
    "a default factory of a cell": (
        """
from collections import defaultdict
x = defaultdict(lambda: [start])
start = 5
""",
        "x['new'] == [5]",
    ),
    "a list in itself": (
        """
x = [1]
x.append(x)
""",
        "x[1] is x",
    ),
    "recursion through a tuple": (
        """
x = []
t = (x,)
x.append(t)
""",
        "x[0] is t and t[0] is x",
    ),
    "two names of one list": (
        """
x = []
y = x
z = {'part': x}
""",
        "x is y and z['part'] is x",
    ),
    "a function and its live global": (
        """
g = 1
def x(): return g
""",
        "x() == 1 and (globals().update(g=7), x())[1] == 7",
    ),
    "a function that sets a global": (
        """
n = 0
def x():
    global n
    n += 1
""",
        "(x(), x(), n)[2] == 2",
    ),
    "a function of a missing global": (
        "def x(): return later",
        "(globals().update(later=3), x())[1] == 3",
    ),
    "mutual recursion": (
        """
def x(n): return n == 0 or odd(n - 1)
def odd(n): return n != 0 and x(n - 1)
""",
        "x(10) and odd(7)",
    ),
    "defaults and attributes": (
        """
shared = []
def x(a, b=shared, *, c=2): return b
x.note = 'n'
""",
        "x(0) is shared and x.note == 'n' and x.__kwdefaults__ == {'c': 2}",
    ),
    "closures that share a variable": (
        """
def make():
    n = 0
    def up():
        nonlocal n
        n += 1
    return up, lambda: n
x, get = make()
x()
""",
        "(x(), get())[1] == 2",
    ),
    "a closure over itself": (
        """
def make():
    def f(n): return 1 if n == 0 else n * f(n - 1)
    return f
x = make()
""",
        "x(5) == 120 and x.__closure__[0].cell_contents is x",
    ),
    "a decorated function": (
        """
import functools
def twice(f):
    @functools.wraps(f)
    def inner(*a): return 2 * f(*a)
    return inner
@twice
def x(a): return a + k
k = 1
""",
        "x(2) == 6 and x.__wrapped__(2) == 3",
    ),
    "a cached function": (
        """
import functools
@functools.cache
def x(n): return n if n < 2 else x(n - 1) + x(n - 2)
x(10)
""",
        "x(30) == 832040 and x.cache_parameters()['maxsize'] is None",
    ),
    "a context manager": (
        """
import contextlib
@contextlib.contextmanager
def x():
    yield v
v = 4
""",
        "x().__enter__() == 4",
    ),
    "an async function": (
        """
async def x(): return w
w = 1
""",
        "x.__code__.co_flags & 0x80 and x.__globals__ is globals()",
    ),
    "a lambda in a list": (
        """
x = [lambda: q for _ in range(2)]
q = 3
""",
        "[f() for f in x] == [3, 3]",
    ),
    "a partial": (
        """
import functools, operator
x = functools.partial(operator.add, 1)
""",
        "x(2) == 3",
    ),
    "a class with state": (
        """
class x:
    made = []
    def __init__(self): self.made.append(self)
    def me(self): return self
obj = x()
""",
        "isinstance(obj, x) and x.made[0] is obj and obj.me() is obj",
    ),
    "a class, its base and super": (
        """
class Base:
    def who(self): return 'base'
class x(Base):
    def who(self): return 'x ' + super().who()
obj = x()
""",
        "obj.who() == 'x base' and x.__mro__[1] is Base and isinstance(obj, Base)",
    ),
    "slots, properties, class and static methods": (
        """
class C:
    __slots__ = ('a',)
    @property
    def b(self): return self.a
    @classmethod
    def c(cls): return cls
    @staticmethod
    def d(): return helper()
def helper(): return 9
x = C()
x.a = 1
""",
        "x.b == 1 and x.c() is C and C.d() == 9",
    ),
    "a cached property": (
        """
import functools
class C:
    @functools.cached_property
    def b(self): return [1]
x = C()
x.b
""",
        "x.b is x.b and C().b == [1]",
    ),
    "a dataclass": (
        """
from dataclasses import dataclass, field, replace, fields
@dataclass(frozen=True, order=True)
class C:
    a: int
    b: list = field(default_factory=list)
x = C(1)
""",
        "x == C(1) and replace(x, a=2) > x and [f.name for f in fields(x)] == ['a', 'b']",
    ),
    "an enum": (
        """
import enum
class E(enum.Enum):
    A = 1
    B = 2
x = {'e': E.B}
""",
        "x['e'] is E.B and E(1) is E.A",
    ),
    "named tuples": (
        """
from collections import namedtuple
from typing import NamedTuple
P = namedtuple('P', 'a b')
class Q(NamedTuple):
    a: int = 1
x = (P(1, 2), Q())
""",
        "x[0]._replace(a=3) == P(3, 2) and x[1] == Q(1) and type(x[1]) is Q",
    ),
    "an abstract class": (
        """
import abc
class A(abc.ABC):
    @abc.abstractmethod
    def f(self): ...
class B(A):
    def f(self): return 1
x = B()
""",
        "isinstance(x, A) and x.f() == 1 and B.__abstractmethods__ == frozenset() and bool(A.__abstractmethods__)",
    ),
    "a generic class": (
        """
from typing import Generic, TypeVar
T = TypeVar('T')
class C(Generic[T]):
    pass
x = C[int]()
""",
        "isinstance(x, C) and C.__parameters__ == (T,)",
    ),
    "bound methods": (
        """
items = []
class C:
    def f(self): return self
obj = C()
x = (items.append, obj.f)
""",
        "(x[0](1), items)[1] == [1] and x[1]() is obj",
    ),
    "exceptions": (
        """
class E(Exception):
    def __init__(self, a, *, b):
        super().__init__(f'{a} {b}')
        self.b = b
try:
    try:
        1 / 0
    except ZeroDivisionError as error:
        raise E(1, b=2) from error
except E as error:
    x = error
""",
        "str(x) == '1 2' and x.b == 2 and type(x.__cause__) is ZeroDivisionError and type(x) is E",
    ),
    "a failed call": (
        """
try:
    await tools.fail()
except ToolCallError as error:
    x = error
""",
        "x.code == 'not_found' and x.tool == 'tools.fail' and isinstance(x, ToolCallError)",
    ),
    "a result of a call": (
        "x = await tools.echo(value={'a': [{'b': 1}]})",
        "x.a[0].b == 1 and type(x).__name__ == 'Record'",
    ),
    "the host's calls": (
        "x = {'t': tools, 'r': tools.read}",
        "x['t'] is tools and x['r'] is tools.read",
    ),
    "a function of the host's calls": (
        "async def x(): return await tools.echo(value=1)",
        "await x() == 1",
    ),
    "modules and their parts": (
        """
import xml.etree.ElementTree
import os.path as p, json as j
x = [j]
""",
        "xml.etree.ElementTree.fromstring('<a/>').tag == 'a' and x[0] is j and p.sep == '/'",
    ),
    "what every process has one of": (
        """
import os, sys
x = [os.environ, sys.path, globals(), sys.stdout]
""",
        "x[0] is os.environ and x[1] is sys.path and x[2] is globals() and x[3] is sys.stdout",
    ),
    "views of a dict": (
        """
d = {1: 2}
x = (d.keys(), d.items())
""",
        "(d.update({3: 4}), list(x[0]), len(x[1]))[1:] == ([1, 3], 2)",
    ),
    "a mapping proxy": (
        """
import types
d = {1: 2}
x = types.MappingProxyType(d)
""",
        "(d.update({3: 4}), x[3])[1] == 4",
    ),
    "iterators of lists": (
        """
l = [1, 2, 3]
x = iter(l)
next(x)
""",
        "next(x) == 2",
    ),
    "io in memory": (
        """
import io
x = io.StringIO('abc')
x.read(1)
""",
        "x.read() == 'bc'",
    ),
    "dates, paths, decimals, patterns": (
        """
import datetime, pathlib, decimal, re, uuid, fractions, random
x = [datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc), pathlib.Path('a'), decimal.Decimal('1.10')]
x += [re.compile('a+', re.I), uuid.UUID(int=1), fractions.Fraction(1, 3), random.Random(1)]
first = random.Random(1).random()
""",
        "x[-1].random() == first and x[3].match('AA') and str(x[2]) == '1.10'",
    ),
    "names with an underscore": (
        """
_hidden = 5
def x(): return _hidden
""",
        "x() == 5",
    ),
    "the place of an error and the source": (
        """
def x():
    return 1 / 0
""",
        "__import__('inspect').getsource(x).rstrip() == 'def x():\\n    return 1 / 0'",
    ),
    "arrays": (
        """
import numpy as np
x = np.arange(12, dtype='f4').reshape(3, 4)
m = np.ma.array([1, 2], mask=[0, 1])
s = np.array(['a', None], dtype=object)
""",
        "x.dtype == 'f4' and x[2, 3] == 11 and m.mask[1] and s[1] is None",
    ),
    "views of arrays": (
        """
import numpy as np
base = np.arange(24).reshape(4, 6)
x = base[1:, ::-2]
t = base.T
d = np.array(['2020', '2021'], 'M8[Y]')
d2 = d[1:]
f = np.asfortranarray(np.ones((2, 3)))
f2 = f[1]
""",
        "(base.__setitem__((1, 5), 99), d.__setitem__(1, d[0]), f.__setitem__(1, 5)) and "
        "(x[0, 0], t[5, 1], d2[0] == d[0], f2[2], x.shape) == (99, 99, True, 5, (3, 3))",
    ),
    "data frames": (
        """
import pandas as pd
x = pd.DataFrame({'a': [1, 2], 'b': ['x', None]}, index=pd.date_range('2020', periods=2))
s = x['a']
""",
        "x.loc['2020-01-02', 'a'] == 2 and s.sum() == 3 and x.index.freq is not None and isinstance(x, pd.DataFrame)",
    ),
}

#: What a cell binds to ``x``, and a word of the reason why that is not saved.
REFUSED = {
    "an open file": (
        "x = open('f.txt', 'w+')",
        "open files",
    ),
    "a file in a list": (
        "x = [open('f.txt', 'wb')]",
        "open files",
    ),
    "a memoryview": (
        "x = memoryview(bytearray(3))",
        "memoryviews",
    ),
    "a weak reference": (
        """
import weakref
class C: pass
c = C()
x = weakref.ref(c)
""",
        "weak references",
    ),
    "a weak set": (
        """
import weakref
x = weakref.WeakSet()
""",
        "weak references",
    ),
    "a temporary folder": (
        """
import tempfile
x = tempfile.TemporaryDirectory()
""",
        "weak references",
    ),
    "a generator": (
        "x = (i for i in range(3))",
        "generators",
    ),
    "a coroutine": (
        """
async def f(): pass
x = f()
""",
        "coroutines",
    ),
    "a running task": (
        """
import asyncio
x = asyncio.ensure_future(asyncio.sleep(100))
""",
        "tasks",
    ),
    "a running call": (
        """
x = tools.echo(value=1)
await x
""",
        "running calls",
    ),
    "an iterator of a dict": (
        "x = iter({1: 2})",
        "iterators",
    ),
    "a lock": (
        """
import threading
x = threading.Lock()
""",
        "locks",
    ),
    "a thread": (
        """
import threading
x = threading.Thread(target=print)
""",
        "threads",
    ),
    "an object with a lock": (
        """
import threading
class C:
    def __init__(self): self.l = threading.RLock()
x = C()
""",
        "locks",
    ),
    "a process": (
        """
import subprocess
x = subprocess.Popen(['true'])
x.wait()
""",
        "processes",
    ),
    "a socket": (
        """
import socket
x = socket.socket()
""",
        "sockets",
    ),
    "a database": (
        """
import sqlite3
x = sqlite3.connect(':memory:')
""",
        "sqlite3.Connection",
    ),
    "a module made at run time": (
        """
import types
x = types.ModuleType('made')
""",
        "run time",
    ),
    "a logger that was set up": (
        """
import logging
x = logging.getLogger('a')
x.setLevel(10)
""",
        "logger",
    ),
    "memory of others": (
        """
import numpy as np
b = bytearray(8)
x = np.frombuffer(b, 'u1')
""",
        "memory of another object",
    ),
    "a traceback": (
        """
try:
    1 / 0
except Exception as e:
    x = e.__traceback__
""",
        "tracebacks",
    ),
    "a frame": (
        """
import sys
x = sys._getframe()
""",
        "frames",
    ),
    "a cell of a closure": (
        """
def f():
    n = 1
    return lambda: n
x = f().__closure__[0]
""",
        "cell",
    ),
    "the namespace of a class": (
        """
class C: pass
x = vars(C)
""",
        "namespace of a class",
    ),
    "what is too large": (
        "x = bytes(17 * 1024 * 1024)",
        "more than 16,777,216 bytes",
    ),
    "an array that is too large": (
        """
import numpy as np
x = np.zeros(3_000_000)
""",
        "24,000,000 bytes",
    ),
    "what raises": (
        """
class C:
    def __reduce__(self): raise OSError('no')
x = C()
""",
        "OSError: no",
    ),
    "what exits": (
        """
class C:
    def __reduce__(self): raise SystemExit
x = C()
""",
        "SystemExit",
    ),
    "what has no end": (
        """
class C:
    def __reduce__(self):
        while True: pass
x = C()
""",
        "too long",
    ),
    "what is too deep": (
        """
x = []
for _ in range(100_000): x = [x]
""",
        "Recursion",
    ),
}


@pytest.mark.parametrize("case", FAITHFUL)
async def test_a_value_comes_back_as_it_was(case: str, kernels: Callable[[], Kernel], tmp_path: Path) -> None:
    code, holds = FAITHFUL[case]
    k = kernels()
    assert (await k.cell(code)).status == "ok"
    found, snapshot = await saved(k, tmp_path / "s")
    assert found.left_out == ()
    await k.repl.close()
    again = kernels()
    assert (await restored(again, snapshot)).missing == ()
    assert await again.value(f"bool({holds})" if "await" not in holds else holds) == "True"


async def test_what_would_come_back_as_something_else_is_left_out(
    kernels: Callable[[], Kernel], tmp_path: Path
) -> None:
    k = kernels()
    await k.cell("good = 1")
    for case, (code, word) in REFUSED.items():
        assert (await k.cell(code)).status == "ok", case
        before = await k.value("str(type(x))")
        found, _ = await saved(k, tmp_path / "s")
        reasons = {each.name: each.reason for each in found.left_out}
        assert word in reasons.get("x", "nothing"), (case, reasons)
        assert "good" in [each.name for each in found.names], case
        assert await k.value("str(type(x))") == before, case


async def test_every_landmark_outlives_the_table_of_their_ids(kernels: Callable[[], Kernel]) -> None:
    k = kernels()
    await k.cell("""
from prime_kernel.pickling import landmarks
shell = get_ipython()
proxies = {"tools": tools, "history": history}
first, second = (landmarks(globals(), proxies, shell) for _ in range(2))
""")
    assert await k.value("len(first) > 10 and [name for name in first if first[name] is not second[name]]") == "[]"


async def test_what_no_snapshot_holds_is_counted(kernels: Callable[[], Kernel], tmp_path: Path) -> None:
    k = kernels()
    await k.cell("a = 1")
    found, _ = await saved(k, tmp_path / "s")
    assert (found.threads, found.tasks, found.processes) == (0, 0, 0)
    await k.cell("""
import asyncio, subprocess, threading
event = threading.Event()
threading.Thread(target=event.wait, daemon=True).start()
async def forever(): await asyncio.sleep(1000)
task = asyncio.create_task(forever())
await asyncio.sleep(0)
child = subprocess.Popen(["sleep", "1000"])
""")
    found, _ = await saved(k, tmp_path / "s")
    assert (found.threads, found.tasks, found.processes) == (1, 1, 1)


async def test_a_restored_function_is_interrupted_and_traced_like_any_other(
    kernels: Callable[[], Kernel], tmp_path: Path
) -> None:
    k = kernels()
    await k.cell("def fail():\n    return 1 / 0\ndef spin():\n    print('ready', flush=True)\n    while True: pass")
    _, snapshot = await saved(k, tmp_path / "s")
    again = kernels()
    await restored(again, snapshot)
    assert (await again.interrupted("spin()")).status == "interrupted"
    failed = (await again.cell("fail()")).ended.error
    assert failed is not None
    assert "earlier cell" in failed.traceback
    assert "return 1 / 0" in failed.traceback


async def test_a_value_that_cannot_be_loaded_takes_only_its_kin_along(
    kernels: Callable[[], Kernel], tmp_path: Path
) -> None:
    k = kernels()
    await k.cell("""
class C:
    def __setstate__(self, state): raise OSError("no")
shared = []
before = [shared]
bad = C()
bad.part = shared
kin = {"part": shared}
other = [1]
""")
    _, snapshot = await saved(k, tmp_path / "s")
    again = kernels()
    found = await restored(again, snapshot)
    reasons = {each.name: each.reason for each in found.missing}
    assert reasons == {"bad": "OSError: no", "kin": "it belongs together with bad, which could not be restored"}
    assert await again.value("before[0] is shared and other") == "[1]"


async def test_another_version_of_python_refuses_it_whole(kernels: Callable[[], Kernel], tmp_path: Path) -> None:
    k = kernels()
    await k.cell("a = 1")
    _, snapshot = await saved(k, tmp_path / "s")
    data = (tmp_path / "s").read_bytes()
    (tmp_path / "s").write_bytes(data.replace(MAGIC_NUMBER.hex().encode(), b"00000000"))
    found = await restored(kernels(), snapshot)
    assert [(each.name, "another version of Python" in each.reason) for each in found.missing] == [("a", True)]


async def test_what_is_no_snapshot_leaves_an_empty_kernel(kernels: Callable[[], Kernel], tmp_path: Path) -> None:
    for number, data in enumerate([b"", b"\x00" * 8, b"\xff" * 100, b"[]" + b"\x00" * 7 + b"\x02"]):
        path = tmp_path / str(number)
        path.write_bytes(data)
        k = kernels()
        found = await restored(k, Snapshot(path, len(data), ("a",)))
        assert [each.name for each in found.missing] == ["a"]
        assert await k.value("1") == "1"


class _Shell:
    """What saving and loading need of a shell."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.user_ns = names
        self.execution_count = 1
        self.namespaces: dict[str, Any] = {}


def shape(value: Any, seen: dict[int, int]) -> Any:
    """Return a value with each list and dict by the number of its first occurrence: what is the same stays the same."""
    if not isinstance(value, (list, dict)):
        return value
    if id(value) in seen:
        return seen[id(value)]
    seen[id(value)] = len(seen)
    if isinstance(value, list):
        return [len(seen), *(shape(each, seen) for each in value)]
    return {len(seen): {key: shape(each, seen) for key, each in value.items()}}


@given(st.data())
def test_what_variables_share_they_share_again(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    pool: list[Any] = [data.draw(st.sampled_from([list, dict]))() for _ in range(count)]
    for _ in range(data.draw(st.integers(0, 20))):  # in any order: with circles
        holder = data.draw(st.sampled_from(pool))
        part = data.draw(st.sampled_from([*pool, 1, "text", (1, 2)]))
        holder.append(part) if isinstance(holder, list) else holder.update({len(holder): part})
    names = {f"v{number}": data.draw(st.sampled_from(pool)) for number in range(data.draw(st.integers(1, 6)))}
    assert cloudpickle.__file__ is not None
    folder = str(Path(cloudpickle.__file__).parent)
    with tempfile.NamedTemporaryFile() as file:
        saving = _Saving(Save(1, file.name, folder, 10**6, 10**7), names, list(names), {})
        saving.write(1)
        assert saving.left_out == {}
        shell = _Shell({})
        _Loading(Restore(1, file.name, Path(file.name).stat().st_size, folder), shell, shell, {}).load()
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    assert [shape(names[name], before) for name in names] == [shape(shell.user_ns[name], after) for name in names]
