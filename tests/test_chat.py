"""The chat in a real terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from command import COMMAND, environment, objects, prime, script

Chat = Callable[..., pexpect.spawn]


@pytest.fixture
def chat(home: Path) -> Iterator[Chat]:
    """Give a function that starts a chat with a script and waits for its prompt."""
    open_ones: list[pexpect.spawn] = []

    def start(*replies: dict[str, Any], options: tuple[str, ...] = (), **more: str) -> pexpect.spawn:
        terminal = pexpect.spawn(
            COMMAND[0],
            [*COMMAND[1:], "chat", "-m", script(home, *replies), *options],
            env={**environment(home), "TERM": "xterm", "NO_COLOR": "1", **more},
            cwd=str(home.parent),
            dimensions=(24, 80),
            encoding="utf-8",
            timeout=30,
        )
        open_ones.append(terminal)
        terminal.expect("›")
        return terminal

    yield start
    for terminal in open_ones:
        terminal.close(force=True)


def leave(terminal: pexpect.spawn) -> str:
    """Leave a chat in good order and return what it printed until its end."""
    terminal.send("\x04")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    return str(terminal.before)


def entries(home: Path) -> list[dict[str, Any]]:
    return objects(prime(home, "sessions", "show", "last", "--json").stdout)


def test_a_call_waits_for_the_person(home: Path, chat: Chat) -> None:
    code = "for n in range(4):\n    try: print((await tools.bash(f'echo $((n{n} + {n}))\\necho \\x1b[2J')).stdout)\n"
    code += "    except ToolCallError as error: print(error.code)"
    terminal = chat({"code": code}, {"text": "So far."}, options=("--rule", "ask tools.bash"))
    terminal.send("go\r")
    terminal.expect_exact("May tools.bash begin? (ask tools.bash)")
    terminal.expect_exact("command: echo $((n0 + 0))")
    terminal.expect_exact("echo \\x1b[2J")  # what moves the cursor is shown, not sent
    terminal.send("perhaps\r")
    terminal.expect_exact("y: yes, once")
    terminal.expect_exact("y: yes, once")
    terminal.send("n\r")
    terminal.expect_exact("command: echo $((n1 + 1))")
    terminal.send("y\r")
    terminal.expect_exact("command: echo $((n2 + 2))")
    terminal.send("a\r")
    terminal.expect_exact("So far.")
    leave(terminal)
    said = [entry for entry in entries(home) if entry["type"] in ("approval_given", "dispatch_started")]
    assert [entry.get("outcome", "began") for entry in said] == [
        "denied",
        "allowed",
        "began",
        "allowed",
        "began",
        "began",
    ]


def test_interrupting_takes_a_question_back(home: Path, chat: Chat) -> None:
    terminal = chat({"code": "await tools.bash('true')"}, {"text": "Never."}, options=("--ask",))
    terminal.send("go\r")
    terminal.expect_exact("May tools.bash begin? (default)")
    terminal.send("\x03")
    terminal.expect_exact("cancelled")
    leave(terminal)
    (given,) = (entry for entry in entries(home) if entry["type"] == "approval_given")
    assert given["outcome"] == "withdrawn"


def test_a_conversation(home: Path, chat: Chat) -> None:
    terminal = chat({"text": "I compute.", "code": "x = 6 * 7\nprint(x)"}, {"text": "It is 42."}, {"text": "Again."})
    terminal.send("What is it?\r")
    terminal.expect_exact("I compute.")
    terminal.expect_exact("  42")
    assert "│ print(x)" in re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", str(terminal.before))
    terminal.expect_exact("It is 42.")
    terminal.send("Once more\r")
    terminal.expect_exact("Again.")
    rest = leave(terminal)
    session = entries(home)[0]["session"]
    assert f"prime-repl chat --session {session}" in rest
    assert [one["kind"] for one in entries(home) if one["type"] == "user_said"] == ["ask", "ask"]


def test_ctrl_c_interrupts_the_cell_and_keeps_the_session(home: Path, chat: Chat) -> None:
    terminal = chat(
        {"code": "kept = 1\nprint('begun')\nawait tools.glob('*')\nawait asyncio.sleep(60)"}, {"text": "Fine."}
    )
    terminal.send("Go\r")
    terminal.expect_exact("→ tools.glob")
    terminal.send("\x03")
    terminal.expect_exact("[cancelled]")
    terminal.send("!kept + 1\r")
    terminal.expect_exact("  2")
    terminal.send("Go on\r")
    terminal.expect_exact("Fine.")
    leave(terminal)
    assert [one["reason"] for one in entries(home) if one["type"] == "turn_ended"] == ["cancelled", "completed"]
    assert prime(home, "sessions", "verify", "last").returncode == 0


def test_what_is_typed_while_it_works_steers_it(home: Path, chat: Chat) -> None:
    begun, go = home / "begun", home / "go"
    code = f"open({str(begun)!r}, 'w').close()\nprint('waiting', flush=True)\nawait tools.glob('*')\n"
    code += f"import os\nwhile not os.path.exists({str(go)!r}): await asyncio.sleep(0.05)"
    terminal = chat({"code": code}, {"text": "Steered.", "expect": "another way"})
    terminal.send("Go\r")
    terminal.expect_exact("→ tools.glob")
    terminal.send("another way\r")
    while not any(one["type"] == "input_queued" and one["kind"] == "steer" for one in entries(home)):
        terminal.expect([pexpect.TIMEOUT, ".+"], timeout=0.05)  # it is an ask once the turn has ended: wait for it
    go.touch()
    terminal.expect_exact("[steer: another way]")
    terminal.expect_exact("Steered.")
    leave(terminal)
    turns = {one["turn"] for one in entries(home) if one["type"] == "user_said"}
    assert turns == {1}


def test_leaving_while_it_works_closes_every_bracket(home: Path, chat: Chat) -> None:
    terminal = chat({"code": "await tools.glob('*')\nawait asyncio.sleep(60)"})
    terminal.send("Go\r")
    terminal.expect_exact("→ tools.glob")
    leave(terminal)
    assert [one["type"] for one in entries(home)][-3:] == ["step_ended", "turn_ended", "session_closed"]


def test_lines_that_begin_with_a_slash(home: Path, chat: Chat) -> None:
    terminal = chat({"text": "Fine."})
    for line, answer in (
        ("/help", "begin a new session"),
        ("/cell number = 7", r"\[set number · \d+ ms\]"),
        ("/names", "number: int"),
        ("/notes", "no note yet"),
        ("/jobs", "none runs"),
        ("/usage", "nothing yet"),
        ("/sessions", r"\* \d{8}-"),
        ("/export out.md", "written to out.md"),
        ("/cell", "write the code behind it"),
        ("/nonsense", "no command /nonsense"),
        ("/export /nowhere/out.md", "error: .*No such file"),
    ):
        terminal.send(f"{line}\r")
        terminal.expect(answer)
    assert "number = 7" in (home.parent / "out.md").read_text()
    terminal.send("/new\r")
    terminal.expect(r"session (\S+)\]")
    terminal.send("/quit\r")
    terminal.expect(pexpect.EOF)
    assert len(objects(prime(home, "sessions", "list", "--json").stdout)) == 2


def test_names_are_listed_while_a_cell_runs(home: Path, chat: Chat) -> None:
    terminal = chat({"text": "Fine."})
    terminal.send("/names\r")
    terminal.expect("no cell runs|no kernel now")
    terminal.send("/cell rows = [0] * 3; await tools.glob('*'); await asyncio.sleep(60)\r")
    terminal.expect_exact("→ tools.glob")
    terminal.send("/names\r")
    terminal.expect(r"a cell runs for \d+\.\d s")
    terminal.expect(r"cell \d+ line 1: rows = ")
    terminal.expect(r"rows: list\[3\]")
    terminal.sendintr()
    terminal.expect("interrupted")
    leave(terminal)


def test_a_session_goes_on_with_its_last_turn_shown(home: Path, chat: Chat) -> None:
    first = chat({"text": "Earlier words."})
    first.send("First\r")
    first.expect_exact("Earlier words.")
    leave(first)
    second = chat({"text": "Later words."}, options=("--continue",))
    if "Earlier words." not in str(second.before):  # the prompt may be drawn before what stands above it
        second.expect_exact("Earlier words.")
    second.send("Second\r")
    second.expect_exact("Later words.")
    leave(second)
    assert [one["turn"] for one in entries(home) if one["type"] == "turn_started"] == [1, 2]


def test_a_message_of_several_lines(home: Path, chat: Chat) -> None:
    terminal = chat({"text": "Read.", "expect": "one\ntwo"})
    terminal.send("one\x1b\rtwo\r")
    terminal.expect_exact("Read.")
    leave(terminal)


def test_nothing_is_coloured_with_no_color(home: Path, chat: Chat) -> None:
    terminal = chat({"text": "Plain.", "code": "print('x')"}, {"text": "End."})
    terminal.send("Go\r")
    terminal.expect_exact("End.")
    printed = str(terminal.before)
    leave(terminal)
    assert re.findall(r"\x1b\[[\d;]*(?:3\d|4\d|9\d)(?:;\d+)*m", printed) == []


def test_a_terminal_that_can_do_nothing(home: Path, chat: Chat) -> None:
    terminal = chat({"code": "await tools.glob('*')\nawait asyncio.sleep(60)"}, {"text": "Fine."}, TERM="dumb")
    terminal.send("Go\r")
    terminal.expect_exact("→ tools.glob")
    terminal.send("\x03")
    terminal.expect_exact("[cancelled]")
    terminal.send("Go on\r")
    terminal.expect_exact("Fine.")
    leave(terminal)
