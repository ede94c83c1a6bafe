"""Every command and option is in `docs/cli.md`; every key of a script is in `docs/scripted-models.md`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from prime.cli.chat import COMMANDS
from prime.cli.commands import app
from prime.providers.script import ScriptedReply, read_script

DOCS = Path(__file__).parent.parent / "docs"
CLI = (DOCS / "cli.md").read_text()


def commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


ALL = dict(commands(typer.main.get_command(app), "prime-repl"))


@pytest.mark.parametrize("path", ALL)
def test_every_command_is_documented(path: str) -> None:
    assert f"`{path}" in CLI


@pytest.mark.parametrize("path", ALL)
def test_every_option_is_documented(path: str) -> None:
    options = [option for parameter in ALL[path].params for option in parameter.opts if option.startswith("-")]
    assert [option for option in options if f"`{option}" not in CLI and f"{option} " not in CLI] == []


def test_every_line_of_the_chat_is_documented() -> None:
    assert [name for name in COMMANDS if f"`{name}" not in CLI] == []


def test_every_key_of_a_script_is_documented() -> None:
    page = (DOCS / "scripted-models.md").read_text()
    assert [key for key in ScriptedReply.model_fields if f"`{key}`" not in page] == []


def test_the_example_script_is_one(tmp_path: Path) -> None:
    page = (DOCS / "scripted-models.md").read_text()
    example = page.partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "script.yaml").write_text(example)
    assert len(read_script(tmp_path / "script.yaml").replies) == 2
