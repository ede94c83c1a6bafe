"""One task without a person at the keyboard."""

from __future__ import annotations

import base64
import json
import mimetypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from prime import app, models
from prime import events as ev
from prime.agent import Agent, Answer
from prime.cli.approvals import Lines
from prime.cli.images import keep
from prime.config import Config
from prime.errors import ConfigError
from prime.messages import Delta, ImagePart
from prime.pricing import shown
from prime.providers.base import Provider
from prime.sessions import Sessions
from prime.views import jsonl, terminal
from prime.views.progress import Progress
from prime.views.transcript import Image, image_name

#: Exit code by how the turn ended; every other reason is a limit.
_CODES = {"completed": 0, "error": 1, "cancelled": 130, "interrupted": 130}
_LIMIT = 3
#: What the model is told when it gives its answer while jobs run.
_LEFT = (
    "This session ends with your next answer, and what still runs is ended with it. If the result depends on it, wait "
    "for it (`wait_s=...`); end what is not needed. Then give your whole answer once more: only the last one is kept."
)


@dataclass(frozen=True, slots=True)
class Job:
    """What to run. ``output``: JSON lines of the entries, of the entries and the pieces of replies, or words.
    ``approvals``: whether standard input answers when a rule asks."""

    task: str
    images: tuple[Path, ...]
    session: str | None
    cwd: Path | None
    output: Literal["json", "deltas"] | None
    approvals: bool = False


async def run(config: Config, job: Job) -> int:
    """Run a task with the configured model, or the best that is there, and return the exit code."""
    pictures = tuple(map(_image, job.images))
    choice = await models.choose(config)
    provider = models.resolve(config.model_copy(update={"model": choice.model}))
    if job.output is None and config.model is None:
        print(f"model: {choice.model} ({choice.why})", file=sys.stderr)
    return await work(config, provider, job, pictures)


async def work(config: Config, provider: Provider, job: Job, images: tuple[ImagePart, ...] = ()) -> int:
    """Run a task with ``provider`` and return the exit code."""
    console = terminal.console(stderr=True)
    approve = Lines().approve if job.approvals else None
    async with app.running(config, job.cwd, provider, session=job.session, approve=approve) as agent:
        watch = _printer(job.output) if job.output else progress(console, config, agent.session).take
        stop = agent.observe(watch)
        try:
            answer = await _answered(agent, job.task, images)
        finally:
            if not agent.accompanied:  # else their end is still to be seen
                stop()
        left = [each.label for each in agent.state.running.alive]
    if job.output is None:
        if left:
            console.print(terminal.note(f"ended with the run: {', '.join(left)}", "yellow"))
        console.print(terminal.note(_spent(answer)))
        # a person who saw the words arrive does not want them twice
        if answer.text and not (console.is_terminal and sys.stdout.isatty()):
            print(answer.text)
    return _CODES.get(answer.reason, _LIMIT)


async def _answered(agent: Agent, task: str, images: tuple[ImagePart, ...]) -> Answer:
    """Return the last answer to a task, after the turns that the ends of jobs have started. Of jobs that still run then
    the model decides, once: nobody knows better which of them would never end."""
    answer = await agent.rest(await agent.ask(task, images))
    if answer.reason == "completed" and (lines := list(agent.state.running.lines())):
        agent.notify("\n".join((_LEFT, *lines)), source="run")
        answer = await agent.rest(answer)
    return answer


def progress(console: Console, config: Config, session: str) -> Progress:
    """Return what prints a session as it happens and keeps its images in the session's folder."""
    folder = Sessions(config.home).folder(session) / "images"
    return Progress(console, lambda seq, image: str(keep(folder, Image(image_name(seq, image), image))))


def _printer(output: Literal["json", "deltas"]) -> Callable[[ev.Entry | Delta], None]:
    def take(item: ev.Entry | Delta) -> None:
        if isinstance(item, ev.Entry):
            print(jsonl.line(item), flush=True)
        elif output == "deltas":
            print(json.dumps({"type": "delta", **item.model_dump()}, ensure_ascii=False), flush=True)

    return take


def _spent(answer: Answer) -> str:
    usage = answer.usage
    return f"session {answer.session} · {usage.prompt:,} tokens in, {usage.output:,} out · price {shown(answer.cost)}"


def _image(path: Path) -> ImagePart:
    media_type, _ = mimetypes.guess_type(path.name)
    if media_type not in ("image/png", "image/jpeg", "image/gif", "image/webp"):
        raise ConfigError(f"--image {path}: models take PNG, JPEG, GIF or WebP files")
    return ImagePart(media_type=media_type, data=base64.b64encode(path.read_bytes()).decode())
