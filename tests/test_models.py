"""Which model works when none is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers import ModelServer

from prime import models
from prime.config import Config
from prime.errors import ModelNotFound
from prime.providers import registry
from prime.providers.windows import context_window

pytestmark = pytest.mark.anyio

LISTED = {"object": "list", "data": [{"id": "first"}, {"id": "second"}]}


def config(home: Path, **more: object) -> Config:
    return Config(home=home, **more)  # type: ignore[arg-type]


async def test_the_configured_model_is_taken_without_asking_anybody(home: Path) -> None:
    with ModelServer([], models=LISTED) as server:
        chosen = await models.choose(config(home, model="scripted/a", base_url=server.chat_url))
        assert chosen == models.Candidate("scripted/a", "configured")
        assert server.bodies == []


async def test_keys_come_in_a_fixed_order(home: Path) -> None:
    keys = {"DEEPSEEK_API_KEY": "canary", "ANTHROPIC_API_KEY": "canary", "PRIME_REPL_API_KEY": "canary"}
    found = await models.candidates(config(home, keys=keys))
    assert [one.why for one in found if one.why.endswith("is set")] == [
        "ANTHROPIC_API_KEY is set",
        "DEEPSEEK_API_KEY is set",
    ]
    assert "canary" not in repr(found)


async def test_a_server_at_the_given_address_is_asked_and_no_key_goes_there(home: Path) -> None:
    with ModelServer([], models=LISTED) as server:
        found = await models.candidates(config(home, base_url=server.chat_url, keys={"OPENAI_API_KEY": "canary"}))
        assert [one.model for one in found] == ["compatible/first", "compatible/second"]
        assert (await models.choose(config(home, base_url=server.chat_url))).model == "compatible/first"


async def test_a_server_that_lists_nothing_gets_a_hint(home: Path) -> None:
    with ModelServer([]) as server, pytest.raises(ModelNotFound, match="choose one with --model compatible/NAME"):
        await models.choose(config(home, base_url=server.chat_url))


@pytest.mark.parametrize("server", [True, False])
async def test_a_model_file_counts_when_there_is_a_program_to_serve_it(
    home: Path, server: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "models").mkdir()
    (home / "models" / "tiny.gguf").touch()
    (home / "bin").mkdir()
    if server:
        (home / "bin" / "llama-server").touch(mode=0o755)
    else:
        monkeypatch.setattr("sys.path", [])  # the package that brings one is not there either
    found = await models.candidates(config(home, guest_environment={"PATH": str(home / "bin")}))
    assert [one.model for one in found if one.model.startswith("local/")] == (["local/tiny"] if server else [])


@pytest.mark.parametrize("name", models.USUAL_MODELS)
async def test_the_usual_models_exist_and_have_a_key(name: str) -> None:
    provider, _, model = name.partition("/")
    assert context_window(provider, model)
    assert registry.key_variable(provider)
