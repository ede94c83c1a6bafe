"""A model that follows a written script and answers questions only from what its request shows.

A *fact* is a token that nobody can guess. When the script needs one, the model looks for it in the request. If it is
not there and the arm can recall, it calls what the newest result names, or ``history.search`` and then the calls that
the hits name, and looks again. What it still does not see it does not know. What a script cannot show: whether a real
model thinks of recalling, and what it writes when it does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from prime.ledger import Ledger, tokens, words
from prime.messages import CallPart, Delta, Message, Part, Reply, Request, TextPart, Usage, text_of
from prime.projection import NOTICE

UNKNOWN = "UNKNOWN"
#: Lines of a file before and after a fact in it: more than any view keeps of the ends of a result.
HEAD, TAIL = 11, 6
#: Hits of a search whose calls are tried.
TRIED = 3
#: Share of the window at which a transcript is compacted, and share of it that stays as it is.
COMPACT_AT, COMPACT_KEEPS = 0.8, 0.16
_CALL = re.compile(r"history\.(?:expand|turn|step|read)\((?:[^()\n\"]|\"[^\"\n]*\")*\)")


class Void(Exception):
    """A scenario or a run that proves nothing."""


@dataclass(frozen=True)
class Fact:
    """Something to be known: ``query`` are words to search for, ``grep`` a pattern of its line.

    ``source`` is where it is said: in the middle of a ``result``, on the ``top`` of one, by the ``user``; or ``none``
    for a question that has no answer.
    """

    name: str
    token: str
    query: str
    grep: str
    source: Literal["result", "top", "user", "none"] = "result"


@dataclass(frozen=True)
class Need:
    """A fact that the next cell has in it; ``code`` gets it as ``{value}``."""

    fact: Fact
    code: str = ""


@dataclass(frozen=True)
class Turn:
    """What a person says, the cells that follow, and the reply; ``ask`` are the facts that the reply must state."""

    prompt: str
    steps: tuple[str | Need, ...] = ()
    reply: str = "done"
    ask: tuple[Fact, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """A session's worth of work.

    Attributes:
        files: what lies in the folder at the start.
        window: tokens of the model's window; a transcript is compacted at 0.8 of it.
        keeps: facts that a summary keeps, the newest.
        check: gets a reader of files and returns what is wrong with the work, empty for nothing.
        program: the same work as one program a turn, where that is a subject.
        arms: those that say something, all when empty.
    """

    name: str
    turns: tuple[Turn, ...]
    files: dict[str, str] = field(default_factory=dict)
    window: int = 128_000
    keeps: int = 12
    check: Callable[[Callable[[str], str]], str] = lambda read: ""
    program: tuple[Turn, ...] = ()
    arms: tuple[str, ...] = ()


def check_leaks(scenario: Scenario) -> None:
    """Refuse a scenario whose answers stay visible whatever a policy does.

    Raises:
        Void: a fact is asked twice, or stands in a channel that is always kept.
    """
    asked = [fact for turn in scenario.turns for fact in turn.ask if fact.source != "none"]
    if len({fact.token for fact in asked}) != len(asked):
        raise Void(f"{scenario.name}: a fact is asked twice, so the first answer gives away the second")
    words = "\n".join(turn.prompt for turn in scenario.turns)
    made = "\n".join(turn.reply for turn in scenario.turns)
    made += "\n".join(step if isinstance(step, str) else step.code for turn in scenario.turns for step in turn.steps)
    for fact in asked:
        if fact.token in made:
            raise Void(f"{scenario.name}: {fact.name} stands in a reply or in a cell")
        if words.count(fact.token) != (fact.source == "user"):
            raise Void(f"{scenario.name}: {fact.name} is said by the user {words.count(fact.token)} times")
        if fact.source != "result":
            continue
        holding = [text.split("\n") for text in scenario.files.values() if fact.token in text]
        if not holding:
            raise Void(f"{scenario.name}: {fact.name} stands nowhere")
        for lines in holding:
            places = [number for number, line in enumerate(lines) if fact.token in line]
            if min(places) < HEAD or max(places) >= len(lines) - TAIL:
                raise Void(f"{scenario.name}: {fact.name} stands at an end of what is shown, which views keep")


Move = Generator[str, Request, str]


class Oracle:
    """The model as a :class:`~prime.providers.base.Provider`. :meth:`begin` names the turn that is about to be asked.

    Attributes:
        recalls: calls of ``history`` that were made.
        answers: what was answered, by the fact's name.
        compactions: how often a transcript was summarised.
    """

    images = False

    def __init__(self, scenario: Scenario, *, recall: bool, compact: bool) -> None:
        self.model = "scripted/oracle"
        self.context_window: int | None = None if compact else scenario.window
        self.ledger = Ledger()
        self.recalls = 0
        self.answers: dict[str, str] = {}
        self.compactions = 0
        self._recall = recall
        self._moves: Move | None = None
        self._calls = 0
        self._compaction = Compaction(scenario) if compact else None

    def begin(self, turn: Turn) -> None:
        """Take up a turn's script."""
        self._moves = self._play(turn)
        next(self._moves)

    async def reply(self, request: Request, on_delta: Callable[[Delta], None]) -> Reply:
        """Play the next move, seeing what the request shows and nothing else."""
        if self._compaction is not None:
            request = self._compaction.of(request, self.ledger)
            self.compactions = self._compaction.count
        assert self._moves is not None
        part: Part
        try:
            code = self._moves.send(request)
        except StopIteration as end:
            part = TextPart(text=end.value)
        else:
            self._calls += 1
            arguments = json.dumps({"code": code}, ensure_ascii=False)
            part = CallPart(call_id=f"call-{self._calls}", name="repl", arguments=arguments)
        reply = Reply(parts=(part,), stop="calls" if isinstance(part, CallPart) else "end", model=self.model)
        cost = self.ledger.add(request, reply)
        return reply.model_copy(update={"usage": Usage(input=cost.miss, cache_read=cost.hit, output=cost.output)})

    async def close(self) -> None:
        """Do nothing: there are no resources."""

    def _play(self, turn: Turn) -> Move:
        request = yield ""
        for step in turn.steps:
            if isinstance(step, str):
                request = yield step
                continue
            value, request = yield from self._find(step.fact, request)
            if step.code:
                request = yield step.code.replace("{value}", value)
        lines = [turn.reply]
        for fact in turn.ask:
            value, request = yield from self._find(fact, request)
            self.answers[fact.name] = value
            lines.append(f"{fact.name}: {value}")
        return "\n".join(lines)

    def _find(self, fact: Fact, request: Request) -> Generator[str, Request, tuple[str, Request]]:
        """Look for a fact; every yield is a cell, and gives the request after it."""
        if fact.source != "none" and visible(fact.token, request):
            return fact.token, request
        if not self._recall:
            return UNKNOWN, request
        for call in [each for each in _named(request) if each.startswith("history.expand(")][:1]:
            request = yield self._call(_filtered(call, fact.grep))
            if visible(fact.token, request):
                return fact.token, request
        request = yield self._call(f"history.search({fact.query!r})")
        for call in _named(request)[:TRIED]:
            if fact.source == "none" or visible(fact.token, request):
                break
            request = yield self._call(_filtered(call, fact.grep))
            if not visible(fact.token, request) and not call.startswith("history.expand("):  # longer than a view
                for whole in _named(request)[-1:]:
                    request = yield self._call(_filtered(whole, fact.grep))
        return (fact.token if fact.source != "none" and visible(fact.token, request) else UNKNOWN), request

    def _call(self, call: str) -> str:
        self.recalls += 1
        return f"await {call}"


