"""Check that nothing of a session is out of reach: each original is in its current request, or a named call away.

An original is the words of an entry, each picture beside them, known again by its digest, and what a refused call asked
for. Calls are really made. A call counts when the request names it, outright or as a pattern with its numbers beside
it, or when what such a call returned names it. What only the listing of the whole log leads to, which the system prompt
names, is counted for itself: a page and those that follow it are one call.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from prime import locators
from prime.errors import ToolFailed
from prime.history import MAX_ITEMS, History
from prime.log import pick, read
from prime.messages import CallPart, ImagePart, Message, plain, text_of
from prime.projection import message
from prime.recalled import Picture, Slice, Told
from prime.state import State
from prime.store.base import Store
from prime.texts import ORIGINAL, Kind, Texts

#: Characters from which a text that stands anywhere in the request is no chance: a shorter one must be the entry's own.
_TELLING = 16
_LISTING, _SEARCH = "history.browse(", "history.search("


@dataclass(frozen=True, slots=True)
class Miss:
    """An original that nothing leads to; ``size`` in characters, of a picture in those of its base64."""

    seq: int
    kind: Kind | Literal["picture"]
    size: int


class _Wanted(NamedTuple):
    """An original of entry ``seq`` in the forms in which it may come back, as the entry's own: as a terminal shows it
    and as it was written, or the digest of a picture."""

    seq: int
    kind: Kind | Literal["picture"]
    size: int
    forms: tuple[str, ...]


#: What is still to be found, by its number.
_Missing = dict[int, _Wanted]


@dataclass(slots=True)
class Report:
    """How many originals are in the request whole, one or two calls away, or found by listing the log alone.

    Attributes:
        calls: how many calls were made.
        failed: calls named to the model that gave an error, with it.
        misses: originals that are out of reach.
    """

    originals: int = 0
    whole: int = 0
    one: int = 0
    two: int = 0
    listed: int = 0
    calls: int = 0
    failed: list[str] = field(default_factory=list)
    misses: list[Miss] = field(default_factory=list)


async def check(store: Store) -> Report:
    """Return what can be recovered from the request that the session would send now. Of one whose model was never asked
    nothing has left a request, and nothing is counted.

    Raises:
        CorruptLog, UnsupportedLog: as far as reading gets there.
    """
    texts, state = Texts(store), State()
    for entry in read(store):
        state.apply(entry.seq, entry.event)
    if state.header is None:
        return Report()
    shown = {
        entry.seq: found
        for entry in pick(store, texts.session, state.surface.seqs)
        if (found := message(entry.event)) is not None
    }
    run = _Run(History(store))
    missing: _Missing = dict(enumerate(_originals(texts)))
    run.report.originals = len(missing)
    words, exact = "\n".join(map(_words, shown.values())), set(_exact(shown.values()))
    whole = (number for number, wanted in missing.items() if _in_request(wanted, shown, words, exact))
    run.report.whole = _strike(missing, whole)
    said = [text_of(each.parts) for each in shown.values()]
    first = await run.make([call for text in said for call in (*locators.calls(text), *locators.patterns(text))])
    run.report.one = _strike(missing, run.returned(missing))
    if missing:
        await run.make([call for text in first for call in locators.calls(text)])
        run.report.two = _strike(missing, run.returned(missing))
    if missing and _LISTING in state.header.system:
        await run.page()
        run.report.listed = _strike(missing, run.returned(missing))
    run.report.misses = [Miss(wanted.seq, wanted.kind, wanted.size) for wanted in missing.values()]
    return run.report


class _Run:
    """Makes calls, each once, and keeps what they return of each entry."""

    def __init__(self, history: History) -> None:
        self.report = Report()
        self._history = history
        self._made: set[str] = set()
        self._returned: dict[int, set[str]] = {}

    async def make(self, calls: list[str]) -> list[str]:
        """Make the calls and return the texts that they gave."""
        given: list[str] = []
        for call in calls:
            if call in self._made or call.startswith(_SEARCH):
                continue
            self._made.add(call)
            self.report.calls += 1
            try:
                value = await self._evaluated(call)
            except (ToolFailed, TypeError) as error:  # it may be the words of a person: reported, and no miss by itself
                self.report.failed.append(f"{call}: {error}")
                continue
            given += await self._keep(value)
        return given

    async def page(self) -> None:
        """Page through the whole log and read what it lists."""
        page = await self._history.browse(limit=MAX_ITEMS)
        while True:
            for item in page.items:
                await self.make([item.call])
            if page.next is None:
                return
            page = await self._evaluated(page.next)

    def returned(self, missing: _Missing) -> set[int]:
        """Return the numbers of the missing ones that came back as they are, in any of their forms."""
        return {
            number
            for number, wanted in missing.items()
            if not self._returned.get(wanted.seq, set()).isdisjoint(wanted.forms)
        }

    async def _evaluated(self, call: str) -> Any:
        tree = ast.parse(call, mode="eval").body
        assert isinstance(tree, ast.Call), "what locators find are calls"
        assert isinstance(tree.func, ast.Attribute), "into the history"
        method = getattr(self._history, tree.func.attr, None)
        if method is None:
            raise ToolFailed("unknown_tool", "there is no such call")
        given = [ast.literal_eval(each) for each in tree.args]
        return await method(*given, **{str(each.arg): ast.literal_eval(each.value) for each in tree.keywords})

    async def _keep(self, value: Any) -> list[str]:
        """Keep what a call returned; return the texts in it that may name further calls."""
        while isinstance(value, Picture):
            self._returned.setdefault(value.seq, set()).add(_digest(value.media_type, value.image))
            if value.next is None:
                return []
            value = await self._evaluated(value.next)
        if isinstance(value, Told):
            for said in value.said:
                if said.kind != "result":
                    self._returned.setdefault(said.seq, set()).add(said.text)
            return [said.text for said in value.said if said.kind == "result"]
        pictures = value.picture
        if isinstance(value, Slice):
            text = value.text
            while value.next is not None:
                value = await self._evaluated(value.next)
                text += value.text
        else:
            text = value.text
        self._returned.setdefault(value.seq, set()).add(text)
        return [text, pictures] if pictures is not None else [text]


def _originals(texts: Texts) -> Iterator[_Wanted]:
    """Yield each original."""
    for entry in read(texts.store, types=ORIGINAL):
        shown, written = texts.of(entry), texts.of(entry, raw=True)
        if shown is None or written is None:
            continue
        if shown.text or written.text:
            yield _Wanted(entry.seq, shown.kind, len(shown.text), (shown.text, written.text))
        for picture in shown.pictures:
            yield _Wanted(entry.seq, "picture", len(picture.data), (_digest(picture.media_type, picture.data),))
    for asked in texts.refused().values():
        written = texts.of(texts.entry(asked.seq), raw=True)
        assert written is not None, "a reply has words"
        if asked.text:  # it is in the whole of its reply, too
            yield _Wanted(asked.seq, asked.kind, len(asked.text), (asked.text, written.text))


def _exact(said: Iterable[Message]) -> Iterator[str]:
    """Yield what messages have beside their words: digests of pictures, and what their calls ask for."""
    for part in (part for each in said for part in each.parts):
        if isinstance(part, ImagePart):
            yield _digest(part.media_type, part.data)
        elif isinstance(part, CallPart):
            yield part.arguments


def _digest(media_type: str, data: str) -> str:
    return f"{media_type} {hashlib.sha256(data.encode()).hexdigest()}"


def _in_request(wanted: _Wanted, shown: Mapping[int, Message], words: str, exact: set[str]) -> bool:
    if wanted.kind in ("picture", "call"):
        return wanted.forms[0] in exact
    own = _words(shown[wanted.seq]) if wanted.seq in shown else ""
    for form in wanted.forms:
        text = form.removesuffix("\n")  # a result loses its last line end
        if text in own or (len(text) >= _TELLING and text in words):
            return True
    return False


def _words(said: Message) -> str:
    """Return what a message says, with the code that it asks to run."""
    return "\n".join((text_of(said.parts), *(_code(part) for part in said.parts if isinstance(part, CallPart))))


def _code(call: CallPart) -> str:
    try:
        arguments = json.loads(call.arguments)
    except ValueError:  # a model may write anything: such a call was refused, and its words are these
        return call.arguments
    code = arguments.get("code") if isinstance(arguments, dict) else None
    return plain(code) if isinstance(code, str) else call.arguments


def _strike(missing: _Missing, found: Iterable[int]) -> int:
    """Take what was found off the list and return how much that is."""
    found = set(found)
    for number in found:
        del missing[number]
    return len(found)
