"""The namespace ``history``: what left the window, one call away, word for word.

Reads the log, never the surface's present form: what was folded, sealed or replaced resolves to its texts. A call
reads what it returns and little beside that, however long the log is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from prime import events as ev
from prime import hits, locators
from prime.errors import LogError, ToolFailed
from prime.filters import filtered, lines_of
from prime.log import read
from prime.messages import ImagePart, text_of
from prime.recalled import (
    Expanded,
    Hits,
    Item,
    Page,
    Picture,
    Said,
    Slice,
    Told,
    expanded_text,
    hits_text,
    page_text,
    slice_text,
    told_text,
)
from prime.search import snippet
from prime.sessions import Sessions
from prime.store.base import Store
from prime.store.words import folded, terms
from prime.texts import ORIGINAL, Original, Texts
from prime.tools.base import Tool, tool

#: Code points of a slice, at most.
SLICE = 8_000
#: Entries that one page looks through, and the most that it lists.
PAGE, MAX_ITEMS = 1_000, 100
#: Code points of a preview, and of those the ones before a hit.
_PREVIEW, _BEFORE = 180, 60


class History:
    """What was said and shown in this session, word for word.

    ``others`` is where the user's other sessions are, None when they may not be looked into.
    """

    def __init__(self, store: Store, others: Sessions | None = None) -> None:
        self._store = store
        self._others = others

    async def search(
        self,
        query: str,
        *,
        scope: Literal["auto", "dialogue", "all"] = "auto",
        kinds: list[hits.SearchKind] | None = None,
        limit: Annotated[int, Field(ge=1, le=hits.MAX_HITS)] = 5,
    ) -> Hits:
        """Find words in what was said, run and returned before this turn. Each hit names the call that returns it.

        Entries with more of the words come first. scope="dialogue" leaves outputs out, scope="all" looks into the
        user's other sessions too. Without kinds at most three hits are outputs. Calls of history and what they gave are
        not searched.
        """
        wanted = terms(query)
        if not wanted:
            raise ToolFailed("bad_arguments", f"query={query!r} has no words; give the words to look for")
        pools = hits.pools(scope, kinds, limit)
        texts = Texts(self._store)
        found = await hits.search(texts, wanted, pools)
        skipped: tuple[str, ...] = ()
        if scope == "all":
            others, skipped = await hits.search_others(self._allowed(), texts.session, wanted, pools)
            found += others
        return hits.chosen(found, pools, hits.Asked(texts.session, scope, self._others is not None, skipped))

    async def turn(self, n: int | str, view: Literal["dialogue", "full"] = "dialogue") -> Told:
        """Return what was said in turn `n` (from 1), and for each result the call that returns it; view="full": all of
        it whole."""
        found = re.fullmatch(r"\s*(?:slice-turn-)?(\d+)\s*", str(n))
        if found is None:
            raise ToolFailed("bad_arguments", f"n={n!r} is no turn; write a number such as 3")
        number = int(found[1])
        said = self._of_turn(number)
        viewed = self._full(number, said) if view == "full" else self._dialogue(number, said)
        return Told(turn=number, status=self._status(number), said=tuple(viewed))

    async def step(self, turn: int, step: int) -> Told:
        """Return one step of a turn whole: the reply, its cells, their output, and every call they made."""
        every = self._of_turn(turn)
        said = [original for original in every if original.step == step]
        if not said:
            steps = sorted({original.step for original in every if original.step is not None})
            has = f"it has {', '.join(map(str, steps[:20]))}" if steps else "it has none"
            raise ToolFailed("not_found", f"there is no step {step} in turn {turn}; {has}")
        return Told(turn=turn, status=f"step {step} of {self._status(turn)}", said=tuple(self._full(turn, said)))

    async def expand(
        self,
        seq: int | None = None,
        *,
        format: int | None = None,
        turn: int | None = None,
        step: int | None = None,
        call: int | None = None,
        grep: str | None = None,
        lines: str | None = None,
    ) -> Expanded:
        """Return an entry whole, or the lines="10-40" or grep="pattern" of it: by the seq and format that were printed,
        or a result by turn, step and call (from 1).

        An entry is a cell's output as a terminal shows it, a call's arguments or value, a message. What was shortened
        or replaced in the conversation comes back as it was.
        """
        by_place = (turn, step, call) != (None, None, None)
        if seq is not None and not by_place:
            if format != ev.FORMAT:  # before anything is looked up: the number means nothing
                raise ToolFailed("stale", _STALE.format(seq=seq, format=format, current=ev.FORMAT))
            entry = self._entry(seq)
        elif seq is None and turn is not None and step is not None:
            entry = self._result(turn, step, 1 if call is None else call)
        else:
            raise ToolFailed(
                "bad_arguments", "give seq and format, or turn and step, and call for a later result of it"
            )
        original = self._resolved(entry)
        return Expanded(
            seq=original.seq,
            kind=original.kind,
            text=filtered(original.text, lines, grep),
            lines=len(lines_of(original.text)),
            picture=locators.picture(original.seq, 1) if original.pictures else None,
        )

    async def browse(
        self, query: str = "", *, before: int | None = None, limit: Annotated[int, Field(ge=1, le=MAX_ITEMS)] = 10
    ) -> Page:
        """List everything that was logged, newest first, or what has `query` in it literally; `next` goes on.

        One call looks through 1,000 entries at most, so a page may be empty and still have a next one.
        """
        size = self._size()
        end = size if before is None else before
        if not 0 <= end <= size:
            raise ToolFailed("bad_arguments", f"before={before} is no entry; this session has 0 to {size - 1}")
        start, low = max(end - PAGE, 0), folded(query)
        texts, items = Texts(self._store), list[Item]()
        for entry in reversed((*read(texts.store, start, end, types=_READABLE),)):
            if len(items) == limit:
                start = items[-1].seq
                break
            written = _written(texts, entry)
            if written is None or (place := folded(written.text).find(low)) < 0:
                continue
            items.append(
                Item(
                    seq=entry.seq,
                    turn=entry.turn,
                    step=entry.step,
                    kind=written.kind,
                    name=written.name,
                    size=len(written.text),
                    preview=snippet(written.text, place - _BEFORE, place - _BEFORE + _PREVIEW, _PREVIEW),
                    call=locators.read(entry.seq),
                )
            )
        return Page(items=tuple(items), next=locators.browse(start, query) if start else None)

    async def read(
        self,
        seq: int,
        offset: Annotated[int, Field(ge=0)] = 0,
        limit: Annotated[int, Field(ge=1, le=SLICE)] = SLICE,
        session: str | None = None,
        picture: Annotated[int, Field(ge=1)] | None = None,
    ) -> Slice | Picture:
        """Return an entry exactly as it was written, at most 8,000 characters at a time; `next` goes on.

        `session` is that of a hit in another session; `picture` (from 1) returns a picture of it instead.
        """
        with self._opened(session) as texts:
            last = texts.store.last()
            if last is None or not 0 <= seq <= last.seq:
                raise ToolFailed(
                    "not_found", f"there is no entry {seq}; the session has 0 to {last.seq if last else -1}"
                )
            entry = texts.entry(seq)
            written = _written(texts, entry)
        if written is None:
            raise ToolFailed("not_found", f"entry {seq} is a {entry.event.type}, which has no text of its own")
        if picture is not None:
            return _picture(seq, written.pictures, picture, session)
        text = written.text
        if offset > len(text):
            raise ToolFailed("bad_arguments", f"offset={offset} is beyond the end; the text has {len(text)} characters")
        end = offset + limit
        return Slice(
            seq=seq,
            kind=written.kind,
            text=text[offset:end],
            offset=offset,
            size=len(text),
            next=locators.read(seq, end, session) if end < len(text) else None,
            picture=locators.picture(seq, 1, session) if written.pictures else None,
        )

    def tools(self) -> tuple[Tool, ...]:
        """Return the namespace's tools."""
        views: dict[Callable[..., Any], Callable[[dict[str, Any], Any], str]] = {
            self.search: hits_text,
            self.turn: told_text,
            self.step: told_text,
            self.expand: expanded_text,
            self.browse: page_text,
            self.read: slice_text,
        }
        return tuple(
            tool(function, namespace="history", parallel=True, effects=False, for_model=view)
            for function, view in views.items()
        )

    def _size(self) -> int:
        last = self._store.last()
        return last.seq + 1 if last is not None else 0

    def _entry(self, seq: int) -> ev.Entry:
        if not 0 <= seq < (size := self._size()):
            raise ToolFailed("not_found", f"there is no entry {seq}; this session has 0 to {size - 1}")
        return Texts(self._store).entry(seq)

    def _result(self, turn: int, step: int, call: int) -> ev.Entry:
        results = list(Texts(self._store).results(turn, step))
        if not 1 <= call <= len(results):
            raise ToolFailed("not_found", f"step {step} of turn {turn} has {len(results)} results; there is no {call}")
        return results[call - 1]

    def _resolved(self, entry: ev.Entry) -> Original:
        """Return what an entry stands for; of several texts, where each is."""
        texts = Texts(self._store)
        sources = texts.sources(entry)
        if len(sources) > 1:
            listed = [found for seq in sources if (found := texts.of(texts.entry(seq))) is not None]
            text = f"entry {entry.seq} stands for {len(listed)} others:\n" + "\n".join(map(_line, listed))
            return Original(entry.seq, entry.turn, entry.step, "context", "", text)
        original = texts.of(texts.entry(sources[0]))
        if original is None:
            raise ToolFailed("not_found", f"entry {entry.seq} is a {entry.event.type}, which has no text of its own")
        return original

    def _of_turn(self, number: int) -> list[Original]:
        texts = Texts(self._store)
        bounds = texts.turn(number)
        if bounds is None:
            newest = self._store.last(("turn_started",))
            has = f"it has the turns 1 to {newest.turn}" if newest is not None else "it has none yet"
            raise ToolFailed("not_found", f"there is no turn {number} in this session; {has}")
        return list(texts.between(*bounds))

    def _status(self, number: int) -> str:
        bounds = Texts(self._store).turn(number)
        assert bounds is not None, "the turn was found"
        events = [entry.event for entry in read(self._store, *bounds, types=_STATUS)]
        ends = [f"{event.reason} {event.detail}".rstrip() for event in events if isinstance(event, ev.TurnEnded)]
        steps = sum(isinstance(event, ev.StepStarted) for event in events)
        cells = sum(isinstance(event, ev.CellEnded) for event in events)
        return (
            f"turn {number} · {ends[0] if ends else 'still open'} · {steps} steps · {cells} cells · "
            "as it was then: files and variables may have changed"
        )

    def _dialogue(self, number: int, said: Sequence[Original]) -> Iterator[Said]:
        refused, calls = self._refused(number), 0
        for original in said:
            if original.kind in ("user", "context", "reply"):
                yield from _whole(original)
            calls += original.kind == "dispatch_input"
            if original.kind in ("output", "error") and not original.name:
                yield _told(original, _line(original, calls, refused=original.seq in refused))
                calls = 0

    def _full(self, number: int, said: Sequence[Original]) -> Iterator[Said]:
        refused = self._refused(number)
        for original in said:
            if original.seq in refused:
                yield from _whole(refused[original.seq])
            yield from _whole(original)

    def _refused(self, number: int) -> dict[int, Original]:
        texts = Texts(self._store)
        bounds = texts.turn(number)
        assert bounds is not None, "the turn was found"
        return texts.refused(*bounds)

    def _allowed(self) -> Sessions:
        if self._others is None:
            raise ToolFailed("not_allowed", 'for other sessions, your own configuration must have recall_scope = "all"')
        return self._others

    @contextmanager
    def _opened(self, session: str | None) -> Iterator[Texts]:
        own = Texts(self._store)
        if session is None or session == own.session:
            yield own
            return
        others = self._allowed()
        try:
            with others.read(others.resolve(session)) as store:  # a name that leads out of the folder is none
                yield Texts(store)
        except LogError as error:
            raise ToolFailed("not_found", str(error)) from error


