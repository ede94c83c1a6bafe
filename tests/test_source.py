"""What keeps a cell from running at all."""

from __future__ import annotations

import ast
import contextlib
import gc
import sys
import threading
import time
from collections.abc import Callable

import pytest
from prime_kernel.shell import CellCompiler
from prime_kernel.source import objection, tree

RESERVED = {"tools", "notes"}


@pytest.mark.parametrize(
    "code",
    [
        "tools = 1",
        "tools: int = 1",
        "tools += 1",
        "(a, [tools, *b]) = 1, [2]",
        "import tools",
        "import tools.sub",
        "import a as tools",
        "from a import b as tools",
        "def tools(): pass",
        "async def tools(): pass",
        "class tools: pass",
        "for tools in []: pass",
        "async for tools in x: pass",
        "with a as tools: pass",
        "try: pass\nexcept E as tools: pass",
        "del tools",
        "(tools := 1)",
        "[tools := x for x in y]",
        "if True:\n    while True:\n        tools = 1",
        "match x:\n    case [tools]: pass",
        "match x:\n    case {**tools}: pass",
        "match x:\n    case [*tools]: pass",
        "match x:\n    case A() as tools: pass",
        "def f():\n    global tools",
        "class A:\n    def f(self):\n        global tools\n        tools = 1",
        "def f(a=(tools := 1)): pass",
        "@(tools := 1)\ndef f(): pass",
        "class A((tools := B)): pass",
    ],
)
def test_every_way_to_bind_a_reserved_name_is_refused(code: str) -> None:
    found = objection(code, RESERVED)
    assert found is not None
    assert found.name == "Refused"
    assert "'tools' is reserved" in found.message


@pytest.mark.parametrize(
    "code",
    [
        "x = tools",
        "tools.read('a')",
        "def f(tools): return tools",
        "def f():\n    tools = 1\n    return tools",
        "class A:\n    tools = 1",
        "[tools for tools in x]",
        "{tools: 1 for tools in x}",
        "(lambda tools: tools)(1)",
        "x.tools = 1",
        "x['tools'] = 1",
        "f(tools=1)",
        "import a.tools",
        "await tools.read('a')",
        "async with a: pass",
        "",
    ],
)
def test_other_uses_of_the_name_are_fine(code: str) -> None:
    assert objection(code, RESERVED) is None


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("x = 1\nx = = 2", "line 2, column 5: "),
        ("x = 1\nreturn x", "line 2"),
        ("'''open", "line 1"),
        ("if True:\npass", "line 2, column 1: "),
        ("def f():\n\tif x:\n        pass", "line 3"),
        ("a\x00b", ""),
        ("yield_ = 1\nbreak", "line 2"),
    ],
)
def test_a_cell_that_does_not_compile_is_refused_with_its_place(code: str, place: str) -> None:
    found = objection(code, RESERVED)
    assert found is not None
    assert found.message.startswith(place)
    assert "nothing ran" in found.message


def test_the_source_is_not_repeated() -> None:
    found = objection("password = 'hunter2' x", RESERVED)
    assert found is not None
    assert "hunter2" not in found.message


@pytest.mark.parametrize("code", ["(" * 5_000 + ")" * 5_000, "(" * 5_000, "-" * 100_000 + "1", "a" + ".b" * 20_000])
def test_nesting_beyond_the_parser_is_an_objection(code: str) -> None:
    found = objection(code, RESERVED)
    assert found is not None
    assert "nested" in found.message
    assert "nothing ran" in found.message
    assert "\n" not in found.message


@pytest.mark.parametrize("terms", [500, 1_500])
def test_a_deep_tree_never_raises(terms: int) -> None:
    found = objection("+".join(["1"] * terms), RESERVED)
    assert found is None or "nested" in found.message


@pytest.mark.parametrize("parsed", [tree, CellCompiler().ast_parse])
def test_other_threads_that_parse_do_not_spoil_a_parse(parsed: Callable[[str, str], object]) -> None:
    nested = "(" * 60 + "1" + ")" * 60 + "\n" + "def f():\n    return [a for a in range(10) if a]\n" * 20
    over = threading.Event()

    def parse() -> None:
        while not over.is_set():
            with contextlib.suppress(SystemError):  # which is what this is about
                ast.parse(nested)

    def switch(*_: object) -> None:
        time.sleep(0.0001)  # lets another thread go on

    threads = [threading.Thread(target=parse) for _ in range(2)]
    before = gc.get_threshold()
    gc.callbacks.append(switch)
    gc.set_threshold(50)
    try:
        for thread in threads:
            thread.start()
        for _ in range(50):
            assert parsed(nested, "<cell>") is not None
        assert gc.isenabled()
    finally:
        over.set()
        for thread in threads:
            thread.join()
        gc.callbacks.remove(switch)
        gc.set_threshold(*before)


def test_the_place_of_a_reserved_name() -> None:
    found = objection("x = 1\nif x:\n    a, notes = x", RESERVED)
    assert found is not None
    assert found.message.startswith("line 3, column 8: 'notes'")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type statements came with Python 3.12")
def test_a_type_statement_binds() -> None:
    assert objection("type tools = int", RESERVED) is not None
