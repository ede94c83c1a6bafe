"""What a terminal shows: code, output, notices, a whole transcript, as rich renderables. Pure.

Programs and models write what they like, so nothing of theirs reaches a terminal with control characters in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.markdown import Markdown
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from prime import events as ev
from prime.messages import text_of
from prime.pricing import PUBLISHED, Prices, shown
from prime.screen import collapsed
from prime.views.calls import condensed, duration
from prime.views.transcript import Cell, Notice, Reply, Said, Step, Transcript, Turn

#: Lines of a cell's result that are shown; the log has them all.
SHOWN_LINES = 24
#: Names that are listed of those a cell has set, and of those it has removed.
SHOWN_NAMES = 8
_INDENT, _BAR = Text("  "), Text.assemble(("│ ", "dim"))
_python = Syntax("", "python", theme="ansi_dark", background_color="default")


def console(*, stderr: bool = False) -> Console:
    """Return a console that takes text as it is: no markup, no guesses at what to highlight."""
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def code(source: str) -> Text:
    """Return a cell's code, highlighted, with a bar at its left."""
    highlighted = _python.highlight(collapsed(source).rstrip("\n"))
    highlighted.rstrip()
    return _prefixed(_BAR, highlighted)


def result(ended: ev.CellEnded, targets: list[str]) -> Text:
    """Return how a cell ended: its calls by target, the names that it set and removed, its time, and the head and tail
    of what it showed."""
    about = [f"calls: {condensed(targets)}"] if targets else []
    if ended.status != "ok":
        about.append(ended.status)
    about += [
        f"{verb} {_listed(names)}" for verb, names in (("set", [*ended.set]), ("removed", ended.removed)) if names
    ]
    about.append(duration(ended.duration_s))
    line = Text(f"  [{' · '.join(about)}]", style="red" if ended.status != "ok" else "dim")
    shown = _context_free(collapsed(text_of(ended.shown))).rstrip()
    return Text("\n").join([_prefixed(_INDENT, Text(_head_and_tail(shown))), line]) if shown else line


def _listed(names: Sequence[str]) -> str:
    listed = collapsed(", ".join(names[:SHOWN_NAMES]))
    return listed if len(names) <= SHOWN_NAMES else f"{listed} and {len(names) - SHOWN_NAMES} more"


def note(text: str, style: str = "dim") -> Text:
    """Return words of the program itself in one dim line."""
    return Text(f"  [{' '.join(collapsed(text).split())}]", style=style)


def document(whole: Transcript, *, prices: Prices = PUBLISHED) -> Group:
    """Return a whole session."""
    return Group(*_document(whole, prices))


def turn(one: Turn) -> Group:
    """Return one turn."""
    return Group(*_turn(one))


def _document(whole: Transcript, prices: Prices) -> Iterator[RenderableType]:
    yield Text(collapsed(whole.title) or whole.session, style="bold")
    price = f" · price {shown(prices.spent(whole.spent))}" if whole.spent else ""
    yield Text(
        f"{whole.session} · {collapsed(whole.cwd)}{f' · {whole.model}' if whole.model else ''}{price}", style="dim"
    )
    for item in whole.items:
        if isinstance(item, Turn):
            yield from _turn(item)
        else:
            yield from _item(item)


def _turn(one: Turn) -> Iterator[RenderableType]:
    yield Rule(f"turn {one.number}", style="dim", align="left")
    for item in one.items:
        if isinstance(item, Said):
            yield Text(f"> {collapsed(item.text)}", style="bold cyan")
        elif isinstance(item, Notice):
            yield note(item.text)
        else:
            yield from _step(item)
    if one.ended is not None and one.ended.reason != "completed":
        yield note(f"{one.ended.reason}: {one.ended.detail}".rstrip(": "), "yellow")


def _step(step: Step) -> Iterator[RenderableType]:
    for item in step.items:
        if isinstance(item, Reply):
            if item.text:
                yield Markdown(collapsed(item.text))
            if item.interrupted:
                yield note("interrupted here", "yellow")
        else:
            yield from _item(item)


def _item(item: Cell | Notice) -> Iterator[RenderableType]:
    if isinstance(item, Notice):
        yield note(item.text)
        return
    yield code(item.code)
    for image in item.images:
        yield note(f"{image.name}: `prime-repl sessions export --output FILE` writes it")
    if item.ended is not None:
        yield result(item.ended, [call.target for call in item.calls])
    else:
        yield note("the cell is not over", "yellow")


def _prefixed(prefix: Text, text: Text) -> Text:
    return Text("\n").join(prefix + line for line in text.split("\n", allow_blank=True))


def _head_and_tail(text: str) -> str:
    lines = text.split("\n")
    if len(lines) <= SHOWN_LINES:
        return text
    half = SHOWN_LINES // 2
    return "\n".join([*lines[:half], f"… {len(lines) - 2 * half:,} more lines …", *lines[-half:]])


def _context_free(shown: str) -> str:
    """Return what a cell showed without the line about the model's window, which a person need not read."""
    return re.sub(r"\n?\[context: [\d,]+ (?:of [\d,]+ )?tokens\]$", "", shown)
