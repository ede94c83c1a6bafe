"""The fold: a long result is condensed once, before it is sent for the first time. Pure, no model call.

The view begins with a line that names the kind of text, how much of it is there, and the call that returns the rest.
Thresholds are :class:`~prime.policies.base.FoldOptions`; sizes are code points. Lines are those of ``str.splitlines``,
as ``history.expand`` counts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from prime.policies import json_items, rules
from prime.policies.base import FoldOptions
from prime.policies.keep import Kept
from prime.policies.kinds import Kind, kind_of, parsed

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Folded:
    """A view of a text.

    Attributes:
        text: the view.
        kind: what the text was taken for.
        lines: lines of the original, or items when it is JSON; ``kept`` of them are in the view.
        chars: code points of the original.
    """

    text: str
    kind: Kind
    lines: int
    kept: int
    chars: int


def fold(
    text: str,
    call: str,
    *,
    target: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    options: FoldOptions = FoldOptions(),  # noqa: B008 - a frozen value
) -> Folded | None:
    """Return a view of a result, or None when it stays as it is: short, code, recalled, or not much shorter condensed.

    Args:
        text: the whole result.
        call: the call that returns it, for the first line of the view.
        target, arguments: the call whose own form the text is; None when a program has put it together.
    """
    if len(text) < min(options.log_from, options.data_from) or (target or "").startswith("history."):
        return None
    if len(text) > options.most:
        return _in_parts(text, call, options)
    lines = text.splitlines()
    kind = kind_of(text, lines, target, arguments or _NOTHING)
    if not _long_enough(kind, text, lines, options):
        return None
    if kind == "json":
        found = json_items.condensed(parsed(text, lines), options)
        if found is None:
            return None
        body, count, kept = found
        unit = "items"
    else:
        selection = Kept(lines)
        _select(kind, selection, options, target)
        body, count, kept, unit = selection.rendered(), len(lines), selection.count, "lines"
    return _view(_head(kind, count, kept, unit, call), body, Folded("", kind, count, kept, len(text)), options)


def _long_enough(kind: Kind, text: str, lines: list[str], options: FoldOptions) -> bool:
    match kind:
        case "code":
            return False
        case "search":
            return len(lines) >= options.search_from or len(text) >= options.search_chars_from
        case "diff":
            return len(lines) >= options.diff_from
        case "log":
            return len(text) >= options.log_from
        case "json":
            return len(text) >= options.json_from
    return len(text) >= options.data_from


def _select(kind: Kind, selection: Kept, options: FoldOptions, target: str | None) -> None:
    match kind:
        case "search":
            rules.search(selection, options, target)
        case "diff":
            rules.diff(selection, options)
        case "log":
            rules.log(selection, options)
        case _:
            rules.data(selection, options)


def _in_parts(text: str, call: str, options: FoldOptions) -> Folded | None:
    """Condense the beginning and the end of a text that is too long to be looked at whole."""
    half = options.most // 2
    start = text.rfind("\n", 0, half) + 1 or half
    stop = text.find("\n", len(text) - half) + 1 or len(text) - half
    parts = (text[:start], text[stop:])
    views = [fold(part, call, options=options) for part in parts]
    shown = [view.text.partition("\n")[2] if view else part for view, part in zip(views, parts, strict=True)]
    lines = len(text.splitlines())
    kept = sum(view.kept if view else len(part.splitlines()) for view, part in zip(views, parts, strict=True))
    kind: Kind = next((view.kind for view in views if view), "data")
    gap = f"[... {stop - start:,} characters of the middle were not looked at ...]"
    return _view(
        _head(kind, lines, kept, "lines", call),
        [shown[0], gap, shown[1]],
        Folded("", kind, lines, kept, len(text)),
        options,
    )


def _head(kind: Kind, count: int, kept: int, unit: str, call: str) -> str:
    rest = f'`await {call}` returns all, with lines="1-80" or grep="words" a part'
    return f"[{kind}, {count:,} {unit}, {kept:,} of them here; {rest}]"


def _view(head: str, body: list[str], of: Folded, options: FoldOptions) -> Folded | None:
    text = "\n".join([head, *body])
    if len(text) >= options.max_keep_ratio * of.chars:
        return None
    return Folded(text, of.kind, of.lines, of.kept, of.chars)
