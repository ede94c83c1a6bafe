"""Whole tasks with a real model on this machine. Opt in with ``-m real_model``; see docs/local-models.md.

The server is found as ``PRIME_REPL_TEST_LLAMA_SERVER`` or on PATH, the file as ``PRIME_REPL_TEST_MODEL`` or where
``scripts/fetch-test-model`` puts it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import platformdirs
import pytest

import prime
from bench.tasks import TASKS, Result, run_all
from prime.providers.llama import Launch, LlamaServer

pytestmark = [pytest.mark.real_model, pytest.mark.anyio]


@pytest.fixture(scope="module")
def model(monkeypatch_module: pytest.MonkeyPatch) -> str:
    server = os.environ.get("PRIME_REPL_TEST_LLAMA_SERVER") or shutil.which("llama-server")
    if server is None:
        pytest.skip("no llama-server: set PRIME_REPL_TEST_LLAMA_SERVER")
    default = Path(platformdirs.user_data_dir("prime-repl", appauthor=False)) / "models" / "qwen2.5-coder-1.5b.gguf"
    file = Path(os.environ.get("PRIME_REPL_TEST_MODEL", default))
    if not file.is_file():
        pytest.skip("no model file: run scripts/fetch-test-model")
    monkeypatch_module.setenv("PATH", f"{Path(server).parent}{os.pathsep}{os.environ['PATH']}")
    return f"local/{file}"


@pytest.fixture(scope="module")
def monkeypatch_module() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
async def results(model: str) -> list[Result]:
    return await run_all(model, temperature=0.0)


async def test_most_tasks_are_solved(results: list[Result]) -> None:
    solved = [each.task for each in results if each.solved]
    assert len(results) == len(TASKS) == 6
    assert len(solved) >= 4, [(each.task, each.reason, each.answer) for each in results]


async def test_the_server_itself_proves_that_context_is_only_appended_to(results: list[Result]) -> None:
    cached = [part for each in results for part in each.cached]
    assert cached, "no session took a second step"
    assert min(cached) >= 0.95, cached


@pytest.fixture(scope="module")
async def server(model: str) -> AsyncIterator[LlamaServer]:
    """The file served without any profile, as anybody's own llama-server would."""
    program, file = shutil.which("llama-server"), Path(model.removeprefix("local/"))
    assert program is not None
    environment = {"PATH": os.environ["PATH"], "HOME": str(Path.home())}
    started = await LlamaServer.start(Launch(Path(program), file, None, ("--ctx-size", "8192"), environment))
    yield started
    await started.close()


@pytest.mark.parametrize(("provider", "path"), [("compatible", "/v1"), ("anthropic", "")])
async def test_one_server_is_driven_through_both_dialects(
    provider: str, path: str, server: LlamaServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", server.key)
    monkeypatch.setenv("PRIME_REPL_API_KEY", server.key)
    options = {
        "base_url": server.base_url.removesuffix("/v1") + path,
        "home": home,
        "max_tokens": 60,
        "temperature": 0.0,
    }
    async with prime.Agent(f"{provider}/test", **options) as agent:
        first = await agent.ask("Answer in words, without any code: what is the capital of France?")
        second = await agent.ask("And of Italy?")
    assert first.reason in ("completed", "max_tokens")
    assert first.text
    assert second.usage.prompt > first.usage.prompt > 500
    assert second.usage.cache_read >= 0.95 * first.usage.prompt