_READABLE = (*ORIGINAL, "surface_replaced")
_STATUS = ("turn_ended", "step_started", "cell_ended")
_STALE = (
    "seq={seq} was given with format={format}, and numbers of entries are good for format={current} only; get the "
    "number anew from history.search(...) or history.turn(n), or name a result by turn, step and call"
)


class _Written(NamedTuple):
    """An entry as it is in the log, also one that stands for others."""

    kind: str
    name: str
    text: str
    pictures: tuple[ImagePart, ...] = ()


def _written(texts: Texts, entry: ev.Entry) -> _Written | None:
    """Return what is written in an entry, None for nothing: neither words nor pictures, or a piece of what a cell's
    result has whole."""
    if isinstance(entry.event, ev.SurfaceReplaced):
        return _Written("replacement", "", text_of(entry.event.message.parts))
    original = texts.of(entry, raw=True)
    if original is None or not (original.text or original.pictures):
        return None
    return _Written(original.kind, original.name, original.text, original.pictures)


def _picture(seq: int, pictures: Sequence[ImagePart], number: int, session: str | None) -> Picture:
    if number > len(pictures):
        raise ToolFailed("not_found", f"entry {seq} has {len(pictures)} pictures; there is no {number}")
    return Picture(
        seq=seq,
        picture=number,
        pictures=len(pictures),
        media_type=pictures[number - 1].media_type,
        image=pictures[number - 1].data,
        next=locators.picture(seq, number + 1, session) if number < len(pictures) else None,
    )


def _whole(original: Original) -> Iterator[Said]:
    """Yield an original, and a line for its pictures: only a call that gives one alone can show it."""
    yield Said(seq=original.seq, step=original.step, kind=original.kind, name=original.name, text=original.text)
    if original.pictures:
        yield _told(original, f"[{_pictures(original)}]")


def _told(original: Original, line: str) -> Said:
    return Said(seq=original.seq, step=original.step, kind="result", name="", text=line)


def _pictures(original: Original) -> str:
    return f"{len(original.pictures)} pictures: {locators.picture(original.seq, 1)}"


def _line(original: Original, calls: int = 0, *, refused: bool = False) -> str:
    """Return the line that stands for an original: what it is, its size, and the call that returns it."""
    parts = [f"{original.kind} {original.name}".rstrip()]
    if original.step is not None:
        parts.append(f"step {original.step}")
    parts += [f"seq {original.seq}", f"{len(original.text):,} characters", locators.expand(original.seq)]
    if original.pictures:
        parts.append(_pictures(original))
    if (calls or refused) and original.turn is not None and original.step is not None:
        what = "what was asked for" if refused else f"{calls} calls in it"
        parts.append(f"{what}: {locators.step(original.turn, original.step)}")
    return f"[{' · '.join(parts)}]"
