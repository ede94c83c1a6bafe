"""A model that follows a written script and answers questions only from what its request shows.

When the script needs a fact, the model looks for it in the request. If it is not there and the arm can recall, it calls
what the newest result names, or ``history.search`` and then the calls that the hits name, and looks again. Where it
sees no value but a decoy, it believes that. What it still does not see it does not know. A request that is larger than
the window is refused, as a provider does. What a script cannot show: whether a real model thinks of recalling, and what
it writes when it does not.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Literal

from bench.compaction import Compaction
from bench.script import Fact, Scenario, Turn
from bench.trail import Trail
from prime.ledger import tokens, words
from prime.messages import CallPart, Delta, Header, Message, Part, Reply, Request, TextPart, Usage, text_of
from prime.projection import NOTICE
from prime.providers.failures import failure

MODEL = "scripted/oracle"
UNKNOWN = "UNKNOWN"
#: Hits of a search whose calls are tried.
TRIED = 3
_CALL = re.compile(r"history\.(?:expand|turn|step|read)\((?:[^()\n\"]|\"[^\"\n]*\")*\)")

#: How a fact was there when it was wanted: in the request as it came, after a recall, not at all.
How = Literal["kept", "recovered", "lost"]
Move = Generator[str, Request, str]


class Oracle:
    """The model as a :class:`~prime.providers.base.Provider`. :meth:`begin` names the turn that is about to be asked.

    Args:
        recall: whether the arm can recall.
        compact: whether a transcript is summarised; nothing is refused then.
        room: whether the arm makes room after a refusal. Without it everything is refused from then on.

    Attributes:
        trail: every request and its price.
        recalls: calls of ``history`` that were made.
        answers: what was answered, by the fact's name; ``asked`` and ``needed`` count how the facts were there.
        refusals: requests that were larger than the window.
    """

    images = False

    def __init__(self, scenario: Scenario, *, recall: bool, compact: bool, room: bool = True) -> None:
        self.model = MODEL
        self.context_window: int | None = None if compact else scenario.window
        self.trail = Trail()
        self.recalls = 0
        self.answers: dict[str, str] = {}
        self.asked: Counter[How] = Counter()
        self.needed: Counter[How] = Counter()
        self.refusals = 0
        self._recall = recall
        self._room = room
        self._moves: Move | None = None
        self._calls = 0
        self._compaction = Compaction(scenario) if compact else None
        self._sizes: dict[int, tuple[Message | Header, float]] = {}

    @property
    def compactions(self) -> int:
        """How often a transcript was summarised."""
        return self._compaction.count if self._compaction is not None else 0

    def begin(self, turn: Turn) -> None:
        """Take up a turn's script."""
        self._moves = self._play(turn)
        next(self._moves)

    async def reply(self, request: Request, on_delta: Callable[[Delta], None]) -> Reply:
        """Play the next move, seeing what the request shows and nothing else.

        Raises:
            ProviderError: with code ``overflow``; the request is larger than the window.
        """
        if self._compaction is not None:
            request = self._compaction.of(request, self.trail.ledger)
        self._refuse(request)
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
        cost = self.trail.add(request, reply)
        return reply.model_copy(update={"usage": Usage(input=cost.miss, cache_read=cost.hit, output=cost.output)})

    async def close(self) -> None:
        """Do nothing: there are no resources."""

    def _refuse(self, request: Request) -> None:
        if self.context_window is None:
            return
        size = round(sum(map(self._size, (request.header, *request.messages))))
        if size > self.context_window or (self.refusals and not self._room):
            self.refusals += 1
            raise failure("overflow", f"{size:,} tokens are more than the window of {self.context_window:,}")

    def _size(self, item: Header | Message) -> float:
        """Return the tokens of a message, counted once: most of a request was there before."""
        known = self._sizes.get(id(item))
        if known is None or known[0] is not item:
            known = self._sizes[id(item)] = item, tokens(item)
        return known[1]

    def _play(self, turn: Turn) -> Move:
        request = yield ""
        for step in turn.steps:
            if isinstance(step, str):
                request = yield step
                continue
            values, request = yield from self._find(step.facts, request, self.needed)
            if step.code:
                code = step.code
                for number, value in enumerate(values):
                    code = code.replace(f"<{number}>", value)
                request = yield code
        values, request = yield from self._find(turn.ask, request, self.asked)
        self.answers |= {fact.name: value for fact, value in zip(turn.ask, values, strict=True)}
        return "\n".join((turn.reply, *(f"{fact.name}: {self.answers[fact.name]}" for fact in turn.ask)))

    def _find(
        self, facts: Sequence[Fact], request: Request, counts: Counter[How]
    ) -> Generator[str, Request, tuple[list[str], Request]]:
        """Look for facts; every yield is a cell, and gives the request after it. What is there before the first recall
        counts as kept."""
        kept = {fact.name for fact in facts if _shown(fact, request) == fact.token}
        values = []
        for fact in facts:
            value, request = yield from self._look(fact, request)
            values.append(value)
            if fact.source != "none":
                counts["lost" if value != fact.token else "kept" if fact.name in kept else "recovered"] += 1
        return values, request

    def _look(self, fact: Fact, request: Request) -> Generator[str, Request, tuple[str, Request]]:
        seen = _shown(fact, request)
        if seen != UNKNOWN or not self._recall:
            return seen, request
        for call in [each for each in _named(request) if each.startswith("history.expand(")][:1]:
            request = yield self._call(_filtered(call, fact.grep))
            if _shown(fact, request) != UNKNOWN:
                return _shown(fact, request), request
        request = yield self._call(f"history.search({fact.query!r})")
        for call in _named(request)[:TRIED]:
            if fact.source == "none" or visible(fact.token, request):
                break
            request = yield self._call(_filtered(call, fact.grep))
            if not visible(fact.token, request) and not call.startswith("history.expand("):  # longer than a view
                for whole in _named(request)[-1:]:
                    request = yield self._call(_filtered(whole, fact.grep))
        return _shown(fact, request), request

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


def _shown(fact: Fact, request: Request) -> str:
    """Return the value of a fact that a reader of the request takes for true."""
    if fact.source == "none":
        return UNKNOWN
    return next((value for value in (fact.token, *fact.decoys) if visible(value, request)), UNKNOWN)


def visible(token: str, request: Request) -> bool:
    """Tell whether a request shows a token."""
    return any(token in words(message) for message in request.messages)
