"""Fold: a result is condensed once, before the first request that would hold it. Pure.

What was sent is never folded, also not by a failed attempt: a provider may have read and cached it.
"""

from __future__ import annotations

import json
from itertools import takewhile

from prime import events as ev
from prime import locators
from prime.messages import Message, TextPart, around, text_of
from prime.policies.backoff import scope
from prime.policies.base import Item, Options, Originals, Output, View
from prime.policies.draft import Draft
from prime.policies.fold import fold

POLICY = "fold"
#: Characters of a result below which nothing is folded: the smallest threshold of any kind.
FOLD_FROM = 512


def fold_new(draft: Draft, view: View, originals: Originals, options: Options) -> None:
    """Fold the results that were never sent, in order."""
    new = takewhile(lambda place: draft.items[place].seq > view.sent, reversed(range(len(draft.items))))
    for place in reversed(list(new)):
        if (found := _folded(draft.items[place], originals, options)) is not None:
            message, of = found
            draft.replace(place, place + 1, message, POLICY, scope=of)


def _folded(item: Item, originals: Originals, options: Options) -> tuple[Message, str] | None:
    """Return the shorter form of a result and its scope, None when it stays as it is."""
    ended = item.event
    if not isinstance(ended, ev.CellEnded) or ended.status != "ok" or len(ended.shown) != 1:
        return None
    shown = text_of(ended.shown)
    if len(shown) < FOLD_FROM:
        return None
    output = originals.output(item.seq)
    if _recalled(output):
        return None
    folded = fold(
        output.text,
        locators.expand(item.seq),
        target=output.target,
        arguments=output.arguments,
        options=options.fold,
    )
    if folded is None:
        return None
    of = scope(folded.kind, output.target, output.arguments)
    text = around(ended.before, folded.text, ended.after)
    if len(text) >= len(shown) or originals.backed_off(of):
        return None
    return Message(role="tool", parts=(TextPart(text=text),), call_id=item.node.closes), of


def _recalled(output: Output) -> bool:
    """Tell whether an output is mostly what ``history`` gave back, as it is or as a program prints a value."""
    if output.target is not None and output.target.startswith("history."):
        return True
    found = 0
    for text in set(output.recalled):
        forms = (text, json.dumps(text, ensure_ascii=False)[1:-1], json.dumps(text)[1:-1], repr(text)[1:-1])
        found += len(text) * any(form in output.text for form in forms)
    return found > 0 and 2 * found >= len(output.text)
