"""Which hits a search shows, over one session or several, and what it says of what it did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

from prime import locators
from prime.errors import LogError, ToolFailed
from prime.recalled import Hit, Hits
from prime.search import DIALOGUE, OUTPUTS, Found, find, index
from prime.sessions import Sessions
from prime.texts import Kind, Texts

#: Most hits of a search; most of them that are output when nothing else was asked for.
MAX_HITS, OUTPUT_HITS = 20, 3
#: Seconds after which a search in all sessions opens no further one.
ALL_SECONDS = 5.0
#: Sessions that are named when they could not be searched.
_NAMED = 5

Scope = Literal["auto", "dialogue", "all"]
SearchKind = Literal["user", "reply", "context", "code", "dispatch_input", "dispatch_output", "output", "error"]


class Pool(NamedTuple):
    """Kinds that compete for the same places among the hits, and how many places there are."""

    kinds: tuple[Kind, ...]
    places: int


class Asked(NamedTuple):
    """What a search was to look into: ``others`` tells whether other sessions may be, ``skipped`` which were not."""

    session: str
    scope: Scope
    others: bool
    skipped: tuple[str, ...]


def pools(scope: Scope, kinds: Sequence[Kind] | None, limit: int) -> list[Pool]:
    """Return the pools of a search: kinds that are named outright compete on equal terms."""
    if kinds is not None:
        if not kinds:
            raise ToolFailed("bad_arguments", "kinds is empty; leave it out to search them all")
        return [Pool(tuple(dict.fromkeys(kinds)), limit)]
    dialogue = Pool(DIALOGUE, limit)
    return [dialogue] if scope == "dialogue" else [dialogue, Pool(OUTPUTS, min(OUTPUT_HITS, limit))]


async def search(texts: Texts, terms: Sequence[str], among: Sequence[Pool]) -> list[Found]:
    """Return what a session has, one more of each pool than there are places."""
    for _ in index(texts):
        await asyncio.sleep(0)  # the first search of a long session indexes for seconds
    return [found for pool in among for found in find(texts, terms, pool.kinds, pool.places + 1)]


async def search_others(
    sessions: Sessions, own: str, terms: Sequence[str], among: Sequence[Pool]
) -> tuple[list[Found], tuple[str, ...]]:
    """Return what the other sessions have, those of newer ones first, and which ones were not looked into."""
    found: list[Found] = []
    skipped = []
    until = time.monotonic() + ALL_SECONDS
    for session in sessions.ids():
        if session == own:
            continue
        if time.monotonic() > until:
            skipped.append(session)
            continue
        try:
            with sessions.read(session) as store:
                here = await search(Texts(store), terms, among)
        except LogError:  # one that cannot be read hides none of the others; it is named
            skipped.append(session)
        else:
            found += [each._replace(session=session) for each in here]
    return found, tuple(skipped)


def chosen(found: Sequence[Found], among: Sequence[Pool], asked: Asked) -> Hits:
    """Return the best of each pool, best first; of equals those found first."""
    best: list[Found] = []
    truncated = False
    for pool in among:
        fitting = sorted((each for each in found if each.original.kind in pool.kinds), key=lambda each: -each.score)
        best += fitting[: pool.places]
        truncated |= len(fitting) > pool.places
    best.sort(key=lambda each: -each.score)
    searched = [kind for pool in among for kind in pool.kinds]
    return Hits(
        hits=tuple(_hit(each, asked.session) for each in best),
        truncated=truncated,
        note=_note(bool(best), searched, asked),
    )


def _hit(found: Found, own: str) -> Hit:
    original = found.original
    other = found.session if found.session != own else None
    if other is not None:
        call = locators.read(original.seq, session=other)
    elif original.turn is not None and original.kind in ("user", "context", "reply"):
        call = locators.turn(original.turn)
    else:
        call = locators.expand(original.seq)
    return Hit(
        seq=original.seq,
        turn=original.turn,
        step=original.step,
        kind=original.kind,
        name=original.name,
        snippet=found.snippet,
        call=call,
        session=other,
    )


def _note(found: bool, searched: Sequence[Kind], asked: Asked) -> str:
    """Return what to know of a search: what was not looked into, and what to try when nothing was found."""
    more = len(asked.skipped) - _NAMED
    named = ", ".join(asked.skipped[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    left = f"not searched: {named}" if asked.skipped else ""
    if found:
        return left
    missing = [kind for kind in (*DIALOGUE, *OUTPUTS) if kind not in searched]
    if missing:
        hint = f"kinds={missing!r} searches the rest"
    elif asked.others and asked.scope != "all":
        hint = 'scope="all" searches your other sessions too'
    else:
        hint = "try fewer or other words"
    where = "in all sessions" if asked.scope == "all" else "in what was over before this turn"
    return "; ".join(filter(None, (f"nothing found {where} among {', '.join(searched)}", hint, left)))
