"""The first thing a newcomer runs."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from prime import models
from prime.cli import headless
from prime.config import Config
from prime.errors import ModelNotFound
from prime.providers.base import Provider
from prime.providers.scripted import ScriptedProvider
from prime.views import terminal

_TASK = (
    "Look at the current folder with one cell that makes many calls: read every text file, count files, lines and "
    "characters by kind, and print a small table. Then say in a few sentences what this folder is, with figures."
)


async def demo(config: Config, cwd: Path | None) -> int:
    """Do a real task in the current folder and return the exit code."""
    provider: Provider
    try:
        choice = await models.choose(config)
    except ModelNotFound:
        provider = ScriptedProvider.read(Path(str(files("prime").joinpath("demo.yaml"))))
        used = "a script that comes with prime-repl, as no model is there (see `prime-repl models`)"
    else:
        provider, used = (
            models.resolve(config.model_copy(update={"model": choice.model})),
            f"{choice.model}: {choice.why}",
        )
    terminal.console(stderr=True).print(f"model: {used}\n\n> {_TASK}\n")
    return await headless.work(config, provider, headless.Job(_TASK, (), None, cwd, None))
