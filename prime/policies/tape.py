"""The tape: completed turns are sealed into entries that are written once and never again.

Only replies and results are sealed, and the constitution of a turn, which is over with it; what a person said and what
else the host said stays at its place. Everything up to the
newest entry is frozen, so a request begins with the bytes of the one before it, up to the first entry that is new.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from prime import events as ev
from prime.messages import Message, TextPart, text_of
from prime.policies.base import Item, Originals, TapeOptions, View
from prime.policies.draft import Draft
from prime.policies.entry import Result, Said, SealedTurn, rendered
from prime.side import CONSTITUTION
from prime.surface import whole

POLICY = "tape"


def seal(draft: Draft, view: View, originals: Originals, options: TapeOptions, least: float = 0.0) -> None:
    """Replace what may be sealed by entries, one for each run of neighbours that it makes smaller; nothing while that
    has fewer than ``least`` tokens in all."""
    runs = list(_runs(draft.items, view.turn - options.keep_recent_turns, options))
    if sum(item.tokens for start, stop in runs for item in draft.items[start:stop]) * view.scale < least:
        return
    # every entry is written before the first is put in: none may look at a surface that another one has changed
    plan = []
    for start, stop in runs:
        turns = [_turn(list(group), originals) for _, group in groupby(draft.items[start:stop], _number)]
        message = Message(role="user", parts=(TextPart(text=rendered(turns, options)),))
        # a turn of a few words is smaller than any entry; it stays, and is frozen with what is sealed behind it
        if view.measure(message) < sum(item.tokens for item in draft.items[start:stop]):
            plan.append((start, stop, message))
    gone = 0
    for start, stop, message in plan:
        draft.replace(start - gone, stop - gone, message, POLICY)
        gone += stop - start - 1


def _runs(items: Sequence[Item], before: int, options: TapeOptions) -> Iterator[tuple[int, int]]:
    """Yield the longest runs, from a position to before another, that hold sealable items of turns earlier than
    ``before``. A turn in which a call or a result is alone stays as it is."""
    frozen = max((place for place, item in enumerate(items) if item.standing_in), default=-1)
    pinned = _pinned(items) if options.profile == "v3" else None

    def number(place: int) -> int | None:
        item = items[place]
        sealable = place != pinned and item.turn is not None and item.turn < before and _sealable(item, options)
        return item.turn if sealable else None

    run: list[int] = []
    for turn, group in groupby(range(frozen + 1, len(items)), number):
        places = list(group)
        if turn is not None and whole([items[place].node for place in places]):
            run += places
            continue
        if run:
            yield run[0], run[-1] + 1
        run = []
    if run:
        yield run[0], run[-1] + 1


def _sealable(item: Item, options: TapeOptions) -> bool:
    if isinstance(item.event, ev.UserSaid):
        return options.profile == "v3" and _text_only(item.event)
    if isinstance(item.event, ev.NoticeGiven):
        return item.event.about == CONSTITUTION
    return isinstance(item.event, ev.ModelReplied) or item.node.closes is not None


def _pinned(items: Sequence[Item]) -> int | None:
    """Return where the first words of the session are: what the work is about stays as it was said."""
    return next(
        (
            place
            for place, item in enumerate(items)
            if isinstance(item.event, ev.UserSaid) and item.turn == 1 and _text_only(item.event)
        ),
        None,
    )


def _text_only(said: ev.UserSaid) -> bool:
    return all(isinstance(part, TextPart) for part in said.parts)


def _number(item: Item) -> int:
    assert item.turn is not None
    return item.turn


def _turn(items: Sequence[Item], originals: Originals) -> SealedTurn:
    """Return what an entry tells of the items of one turn."""
    users, replies, results, silent = [], [], [], 0
    for item in items:
        event, step = item.event, item.step or 0
        if isinstance(event, ev.UserSaid):
            users.append(text_of(event.parts))
        elif isinstance(event, ev.NoticeGiven):
            continue  # request and reads, which the entry names, and rules that hold no more
        elif item.node.closes is not None:
            output = originals.output(item.origin)
            names = ", ".join(output.called) or "repl"
            results.append(Result(step, item.origin, names, len(output.text)))
        elif text := text_of(event.parts):
            replies.append(Said(step, item.origin, text))
        else:
            silent += not item.node.opens
    reads = originals.reads(items[0].origin, items[-1].origin + 1)
    newest = {(read.path, read.window): read for read in reads}  # the last one of each counts
    compared = [(read, originals.read_before(read)) for read in newest.values()]
    return SealedTurn(_number(items[0]), tuple(users), tuple(replies), silent, tuple(compared), tuple(results))
