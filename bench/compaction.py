"""What most agents do when a transcript comes near the end of the window: a summary, which keeps the newest facts."""

from __future__ import annotations

from collections.abc import Sequence

from bench.script import Scenario
from prime.ledger import Ledger, tokens, words
from prime.messages import Message, Reply, Request, TextPart

#: Share of the window at which a transcript is compacted, and share of it that stays as it is.
COMPACT_AT, COMPACT_KEEPS = 0.8, 0.16


class Compaction:
    """The newest part of a transcript stays as it is, everything older becomes a summary. That is paid for like any
    reply, and of each fact it keeps the newest value that was said."""

    def __init__(self, scenario: Scenario) -> None:
        facts = dict.fromkeys((*scenario.needed(), *scenario.asked()))
        self._values = [(fact.token, *fact.decoys) for fact in facts]
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
        newest = (max((said.rfind(value), value) for value in values) for values in self._values)
        kept = [value for place, value in sorted(newest) if place >= 0][-self._keeps :]
        return "\n".join((_SUMMARY, *kept))


_INSTRUCTION = (
    "Summarise the conversation so far for your own later use: the goal, what was done, and the newest facts."
)
_SUMMARY = (
    "Summary of the conversation so far. The work proceeds file by file as the user asks; earlier parts are finished, "
    "their results are in the working folder, and nothing is open but the newest request. The newest facts:"
)
