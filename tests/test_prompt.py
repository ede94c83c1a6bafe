"""The prompt: the same bytes for the same configuration, and nothing in it that a cell could not call."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from prime import prompt
from prime.testing import scripted
from prime.tools.base import tool
from prime.tools.catalogue import BUILTIN, Catalogue

FIGURES = {"visible_output_bytes": 12_000, "cell_timeout_s": 600.0}


def test_the_prompt_is_deterministic_whatever_the_order_of_the_tools() -> None:
    one = prompt.system(Catalogue(BUILTIN).bindings(), **FIGURES)
    other = prompt.system(Catalogue(reversed(BUILTIN)).bindings()[::-1], **FIGURES)
    assert one == other


def test_the_figures_are_those_of_the_settings() -> None:
    text = prompt.system((), visible_output_bytes=4_321, cell_timeout_s=12.5)
    assert "4,321 bytes" in text
    assert "12.5 s" in text


def test_the_sandbox_is_told_and_nothing_without_one() -> None:
    plain = prompt.system((), **FIGURES)
    full = prompt.system((), **FIGURES, sandbox="full", network=False)
    assert "sandbox" not in plain
    assert "nothing but the working folder" in full
    assert "There is no network." in full
    assert "There is no network." not in prompt.system((), **FIGURES, sandbox="full")
    assert "working folder" not in prompt.system((), **FIGURES, sandbox="net-off", network=False)


def test_a_signature_reads_as_python() -> None:
    @tool
    def move(path: str, to: str = "here", *, force: bool = False) -> list[str]:
        """Move a thing.

        Details that only help() shows.
        """
        return [path]

    binding = move.binding()
    assert prompt.signature(binding) == "tools.move(path: str, to: str = 'here', *, force: bool = False) -> list[str]"
    text = prompt.sdk((binding,))
    assert "Move a thing." in text
    assert "Details" not in text


def test_the_one_tool_takes_code() -> None:
    spec = prompt.tool()
    assert spec.name == "repl"
    assert spec.parameters["required"] == ("code",)


@pytest.mark.anyio
async def test_every_session_of_one_configuration_sends_the_same_bytes(home: Path) -> None:
    heads = []
    for _ in range(2):
        async with scripted([{"text": "a"}, {"text": "b"}], home=home) as stage:
            await stage.agent.ask("1")
            await stage.agent.ask("2")
            heads += [request.header.model_dump_json() for request in stage.provider.requests]
    assert len(set(heads)) == 1


def test_the_advertised_names_are_those_of_the_catalogue() -> None:
    bindings = Catalogue(BUILTIN).bindings()
    text = prompt.sdk(bindings)
    advertised = set(re.findall(r"^([a-z]+\.[a-z_]+)\(", text, re.MULTILINE))
    assert advertised == {binding.target for binding in bindings}
    assert all(inspect.cleandoc(binding.doc).split("\n")[0].split()[0] in text for binding in bindings)
