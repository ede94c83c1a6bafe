import socket

import pytest
from servers import Answer, ModelServer

from prime.errors import ConfigError, ModelNotFound
from prime.messages import Header, Message, Request, TextPart
from prime.providers import registry
from prime.providers.dialects import DIALECTS
from prime.providers.http import HttpProvider
from prime.providers.probe import Found, probe
from prime.providers.scripted import ScriptedProvider
from prime.providers.windows import context_window

pytestmark = pytest.mark.anyio

KEYS = {
    "OPENAI_API_KEY": " o\n",
    "ANTHROPIC_API_KEY": "a",
    "DEEPSEEK_API_KEY": "d",
    "OPENROUTER_API_KEY": "r",
    "PRIME_REPL_API_KEY": "c",
}
ASKED = Request(
    header=Header(model="m", system="", tools=()),
    messages=(Message(role="user", parts=(TextPart(text="go"),)),),
)


@pytest.mark.parametrize(
    ("name", "window", "images"),
    [
        ("openai/gpt-4o", 128_000, True),
        ("anthropic/claude-sonnet-4-5", 200_000, True),
        ("deepseek/deepseek-chat", 64_000, False),
        ("openrouter/anthropic/claude-sonnet-4.5", 1_000_000, False),
        ("ollama/qwen3:8b", None, False),
        ("openai/not-a-model", None, True),
    ],
)
async def test_a_name_gives_a_provider_with_what_is_known_of_it(name, window, images) -> None:
    provider = registry.resolve(name, registry.Settings(keys=KEYS))
    assert isinstance(provider, HttpProvider)
    assert (provider.model, provider.context_window, provider.images) == (name, window, images)
    await provider.close()


async def test_every_provider_speaks_its_dialect_with_its_key() -> None:
    expected = {"anthropic": "a", "openai": "Bearer o", "deepseek": "Bearer d", "openrouter": "Bearer r"}
    expected |= {"compatible": "Bearer c", "ollama": None}
    with ModelServer([Answer(text="hi")] * len(expected)) as server:
        for name in expected:
            url = server.url if name == "anthropic" else f"{server.chat_url}/"
            provider = registry.resolve(f"{name}/some/model", registry.Settings(keys=KEYS, base_url=url))
            await provider.reply(ASKED, lambda delta: None)
            await provider.close()
    assert [body["model"] for body in server.bodies] == ["some/model"] * len(expected)
    assert server.paths == ["/v1/messages", *["/v1/chat/completions"] * 5]
    sent = [headers.get("x-api-key") or headers.get("authorization") for headers in server.headers]
    assert sent == list(expected.values())


async def test_images_may_be_settled_by_the_user() -> None:
    provider = registry.resolve("openai/gpt-4o", registry.Settings(keys=KEYS, images=False))
    assert not provider.images
    await provider.close()


def test_a_script_is_a_model(tmp_path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("- text: hi\n")
    provider = registry.resolve(f"scripted/{path}", registry.Settings())
    assert isinstance(provider, ScriptedProvider)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        (None, ModelNotFound, "no model is configured; choose one with --model: anthropic/NAME, openai/NAME"),
        ("opnai/gpt-5", ModelNotFound, "there is no provider 'opnai'; did you mean openai/gpt-5?"),
        ("gpt-5", ModelNotFound, "there is no provider 'gpt-5'; "),
        ("openai/", ModelNotFound, "'openai/' names no model; write openai/NAME"),
        ("openai/gpt-5", ConfigError, "openai/gpt-5 needs a key: set the variable OPENAI_API_KEY"),
        ("anthropic/claude", ConfigError, "anthropic/claude needs a key: set the variable ANTHROPIC_API_KEY"),
        (
            "compatible/x",
            ConfigError,
            "compatible/x needs the address of its server: pass --base-url or set PRIME_REPL_",
        ),
    ],
)
def test_what_is_missing_is_named_in_one_line(name, error, message) -> None:
    with pytest.raises(error) as caught:
        registry.resolve(name, registry.Settings())
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="is no address of a server"):
        registry.resolve("compatible/x", registry.Settings(base_url=url))


@pytest.mark.parametrize("key", ["sk-a\nb", "sk-‘a’"])
def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(ConfigError, match=r"^the key in OPENAI_API_KEY has characters that no key has") as caught:
        registry.resolve("openai/gpt-5", registry.Settings(keys={"OPENAI_API_KEY": key}))
    assert "sk-" not in str(caught.value)


def test_keys_are_in_no_repr() -> None:
    assert "secret" not in repr(registry.Settings(keys={"OPENAI_API_KEY": "secret"}, environment={"A": "secret"}))


def test_every_row_says_where_it_is_or_is_told() -> None:
    assert [name for name, row in DIALECTS.items() if not row.base_url] == ["compatible"]
    assert registry.key_variable("anthropic") == "ANTHROPIC_API_KEY"
    assert registry.key_variable("ollama") is None
    assert context_window("nobody", "nothing") is None


async def test_the_probe_finds_servers_that_answer_and_nobody_else() -> None:
    listed = {"data": [{"id": "org/model", "max_model_len": 4096}, {"id": "second"}]}
    with (
        ModelServer([], models=listed) as vllm,
        ModelServer([], models={"data": "something else"}) as other,
        socket.create_server(("127.0.0.1", 0)) as silent,
        socket.create_server(("127.0.0.1", 0)) as closed,
    ):
        port, nobody = silent.getsockname()[1], closed.getsockname()[1]
        closed.close()
        addresses = {
            "ollama": f"http://127.0.0.1:{port}/v1",
            "llamacpp": other.chat_url,
            "lmstudio": f"http://127.0.0.1:{nobody}/v1",
            "vllm": vllm.chat_url,
        }
        found = await probe(addresses)
    assert found == (Found("vllm/org/model", ("vllm/org/model", "vllm/second"), vllm.chat_url, 4096),)
