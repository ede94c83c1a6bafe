"""What a cell shows, binds and refuses, in a real kernel."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kernels import Kernel, kernel

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Kernel]:
    running = kernel(tmp_path_factory.mktemp("cells"))
    yield running
    await running.repl.close()


@pytest.mark.parametrize("value", ["0", "False", "''", "0.0", "[]", "{}", "()", "{'a': [1, None]}", "b'x'"])
async def test_every_completion_but_none_is_shown(shared: Kernel, value: str) -> None:
    assert await shared.value(value) == value


@pytest.mark.parametrize("code", ["None", "7;", "x = 7", "", "   # nothing", "print", "for i in [1]: i"])
async def test_what_shows_nothing(shared: Kernel, code: str) -> None:
    seen = await shared.cell("None" if code == "print" else code)
    assert (seen.status, seen.outputs) == ("ok", [])


async def test_the_slot_keeps_the_latest_completion(shared: Kernel) -> None:
    await shared.cell("41")
    await shared.cell("None")
    assert await shared.value("_ + 1") == "42"
    await shared.cell("_ = 'mine'")
    assert await shared.value("_") == "'mine'"
    await shared.cell("5;")
    assert await shared.value("_") == "5"


async def test_nothing_accumulates_with_completions(shared: Kernel) -> None:
    await shared.cell("class Watched: pass")
    await shared.cell("import weakref; gone = weakref.ref(_w := Watched()); _w")
    await shared.cell("del _w\n'other'")
    await shared.cell("'another'")
    assert await shared.value("gone() is None, len(Out)") == "(True, 0)"


async def test_output_comes_in_order_and_by_stream(shared: Kernel) -> None:
    seen = await shared.cell("import sys\nprint('a')\nprint('b', file=sys.stderr)\ndisplay('c')\n'd'")
    assert [(o.stream, o.text) for o in seen.outputs] == [
        ("stdout", "a\n"),
        ("stderr", "b\n"),
        ("display", "'c'"),
        ("result", "'d'"),
    ]


async def test_output_of_children_is_captured(shared: Kernel) -> None:
    # what a child writes goes through a pipe of ipykernel's and may come with the next cell
    seen = await shared.cell("import subprocess, time\nsubprocess.run(['echo', 'child'])\ntime.sleep(0.3)")
    assert [(o.stream, o.text) for o in seen.outputs] == [("stdout", "child\n")]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("def __repr__(self): raise ValueError('secret')", "<Odd; its representation raised ValueError>"),
        ("def __repr__(self): return 3", "<Odd; its representation raised TypeError>"),
        ("def __getattr__(self, name): raise RuntimeError(name)", "Odd"),
        (
            "def _repr_png_(self): raise OSError\n    def __repr__(self): return 'fine'",
            "fine\n[image/png: <Odd; its representation raised OSError>]",
        ),
        ("def _ipython_display_(self): raise OSError\n    def __repr__(self): return 'fine'", "fine"),
    ],
)
async def test_a_display_method_never_decides_success(shared: Kernel, body: str, words: str) -> None:
    seen = await shared.cell(f"class Odd:\n    {body}\nOdd()")
    assert seen.status == "ok"
    assert words in seen.result
    assert "secret" not in seen.result


async def test_large_values_are_cut_and_stay_alive(shared: Kernel) -> None:
    text = await shared.value("'x' * 3_000_000")
    assert len(text) < 300_000
    assert "2,737,856 more; the value is in `_`" in text
    assert await shared.value("len(_)") == "3000000"
    assert "its representation raised ValueError" in await shared.value("10 ** 5000")
    assert (await shared.value("list(range(2000))")).endswith("999, ... 1,000 more; the value is in `_`]")


async def test_images_are_kept_and_other_forms_are_text(shared: Kernel) -> None:
    seen = await shared.cell(
        "class Plot:\n"
        "    def _repr_png_(self): return b'\\x89PNG'\n"
        "    def _repr_html_(self): return '<p>'\n"
        "    def __repr__(self): return 'a plot'\n"
        "Plot()"
    )
    (output,) = seen.outputs
    assert output.text == "a plot"
    assert output.image is not None
    assert (output.image.media_type, base64.b64decode(output.image.data)) == ("image/png", b"\x89PNG")
    seen = await shared.cell("display({'text/html': '<p>'}, raw=True)")
    assert seen.text("display") == "[text/html: no text form]"


async def test_names_set_and_removed_are_reported_with_types(shared: Kernel) -> None:
    await shared.cell("a = 1; b = [1]; _hidden = 2")
    seen = await shared.cell(
        "import collections\nb = [2]\nc = collections.Counter()\ndel a\nd = d2 = None\n_hidden = 3"
    )
    assert [(n.name, n.type) for n in seen.ended.set if n.name != "collections"] == [
        ("b", "list"),
        ("c", "collections.Counter"),
        ("d", "NoneType"),
        ("d2", "NoneType"),
    ]
    assert seen.ended.removed == ("a",)
    assert (await shared.cell("b")).ended.set == ()


async def test_an_error_keeps_what_was_done_before_it(shared: Kernel) -> None:
    seen = await shared.cell("kept = 1\nraise LookupError('no')\nkept = 2")
    assert seen.status == "error"
    assert seen.error == "LookupError: no"
    assert [n.name for n in seen.ended.set] == ["kept"]
    assert await shared.value("kept") == "1"


async def test_a_traceback_names_cell_lines_and_collapses_libraries(shared: Kernel) -> None:
    await shared.cell("import json\ndef parse(text):\n    return json.loads(text)")
    seen = await shared.cell("x = 1\nparse('{')")
    assert seen.ended.error is not None
    assert seen.ended.error.traceback.splitlines() == [
        "cell line 2",
        "    parse('{')",
        "earlier cell line 3, in parse",
        "    return json.loads(text)",
        "... 3 library frames ...",
        "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ]


async def test_a_deep_or_odd_error_is_bounded_and_harmless(shared: Kernel) -> None:
    seen = await shared.cell("def f(n): f(n + 1)\nf(0)")
    assert seen.error.startswith("RecursionError")
    assert seen.ended.error is not None
    assert len(seen.ended.error.traceback) <= 4_000
    seen = await shared.cell("class Bad(Exception):\n    def __str__(self): raise OSError\nraise Bad")
    assert seen.error == "Bad: <its text raised OSError>"
    assert await shared.value("1") == "1"


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("ran = True\nprint('ran')\nx = (", "line 3"),
        ("ran = True\nreturn 3", "line 2"),
        ("ran = True\nfor x in y:\nprint(x)", "line 3, column 1: expected an indented block"),
        ("ran = True\nnonlocal z", "line 2"),
    ],
)
async def test_a_syntax_error_anywhere_runs_nothing(shared: Kernel, code: str, place: str) -> None:
    seen = await shared.cell(code)
    assert (seen.status, seen.outputs, seen.ended.set) == ("refused", [], ())
    assert seen.error.partition(": ")[0] in {"SyntaxError", "IndentationError"}
    assert seen.error.partition(": ")[2].startswith(place)
    assert "nothing ran" in seen.error
    assert (await shared.cell("ran")).error.startswith("NameError")


async def test_a_reserved_name_is_refused_with_its_place(shared: Kernel) -> None:
    seen = await shared.cell("ran = 1\nfor tools in []: pass")
    assert seen.status == "refused"
    assert "line 2, column 5: 'tools' is reserved" in seen.error
    assert (await shared.cell("ran")).error.startswith("NameError")
    assert await shared.value("tools") == "<tools: echo, fail, never, read, release, slow>"


async def test_namespaces_come_back_when_they_were_tricked_away(shared: Kernel) -> None:
    await shared.cell("globals()['tools'] = 3; globals().pop('history')")
    assert await shared.value("await tools.echo(history.search('x').result())") == "{'query': 'x'}"
    await shared.cell("%reset -f")
    assert await shared.value("await tools.echo(1)") == "1"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("exit()", "exit() would end the kernel"),
        ("quit()", "quit() would end the kernel"),
        ("input('? ')", "nobody can answer input()"),
        ("import getpass; getpass.getpass()", "nobody can answer getpass()"),
        (
            "async def main(): pass\nmain_ = main()\ntry:\n    asyncio.run(main_)\nfinally:\n    main_.close()",
            "`await main()`",
        ),
        ("import sys; sys.exit(1)", "SystemExit: 1"),
    ],
)
async def test_what_cannot_work_in_a_cell_gives_a_lesson(shared: Kernel, code: str, words: str) -> None:
    seen = await shared.cell(code)
    assert seen.status == "error"
    assert words in seen.error
    assert await shared.value("1") == "1"


async def test_magics_and_commands(shared: Kernel, tmp_path: Path) -> None:
    seen = await shared.cell("who = 'you'\n!echo $who; echo err >&2; exit 3")
    assert (seen.status, seen.text(), seen.text("stderr")) == ("ok", "you\n", "err\n")
    assert await shared.value("_exit_code") == "3"
    assert (await shared.cell("%%bash\necho one\necho two")).text() == "one\ntwo\n"
    assert (await shared.cell("%%bash\nexit 3")).error.startswith("CalledProcessError")
    assert (await shared.cell(f"%cd {tmp_path}")).text().startswith(f"{tmp_path}\n")
    assert "Wall time" in (await shared.cell("%time 1")).text()


async def test_a_command_left_in_the_background_does_not_hold_the_cell(shared: Kernel) -> None:
    seen = await shared.cell("%%bash\nsleep 60 &\necho $!")
    assert seen.ended.duration_s < 30
    await shared.cell(f"import os; os.kill({int(seen.text())}, 9)")


async def test_help_shows_the_signature(shared: Kernel) -> None:
    assert "read(path: str, limit: int = 2000) -> Call" in (await shared.cell("help(tools.read)")).text()
    page = (await shared.cell("tools.read?")).text()
    assert "tools.read(path: str, limit: int = 2000) -> Call" in page
    assert "Read a file." in page
    assert await shared.value("dir(tools)") == "['echo', 'fail', 'never', 'read', 'release', 'slow']"
    assert await shared.value("get_ipython().kernel.do_complete('tools.re', 8)['matches']") == "['read', 'release']"


async def test_asyncio_and_the_error_type_are_preloaded(shared: Kernel) -> None:
    assert await shared.value("asyncio.__name__, ToolCallError.__name__") == "('asyncio', 'ToolCallError')"


async def test_text_no_channel_can_carry_is_escaped(shared: Kernel) -> None:
    assert (await shared.cell("print('\\ud800')")).text() == "\\ud800\n"
    assert await shared.value("'\\ud800'") == "'\\ud800'"


@pytest.mark.parametrize("code", ["sys.stdout = io.StringIO()", "sys.stdout.close()", "sys.stdout = sys.stderr = None"])
async def test_no_cell_silences_the_next(shared: Kernel, code: str) -> None:
    await shared.cell(f"import io, sys\n{code}\nprint('lost')")
    seen = await shared.cell("print('b')\nprint('c', file=sys.stderr)")
    assert [(o.text, o.late) for o in seen.outputs] == [("b\n", False), ("c\n", False)]


async def test_output_is_not_kept_in_the_kernel(shared: Kernel) -> None:
    await shared.cell("print('x' * 100_000)")
    assert await shared.value("len(str(dict(get_ipython().history_manager.outputs))) < 1_000") == "True"


async def test_late_prints_are_marked(shared: Kernel) -> None:
    await shared.cell(
        "go = asyncio.Event()\n"
        "async def later():\n    await go.wait()\n    print('late')\n"
        "task = asyncio.create_task(later())"
    )
    seen = await shared.cell("go.set()\nawait task\nprint('now')")
    assert [(o.text, o.late) for o in seen.outputs] == [("late\n", True), ("now\n", False)]


async def test_output_beyond_the_limit_is_counted_and_dropped(tmp_path: Path) -> None:
    small = kernel(tmp_path, output_limit=1_000)
    try:
        seen = await small.cell("for _ in range(100): print('x' * 99)\n'end'")
        assert len(seen.text().encode()) + sum(len(o.text) for o in seen.outputs if o.stream == "result") <= 1_000
        assert seen.ended.dropped >= 9_000
        assert (await small.cell("print('é' * 600)")).ended.dropped >= 200
        seen = await small.cell("class Big:\n    def _repr_png_(self): return b'x' * 5_000\nBig()")
        assert "dropped" in seen.result
        assert seen.outputs[0].image is None
        assert await small.value("1") == "1"
    finally:
        await small.repl.close()


async def test_matplotlib_needs_no_setup(shared: Kernel) -> None:
    seen = await shared.cell("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
    assert any(o.image is not None and o.image.media_type == "image/png" for o in seen.outputs)
