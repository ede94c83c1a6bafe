"""The documentation is true: its commands run, its transcript is what the program prints, its figures are measured."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bench import figures

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def run(command: list[str], home: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PRIME_REPL_HOME": str(home), "COLUMNS": "80"}
    # the two streams together, in the order in which a person sees them
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def settled(text: str) -> str:
    """Replace what differs from run to run: durations and the session's id."""
    text = re.sub(r"\b[\d.]+ (ms|s)\]", r"N \1]", text)
    text = re.sub(r"\bN s\]", "N ms]", text)
    return re.sub(r"session \d{8}-\d{6}-\w+", "session ID", text)


def test_the_transcript_is_what_the_program_prints(home: Path) -> None:
    (transcript,) = re.findall(
        r"<!-- transcript -->\n```console\n\$ (.*?)\n(.*?)^```", README, re.DOTALL | re.MULTILINE
    )
    command, shown = transcript
    ran = run([sys.executable, "-m", "prime", *shlex.split(command)[1:]], home)
    assert ran.returncode == 0, ran.stdout
    assert settled(ran.stdout).strip() == settled(shown).strip()


@pytest.mark.parametrize(
    ("page", "code"),
    [(page.name, code) for page in PAGES for code in blocks(page.read_text(), "python")],
    ids=lambda value: value if value.endswith(".md") else "",
)
def test_python_examples_run(page: str, code: str, home: Path) -> None:
    ran = run([sys.executable, "-W", "error", "-c", code], home)
    assert ran.returncode == 0, f"{page}: {ran.stdout}"


def test_the_example_with_a_tool_of_ones_own_answers(home: Path) -> None:
    (code,) = blocks(README, "python")
    assert run([sys.executable, "-c", code], home).stdout == "Together they cost 23.50 euros.\n"


def test_ci_runs_the_set_up_commands_of_the_readme() -> None:
    commands = [command.strip() for command in blocks(README, "sh")]
    ci = (ROOT / ".ci" / "run").read_text()
    assert len(commands) == 2
    assert [command for command in commands if command not in ci] == []


@pytest.mark.parametrize("place", figures.PLACES, ids=lambda place: f"{place.page.stem} {place.mark}")
def test_figures_are_those_of_the_committed_result(place: figures.Place) -> None:
    assert f"<!-- {place.mark} -->\n{place.text()}\n<!-- /{place.mark} -->" in place.page.read_text()


def test_the_committed_result_of_the_kernel_has_its_samples() -> None:
    assert all(row["samples"] for row in json.loads((figures.RESULTS / "kernel.json").read_text())["rows"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_commands_about_mcp_servers_run(home: Path) -> None:
    page = (ROOT / "docs" / "mcp.md").read_text()
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    assert len(lines) == 5
    (home / "server.py").write_text((ROOT / "tests" / "fixtures" / "mcp" / "server.py").read_text())
    for line in lines:
        words = [str(home / word) if word == "server.py" else word for word in shlex.split(line, comments=True)]
        words = [sys.executable if word == "python" else word for word in words]
        ran = run([sys.executable, "-m", "prime", *words[1:]], home)
        assert ran.returncode == 0, f"{line}: {ran.stdout}"
    (table,) = blocks(page, "toml")
    (home / ".config" / "prime-repl" / "config.toml").write_text(table)
    listed = run([sys.executable, "-m", "prime", "mcp", "list"], home).stdout
    assert "https://issues.example.org/mcp  (token: ISSUES_TOKEN)" in listed
