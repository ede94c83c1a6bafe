"""A transcript as Markdown, for people to read, keep and share. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from prime.pricing import PUBLISHED, Prices, shown
from prime.screen import collapsed
from prime.views.calls import described, duration
from prime.views.transcript import Cell, Notice, Output, Reply, Said, Step, Transcript, Turn, image_name


def markdown(whole: Transcript, image_folder: str | None = None, *, prices: Prices = PUBLISHED) -> str:
    """Return the session as Markdown.

    Images are linked below ``image_folder``, a path relative to the document, or only named when it is None.
    """
    blocks = [f"# {_escaped(whole.title) or whole.session}", "\n".join(_facts(whole, prices))]
    for item in whole.items:
        if isinstance(item, Turn):
            blocks += _turn(item, image_folder)
        else:
            blocks += _item(item, image_folder)
    return "\n\n".join(blocks) + "\n"


def _facts(whole: Transcript, prices: Prices) -> Iterator[str]:
    yield f"- Session: `{whole.session}`" + (f", forked from `{whole.parent}`" if whole.parent else "")
    yield f"- Started: {datetime.fromtimestamp(whole.started // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    yield f"- Folder: `{whole.cwd}`"
    if whole.model:
        yield f"- Model: `{whole.model}`"
    for model, usage in whole.usage.items():
        yield (
            f"- Tokens of `{model}`: {usage.input:,} input, {usage.cache_read:,} from cache, "
            f"{usage.cache_write:,} to cache, {usage.output:,} output"
        )
    if whole.spent:
        yield f"- Price: {shown(prices.spent(whole.spent))}"


def _turn(turn: Turn, folder: str | None) -> Iterator[str]:
    yield f"## Turn {turn.number}"
    for item in turn.items:
        if isinstance(item, Said):
            who = "**You**" if item.kind == "ask" else f"**You** ({item.kind})"
            pictures = [_image(image.name, folder) for image in item.images]
            yield "\n\n".join([f"{who}:", _quoted(item.text), *pictures])
        elif isinstance(item, Notice):
            yield from _item(item, folder)
        else:
            yield from _step(item, folder)
    if turn.ended is None:
        yield "*The turn is not over.*"
    elif turn.ended.reason != "completed":
        detail = f": {_escaped(turn.ended.detail)}" if turn.ended.detail else ""
        yield f"*The turn ended: {turn.ended.reason}{detail}*"


def _step(step: Step, folder: str | None) -> Iterator[str]:
    for item in step.items:
        if isinstance(item, Reply):
            if item.text:
                yield item.text
            if item.interrupted:
                yield "*Interrupted here.*"
        else:
            yield from _item(item, folder)


def _item(item: Cell | Notice, folder: str | None) -> Iterator[str]:
    if isinstance(item, Notice):
        yield f"> *{item.about}*: {_escaped(' '.join(item.text.split()))}"
        return
    if item.by_hand:
        yield "Run by hand:"
    yield _fenced(item.code, "python")
    if item.calls:
        yield "\n".join(f"- {_code(described(call))}" for call in item.calls)
    yield from _outputs(item, folder)
    if item.ended is None:
        yield "*The cell is not over.*"
        return
    error = item.ended.error
    if error is not None:
        yield _fenced(error.traceback or f"{error.name}: {error.message}", "text")
    if item.ended.status != "ok":
        yield f"*{item.ended.status} after {duration(item.ended.duration_s)}*"


def _outputs(cell: Cell, folder: str | None) -> Iterator[str]:
    """Yield the output; pieces in a row that belong together become one block."""
    text = ""
    for output in cell.outputs:
        text += _text(output)
        if output.event.image is not None:
            if text.strip():
                yield _fenced(collapsed(text), "text")
            text = ""
            yield _image(image_name(output.seq, output.event.image), folder)
    if text.strip():
        yield _fenced(collapsed(text), "text")


def _text(output: Output) -> str:
    text = output.event.text
    late = "[late] " if output.event.late else ""
    return late + (
        text if output.event.stream in ("stdout", "stderr") or text.endswith("\n") or not text else text + "\n"
    )


def _image(name: str, folder: str | None) -> str:
    return f"![{name}]({folder}/{name})" if folder is not None else f"*Image: {name}*"


def _fenced(text: str, language: str) -> str:
    """Return a code block whose fence is longer than any run of backticks inside."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _code(text: str) -> str:
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_<>\[\]#])", r"\\\1", text)
