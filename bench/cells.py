"""Random cells, and how each must end: ``Cells(seed).next()``.

The generator makes what a model or a person may type into a REPL: programs that work, raise, do not parse, print a lot
or in every script, fork, start threads, tasks and programs, end the process or try to, show objects with hostile
methods, call the host rightly and wrongly. The same seed gives the same cells.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

OK, ERROR, REFUSED, DIED = "ok", "error", "refused", "died"


@dataclass(frozen=True)
class Specimen:
    """One cell, what kind it is of, and the statuses it may end with."""

    kind: str
    code: str
    ends: frozenset[str]


class Cells:
    """A seeded source of cells. They expect the host call ``tools.noop(n)``, which gives ``n`` back."""

    def __init__(self, seed: int) -> None:
        self._luck = random.Random(seed)
        self._kinds = list(_KINDS)
        self._weights = [_KINDS[kind].weight for kind in self._kinds]

    def next(self) -> Specimen:
        """Return the next cell."""
        (kind,) = self._luck.choices(self._kinds, self._weights)
        return specimen(kind, self._luck)


def kinds() -> tuple[str, ...]:
    """Return the name of every kind."""
    return tuple(_KINDS)


def specimen(kind: str, luck: random.Random) -> Specimen:
    """Return a cell of ``kind``."""
    chosen = _KINDS[kind]
    return Specimen(kind, chosen.make(luck), chosen.ends)


@dataclass(frozen=True)
class _Kind:
    make: Callable[[random.Random], str]
    ends: frozenset[str]
    weight: float


_KINDS: dict[str, _Kind] = {}


def _kind(*ends: str, weight: float = 1.0) -> Callable[[Callable[[random.Random], str]], Callable[..., str]]:
    def add(make: Callable[[random.Random], str]) -> Callable[[random.Random], str]:
        _KINDS[make.__name__.strip("_").replace("_", " ")] = _Kind(make, frozenset(ends), weight)
        return make

    return add


def _one_of(kind: str, *codes: str, ends: tuple[str, ...], weight: float = 1.0) -> None:
    _KINDS[kind] = _Kind(lambda luck: luck.choice(codes), frozenset(ends), weight)


def _name(luck: random.Random) -> str:
    return f"v{luck.randrange(60)}"


def _value(luck: random.Random, depth: int = 0) -> str:
    simple = [repr(luck.randrange(-1000, 1000)), repr(luck.random()), repr(_text(luck, 12)), "None", "True", "b'\\x00'"]
    if depth > 2 or luck.random() < 0.5:
        return luck.choice(simple)
    parts = [_value(luck, depth + 1) for _ in range(luck.randrange(4))]
    if luck.random() < 0.5:
        return f"[{', '.join(parts)}]"
    return f"{{{', '.join(f'{key!r}: {part}' for key, part in enumerate(parts))}}}"


def _text(luck: random.Random, size: int) -> str:
    """Return text of every script, with control characters and without lone surrogates."""
    ranges = (
        (0x20, 0x7E),
        (0x20, 0x7E),
        (0x0, 0x1F),
        (0xA0, 0x24F),
        (0x590, 0x6FF),
        (0x4E00, 0x9FFF),
        (0x1F300, 0x1FAFF),
    )
    return "".join(chr(luck.randint(*luck.choice(ranges))) for _ in range(luck.randrange(size)))


@_kind(OK, weight=4)
def _assign(luck: random.Random) -> str:
    return f"{_name(luck)} = {_value(luck)}"


@_kind(OK, weight=3)
def _show(luck: random.Random) -> str:
    return f"{_name(luck)} = {_value(luck)}\n{_value(luck)}"


@_kind(OK, weight=2)
def _program(luck: random.Random) -> str:
    name = _name(luck)
    return (
        f"def {name}_f(n):\n    return [k * {luck.randrange(9)} for k in range(n)]\n"
        f"{name} = sum({name}_f({luck.randrange(2_000)}))\nprint({name})"
    )


@_kind(ERROR, weight=2)
def _raise(luck: random.Random) -> str:
    errors = (
        "ValueError",
        "KeyError",
        "StopIteration",
        "GeneratorExit",
        "KeyboardInterrupt",
        "SystemExit",
        "MemoryError",
    )
    awaits = luck.choice(("", "await asyncio.sleep(0)\n"))
    return f"{awaits}raise {luck.choice(errors)}({_text(luck, 3_000)!r})"


@_kind(REFUSED, weight=2)
def _invalid(luck: random.Random) -> str:
    return f"{_name(luck)} = {_value(luck)}\n" + luck.choice(
        ("def f(:", "x = = 1", "'abc", "(((", "return 1", "  y = 1\nz")
    )


@_kind(OK, ERROR, REFUSED, weight=2)
def _scrambled(luck: random.Random) -> str:
    code = list(f"{_name(luck)} = {_value(luck)}\nprint({_value(luck)})\n[x for x in ({_value(luck)},)]")
    for _ in range(luck.randrange(1, 4)):
        code[luck.randrange(len(code))] = luck.choice("()[]{}'\":=,.#\\\n\t @!?%é\x00")
    return "".join(code).replace("input", "").replace("!", "! #")


@_kind(REFUSED, weight=0.5)
def _reserved(luck: random.Random) -> str:
    return luck.choice(("tools = 1", "def history(): pass", "import os as notes", "for context in []: pass"))


@_kind(OK, weight=2)
def _print(luck: random.Random) -> str:
    stream = luck.choice(("sys.stdout", "sys.stderr"))
    return f"import sys\nfor n in range({luck.randrange(1_000)}): print(n, {_text(luck, 60)!r}, file={stream})"


@_kind(OK)
def _unicode(luck: random.Random) -> str:
    return f"print({_text(luck, 300)!r})\ngrün = {_text(luck, 300)!r}\nprint('\\ud800', chr(0xDC80))\ngrün"


@_kind(OK, weight=0.3)
def _flood(luck: random.Random) -> str:
    return f"for _ in range({luck.randrange(1, 40)}): print('x' * 1_000_000)"


@_kind(OK)
def _huge_repr(luck: random.Random) -> str:
    return luck.choice(
        ("list(range(100_000))", "'x' * 3_000_000", "{n: str(n) for n in range(50_000)}", "[[['x'] * 50] * 50] * 50")
    )


@_kind(OK, ERROR)
def _hostile_object(luck: random.Random) -> str:
    method = luck.choice(("__repr__", "__str__", "__getattribute__", "_repr_png_", "__len__", "__eq__", "__del__"))
    error = luck.choice(("ValueError", "SystemExit", "KeyboardInterrupt", "RecursionError"))
    return f"class H:\n    def {method}(self, *a): raise {error}\nprint('made')\nH()"


@_kind(OK, ERROR)
def _hostile_class(luck: random.Random) -> str:
    method = luck.choice(("__repr__", "__getattribute__", "__instancecheck__"))
    error = luck.choice(("ValueError", "SystemExit", "KeyboardInterrupt"))
    shown = luck.choice(("h", "None"))
    return f"class M(type):\n    def {method}(*a): raise {error}\nclass H(metaclass=M): pass\nh = H()\n{shown}"


@_kind(OK, weight=2)
def _fork(luck: random.Random) -> str:
    code = luck.randrange(100)
    child, exits = luck.choice(
        (
            (f"os._exit({code})", code),
            (f"sys.exit({code})", code),
            ("1 / 0", 1),
            ("print('child')", 0),
            ("await asyncio.sleep(0)", 70),
            ("await asyncio.sleep(60)", 1),
        )
    )
    return (
        f"import os, sys\npid = os.fork()\nif pid == 0:\n    {child}\nelse:\n"
        f"    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n    assert code == {exits}, code"
    )


@_kind(OK, weight=0.5)
def _multiprocessing(luck: random.Random) -> str:
    workers = luck.randrange(1, 3)
    return (
        f"import multiprocessing\nwith multiprocessing.get_context('fork').Pool({workers}) as pool:\n"
        "    print(pool.map(abs, [-1, -2]))"
    )


@_kind(OK)
def _threads(luck: random.Random) -> str:
    join = luck.choice(("[t.join() for t in ts]", "pass"))
    return (
        "import threading, time\ndef work(n):\n    time.sleep(0.002)\n    print('thread', n)\n"
        f"ts = [threading.Thread(target=work, args=(n,)) for n in range({luck.randrange(1, 20)})]\n"
        f"for t in ts: t.start()\n{join}"
    )


@_kind(OK)
def _left_behind(luck: random.Random) -> str:
    ending = luck.choice(
        ("pass", "1 / 0", "print('late')", "sys.exit(3)", "raise KeyboardInterrupt", "await tools.noop(n=1)")
    )
    return (
        f"import sys\nasync def late():\n    await asyncio.sleep({luck.random() / 50:.4f})\n    {ending}\n"
        "left = asyncio.ensure_future(late())\n"
        "left.add_done_callback(lambda done: done.cancelled() or done.exception())\nNone"
    )


@_kind(OK)
def _subprocess(luck: random.Random) -> str:
    return luck.choice(
        (
            "import subprocess\nsubprocess.run(['true'], check=True)",
            "import subprocess\nleft = subprocess.Popen(['sleep', '0.2'])\nNone",
            "import subprocess\nprint(subprocess.check_output('echo $$; echo x >&2', shell=True, text=True))",
            "!echo hello; sleep 600 &",
            "%%bash\necho hello\n(sleep 0.1; echo late) &",
            "%%sh\ncat /dev/null",
        )
    )


_one_of(
    "exit",
    "exit()",
    "quit()",
    "import sys\nsys.exit()",
    "import sys\nsys.exit('bye')",
    "raise SystemExit(3)",
    ends=(ERROR,),
)
_one_of(
    "end",
    "import os\nos._exit(3)",
    "import os\nos.kill(os.getpid(), 9)",
    "import os\nos.abort()",
    ends=(DIED,),
    weight=0.1,
)
_one_of(
    "sabotage",
    "import sys\nsys.stdout.close()\nprint('x')",
    "import sys\nsys.stdout = sys.stderr = None",
    "import os\ntry: os.close(1)\nexcept OSError: pass",
    "%reset -f",
    "globals().clear()",
    "del asyncio",
    "asyncio.get_running_loop().stop()",
    "import sys\nasyncio.get_running_loop().call_soon(sys.exit)",
    "import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\nNone",
    "import os\nos.environ.clear()",
    "import gc\ngc.collect()",
    "for task in asyncio.all_tasks(): task.cancel()\nNone",
    ends=(OK,),
)
_one_of(
    "gone folder",
    "import importlib, os, shutil, sys, tempfile\nhere, gone = os.getcwd(), tempfile.mkdtemp()\nos.chdir(gone)\n"
    "with open('gone_module.py', 'w') as file: _ = file.write('def f(): 1 / 0')\nsys.path.insert(0, gone)\n"
    "import gone_module\nshutil.rmtree(gone)\ntry: get_ipython().run_cell('gone_module.f()').raise_error()\n"
    "finally: os.chdir(here)",
    ends=(ERROR,),
    weight=0.3,
)
_one_of(
    "too much",
    "def f(): f()\nf()",
    "bytearray(10**15)",
    "'x' * 10**15",
    "input()",
    "breakpoint() or 1 / 0",
    "asyncio.run(asyncio.sleep(0))",
    "await asyncio.wait_for(asyncio.sleep(9), 0.001)",
    ends=(ERROR,),
)
_one_of("unreadable", "-" * 100_000 + "1", "(" * 5_000 + ")" * 5_000, "x = '\0'", ends=(REFUSED,), weight=0.3)
_one_of("half a character", "print('\ud800')", "x = '\udc80' # \ud83d", ends=(OK,), weight=0.3)
_one_of(
    "call",
    "await tools.noop(n=1)",
    "print(await asyncio.gather(*(tools.noop(n=n) for n in range(50))))",
    "import threading\nt = threading.Thread(target=lambda: print(tools.noop(n=1).result()))\nt.start()\nt.join()",
    "tools.noop(n=1).result()",
    "tools.noop(n=1)",
    "[tools.noop(n=n) for n in range(20)]\nNone",
    "x = tools.noop(n='no number')\nNone",
    "task = asyncio.ensure_future(asyncio.wait_for(tools.noop(n=1), 5))\nawait task",
    "call = tools.noop(n=1)\ntry:\n    await asyncio.wait_for(call, 0.0001)\nexcept asyncio.TimeoutError: pass",
    ends=(OK,),
    weight=4,
)
_one_of(
    "wrong call",
    "await tools.noop(n='no number')",
    "await tools.noop(m=1)",
    "await tools.nothing()",
    "await tools.noop(n=object())",
    "tools.noop(n=1) + 1",
    "await tools.read(path='/nowhere/at/all')",
    ends=(ERROR,),
    weight=2,
)
