"""Exceptions as text. Frames of cells are tested in real kernels (test_repl_cells)."""

from __future__ import annotations

import json

from prime_kernel.failure import LIMIT, message, render


def caught(code: str, file: str = "<cell 2>") -> BaseException:
    try:
        exec(compile(code, file, "exec"), {"json": json})
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != file:  # the frames of this test
            trace = trace.tb_next
        return error.with_traceback(trace)
    raise AssertionError("it did not fail")


def test_the_running_cell_an_earlier_one_and_a_library() -> None:
    assert render(caught("\njson.loads('{')"), "<cell 2>").splitlines()[:2] == [
        "cell line 2",
        "... 3 library frames ...",
    ]
    assert render(caught("1/0"), "<cell 3>") == "earlier cell line 1\nZeroDivisionError: division by zero"


def test_causes_come_first() -> None:
    text = render(caught("try:\n    1/0\nexcept Exception as e:\n    raise LookupError('x') from e"), "<cell 2>")
    assert text.split("\n\n") == [
        "cell line 2\nZeroDivisionError: division by zero",
        "The error above caused this one:\ncell line 4\nLookupError: x",
    ]
    text = render(caught("try:\n    1/0\nexcept Exception as e:\n    raise LookupError('x') from None"), "<cell 2>")
    assert text == "cell line 4\nLookupError: x"


def test_groups_and_notes() -> None:
    text = render(
        caught("e = ExceptionGroup('g', [ValueError(n) for n in range(20)])\ne.add_note('noted')\nraise e"), None
    )
    assert "noted" in text
    assert "  1. ValueError: 0\n" in text
    assert text.endswith("  ... and 12 more")


def test_the_text_is_bounded_and_keeps_both_ends() -> None:
    calls = "\n".join(f"def f{n}():\n    f{n + 1}()" for n in range(200))
    error = caught(f"{calls}\ndef f200(): raise ValueError('x' * 9_000)\nf0()")
    text = render(error, "<cell 2>")
    assert len(text) <= LIMIT
    assert text.startswith("cell line 402")
    assert "characters cut" in text
    assert text.endswith("[cut]")


def test_a_recursion_is_told_once() -> None:
    text = render(caught("def f(n):\n    g(n)\ndef g(n):\n    f(n + 1)\nf(0)"), "<cell 2>")
    assert text.splitlines()[:3] == ["cell line 5", "cell line 2, in f", "cell line 4, in g"]
    assert "... these 2 lines " in text
    assert len(text) < 300


def test_the_members_of_a_group_have_their_lines_and_a_syntax_error_its_text() -> None:
    code = "try:\n    1/0\nexcept Exception as e:\n    x = e\nraise ExceptionGroup('g', [x, ExceptionGroup('h', [x])])"
    assert render(caught(code), "<cell 2>").splitlines() == [
        "cell line 5",
        "ExceptionGroup: g (2 sub-exceptions)",
        "  1. cell line 2",
        "     ZeroDivisionError: division by zero",
        "  2. ExceptionGroup: h (1 sub-exception)",
        "       1. cell line 2",
        "          ZeroDivisionError: division by zero",
    ]
    assert render(caught("exec('x = 1\\ny = = 2')"), "<cell 2>").endswith("  at <string>:2\n    y = = 2")


def test_a_message_survives_its_exception() -> None:
    class Bad(Exception):
        def __str__(self) -> str:
            raise OSError

    assert message(Bad()) == "<its text raised OSError>"
    assert len(message(ValueError("x" * 99_999))) < 2_010
    assert "await main()" in message(RuntimeError("asyncio.run() cannot be called from a running event loop"))
    assert "write `await`" in message(TypeError("Object of type Call is not JSON serializable"))
