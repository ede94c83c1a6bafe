"""A small task set against any configured model, through the public API.

    python -m bench.tasks --model local/PATH.gguf [--repeat N] [--json FILE]

Six small tasks whose answers can be checked by a string. Enough to see that a model, its dialect and the loop work
together; far too few to compare harnesses. Prints what was solved, steps, tokens, seconds, and how much of each prompt
the provider's cache already held: with an append-only context that is nearly the whole previous prompt.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import prime
from bench.report import document, write
from prime import models
from prime.config import load
from prime.events import ModelReplied
from prime.log import read
from prime.messages import Delta, Reply, Request
from prime.providers.base import Provider
from prime.providers.llama import find_server
from prime.sessions import Sessions
from prime.verify import verify

_TEXT = "The quick brown fox jumps over the lazy dog and runs away into the deep green forest"
_NUMBERS = [42, 7, 19, 88, 3, 56]


@dataclass(frozen=True)
class Task:
    """One task: its name, what is asked, and whether an answer is right."""

    name: str
    ask: str
    right: Callable[[str], bool]


@dataclass(frozen=True)
class Result:
    """What came of a task. ``cached`` holds, for each step after the first, the part of the previous step's prompt that
    the provider's cache held, between 0 and 1 (above 1 when it also held the reply)."""

    task: str
    solved: bool
    reason: str
    answer: str
    steps: int
    cells: int
    prompt_tokens: int
    output_tokens: int
    cached: list[float]
    seconds: float


def _number(value: int) -> Callable[[str], bool]:
    return lambda answer: re.search(rf"(?<!\d){value}(?!\d)", answer.replace(",", "")) is not None


def _in_order(numbers: list[int]) -> Callable[[str], bool]:
    return lambda answer: re.search(r"\D+".join(map(str, numbers)), answer) is not None


TASKS = (
    Task("sum", "What is the sum of all whole numbers from 1 to 100? Compute it.", _number(5050)),
    Task(
        "vowels",
        f"How many vowels (a, e, i, o, u) are in this text: {_TEXT!r}? Count with code.",
        _number(sum(letter in "aeiou" for letter in _TEXT.lower())),
    ),
    Task("lines", "How many lines does the file poem.txt in the current folder have?", _number(37)),
    Task("product", "What is 48271 * 9377? Compute it.", _number(48271 * 9377)),
    Task(
        "sort",
        f"Sort this list in ascending order and tell me the sorted list: {_NUMBERS}",
        _in_order(sorted(_NUMBERS)),
    ),
    Task("fibonacci", "What is the 10th Fibonacci number, when the first two are 1 and 1? Compute it.", _number(55)),
)


class Kept:
    """A model that outlives the agents that use it: a local server loads its weights once for all tasks."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.model = provider.model
        self.context_window = provider.context_window
        self.images = provider.images

    async def reply(self, request: Request, on_delta: Callable[[Delta], None]) -> Reply:
        """Pass the request on."""
        return await self._provider.reply(request, on_delta)

    async def close(self) -> None:
        """Do nothing; whoever made the provider closes it."""


async def run_all(model: str, repeat: int = 1, **settings: Any) -> list[Result]:
    """Run every task ``repeat`` times against one model. ``settings`` are those of the configuration."""
    provider = models.resolve(load(Path.cwd(), {"model": model, **settings}))
    try:
        return [await run(task, Kept(provider), **settings) for _ in range(repeat) for task in TASKS]
    finally:
        await provider.close()


async def run(task: Task, model: Provider, **settings: Any) -> Result:
    """Run a task in a session and folder of its own; the session is verified."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "work").mkdir()
        (folder / "work" / "poem.txt").write_text("".join(f"line number {n}\n" for n in range(37)))
        start = time.monotonic()
        async with prime.Agent(model, cwd=folder / "work", home=folder / "home", max_steps=8, **settings) as agent:
            answer = await agent.ask(task.ask)
        seconds = time.monotonic() - start
        with Sessions(folder / "home").read(answer.session) as store:
            verify(store)
            entries = list(read(store))
        replies = [entry.event for entry in entries if isinstance(entry.event, ModelReplied)]
        usages = [reply.usage for reply in replies if reply.usage is not None]
        return Result(
            task=task.name,
            solved=answer.reason == "completed" and task.right(answer.text),
            reason=answer.reason,
            answer=answer.text[-400:],
            steps=len(replies),
            cells=sum(entry.event.type == "cell_ended" for entry in entries),
            prompt_tokens=sum(usage.prompt for usage in usages),
            output_tokens=sum(usage.output for usage in usages),
            cached=[round(now.cache_read / before.prompt, 3) for before, now in itertools.pairwise(usages)],
            seconds=round(seconds, 2),
        )


def _server(model: str) -> str | None:
    """Return the version of the local server, None for a model that is served elsewhere."""
    if not model.startswith("local/"):
        return None
    program = find_server(load(Path.cwd()).guest_environment)
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return (said.stdout + said.stderr).strip()


def main() -> None:
    """Run the tasks, print the table, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="PROVIDER/NAME")
    parser.add_argument("--base-url", help="address of the provider")
    parser.add_argument("--temperature", type=float, default=0.0, help="sampling temperature (default: 0)")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each task (default: 1)")
    parser.add_argument("--json", type=Path, help="where to write the result")
    options = parser.parse_args()
    settings = {"temperature": options.temperature, "base_url": options.base_url}
    results = asyncio.run(run_all(options.model, options.repeat, **settings))
    table = Table("task", "solved", "steps", "cells", "prompt", "output", "cached", "seconds", "answer")
    for each in results:
        cached = " ".join(f"{part:.0%}" for part in each.cached)
        answer = " ".join(each.answer.split())[:60]
        row = (each.task, "yes" if each.solved else each.reason, each.steps, each.cells, each.prompt_tokens)
        table.add_row(*map(str, row), str(each.output_tokens), cached, f"{each.seconds:.1f}", answer)
    Console(width=120).print(table)
    solved = sum(each.solved for each in results)
    print(f"{solved} of {len(results)} solved")
    facts = {"model": Path(options.model).name, "server": _server(options.model), "solved": solved}
    write(options.json, document([asdict(each) for each in results], **facts))


if __name__ == "__main__":
    main()
