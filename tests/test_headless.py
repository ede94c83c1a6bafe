"""Questions of the gate in a run without a person."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from command import COMMAND, environment, objects, prime, script

CODE = """
for name in "ab":
    try:
        print((await tools.write(path=name, content="x")).operation)
    except ToolCallError as error:
        print(error.code)
"""
REPLIES = ({"code": CODE}, {"text": "Done."})


def test_nobody_answers_in_a_run(home: Path) -> None:
    ran = prime(home, "run", "go", "-m", script(home, *REPLIES), "--ask", "--json")
    assert ran.returncode == 0
    refused = [entry for entry in objects(ran.stdout) if entry["type"] == "dispatch_refused"]
    assert [entry["arguments"]["path"] for entry in refused] == ["a", "b"]
    assert not (home.parent / "a").exists()


def test_a_program_answers_on_standard_input(home: Path) -> None:
    command = [*COMMAND, "run", "go", "-m", script(home, *REPLIES), "--ask", "--json", "--approvals", "stdin"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(home),
        cwd=home.parent,
        text=True,
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stderr is not None
        answers = iter(["approve", "deny"])
        for line in running.stdout:
            entry = json.loads(line)
            if entry["type"] == "approval_requested":
                print("nonsense", json.dumps({"approve": "another"}), sep="\n", file=running.stdin, flush=True)
                print(json.dumps({next(answers): entry["approval_id"]}), file=running.stdin, flush=True)
        complaints = running.stderr.read()
    assert running.returncode == 0
    assert complaints.count("error: expected") == 4
    assert (home.parent / "a").read_text() == "x"
    assert not (home.parent / "b").exists()


@pytest.mark.parametrize("given", ["", '{"approve": "cut off'])
def test_the_end_of_the_input_is_no_leave(home: Path, given: str) -> None:
    model = script(home, *REPLIES)
    ran = prime(home, "run", "go", "-m", model, "--ask", "--json", "--approvals", "stdin", given=given)
    assert ran.returncode == 0
    answers = [entry for entry in objects(ran.stdout) if entry["type"] == "approval_given"]
    assert [(entry["outcome"], entry["by"]) for entry in answers] == 2 * [
        ("denied", "nobody: standard input has ended")
    ]


def test_one_answer_may_be_for_all(home: Path) -> None:
    command = [*COMMAND, "run", "go", "-m", script(home, *REPLIES), "--ask", "--json", "--approvals", "stdin"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(home), cwd=home.parent, text=True
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        for line in running.stdout:
            entry = json.loads(line)
            if entry["type"] == "approval_requested":
                print(json.dumps({"approve": entry["approval_id"], "always": True}), file=running.stdin, flush=True)
    assert (home.parent / "b").read_text() == "x"


@pytest.mark.parametrize("options", [("--approvals", "stdin"), ("--approvals", "else", "--json"), ("-", "--json")])
def test_answers_need_standard_input_for_themselves(home: Path, options: tuple[str, ...]) -> None:
    extra = ("--approvals", "stdin") if options[0] == "-" else ("go",)
    ran = prime(home, "run", *options, *extra, "-m", script(home, *REPLIES), given="go")
    assert ran.returncode == 2
    assert "--approvals is `stdin`" in ran.stderr


def test_a_wrong_rule_is_one_line(home: Path) -> None:
    ran = prime(home, "cell", "-c", "1", "--rule", "forbid everything")
    assert ran.returncode == 2
    assert "is no rule; write one like" in ran.stderr
    assert ran.stderr.count("\n") == 1
