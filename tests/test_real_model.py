"""Whole tasks with a real model on this machine. Opt in with ``-m real_model``; see docs/local-models.md.

The server is found as ``PRIME_REPL_TEST_LLAMA_SERVER`` or on PATH, the file as ``PRIME_REPL_TEST_MODEL`` or where
``scripts/fetch-test-model`` puts it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import platformdirs
import pytest

from bench.tasks import TASKS, Result, run_all

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
def monkeypatch_module() -> pytest.MonkeyPatch:
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