def _filtered(call: str, grep: str) -> str:
    return f"{call[:-1]}, grep={grep!r})" if call.startswith("history.expand(") else call


def _named(request: Request) -> list[str]:
    """Return the calls that the newest message names, when it is a result; notices after it do not count."""
    said = (each for each in reversed(request.messages) if not text_of(each.parts).startswith(NOTICE))
    last = next(said)
    return list(dict.fromkeys(_CALL.findall(text_of(last.parts)))) if last.role == "tool" else []


def visible(token: str, request: Request) -> bool:
    """Tell whether a request shows a token."""
    return any(token in words(message) for message in request.messages)


class Compaction:
    """What a transcript becomes when it is summarised near the end of the window: the newest part of it stays as it is,
    everything older becomes a summary that keeps the newest facts. The summary is paid for like any reply."""

    def __init__(self, scenario: Scenario) -> None:
        needs = (step.fact for turn in scenario.turns for step in turn.steps if isinstance(step, Need))
        self._tokens = dict.fromkeys(
            fact.token for fact in (*needs, *(fact for turn in scenario.turns for fact in turn.ask)) if fact.token
        )
        self._window, self._keeps = scenario.window, scenario.keeps
        self._cut = 0
        self._summary: tuple[Message, ...] = ()
        self.count = 0

    def of(self, request: Request, ledger: Ledger) -> Request:
        """Return the request as it is sent, after summarising when it has become too long."""
        sent = self._sent(request)
        if sum(tokens(each) for each in (sent.header, *sent.messages)) < self._window * COMPACT_AT:
            return sent
        text = self._text(sent.messages)
        instruction = Message(role="user", parts=(TextPart(text=_INSTRUCTION),))
        asked = Request(header=sent.header, messages=(*sent.messages, instruction))
        ledger.add(asked, Reply(parts=(TextPart(text=text),), stop="end", model=sent.header.model))
        self._cut = self._place(request)
        self._summary = (Message(role="user", parts=(TextPart(text=text),)),)
        self.count += 1
        return self._sent(request)

    def _sent(self, request: Request) -> Request:
        return Request(header=request.header, messages=(*self._summary, *request.messages[self._cut :]))

    def _place(self, request: Request) -> int:
        """Return where the part that stays begins: with no result whose call has left."""
        place, room = len(request.messages), self._window * COMPACT_KEEPS
        for number in range(len(request.messages) - 1, self._cut, -1):
            room -= tokens(request.messages[number])
            if room < 0:
                break
            if request.messages[number].role != "tool":
                place = number
        return min(place, max(n for n, each in enumerate(request.messages) if each.role != "tool"))

    def _text(self, messages: Sequence[Message]) -> str:
        said = "\n".join(map(words, messages))
        found = sorted((place, token) for token in self._tokens if (place := said.rfind(token)) >= 0)
        kept = [token for _, token in found[-self._keeps :]]
        return "\n".join((_SUMMARY, *kept))


_INSTRUCTION = (
    "Summarise the conversation so far for your own later use: the goal, what was done, and the newest facts."
)
_SUMMARY = (
    "Summary of the conversation so far. The work proceeds file by file as the user asks; earlier parts are finished, "
    "their results are in the working folder, and nothing is open but the newest request. The newest facts:"
)
