"""What was sent in a run, and at which steps a request did not begin with the one before it, and why.

The reasons are those of the log: an operation that put something else in the place of what was sent before.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

from prime import events as ev
from prime.ledger import Ledger, Line, total
from prime.messages import Delta, Reply, Request
from prime.pricing import SHEETS

#: Tokens by which two counts of the same text may differ: each is rounded.
_ROUNDING = 2


@dataclass(frozen=True)
class Break:
    """A request that does not begin with the whole one before it and the reply to that.

    Attributes:
        at: turn and step, as ``9.1``.
        by: policies whose operations changed what was sent; ``compaction`` for a summary.
        shared: characters that the two have in common from the start.
        gone: tokens of the one before that nothing sent earlier begins with.
    """

    at: str
    by: tuple[str, ...]
    shared: int
    gone: int


class Trail:
    """Hears the entries of the log through :meth:`hear` and keeps every request that was answered."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.switches = 0
        self._places: list[tuple[int, int]] = []
        self._by: list[tuple[str, ...]] = []
        self._turn = self._step = 0
        self._sent = -1
        self._pending: dict[str, None] = {}

    def hear(self, said: ev.Entry | Delta) -> None:
        """Take in an entry of the log, and nothing of a reply that arrives."""
        if not isinstance(said, ev.Entry):
            return
        event = said.event
        if isinstance(event, ev.SurfaceReplaced):
            self.switches += event.policy == "window"
            if min(event.sources) < self._sent:  # else it was never sent in its old form
                self._pending[event.policy] = None
        elif isinstance(event, ev.HeaderChanged):
            self._pending["header"] = None
        elif isinstance(event, ev.StepStarted):
            self._sent, self._turn, self._step = said.seq, said.turn or 0, said.step or 0

    def add(self, request: Request, reply: Reply) -> Line:
        """Take in a request that was answered."""
        summaries = len(self.ledger.lines) - len(self._places)
        line = self.ledger.add(request, reply)
        for number in range(summaries + 1):  # what was asked for a summary begins with what was sent before
            self._places.append((self._turn, self._step))
            self._by.append(("compaction",) if number and number == summaries else tuple(self._pending))
        self._pending.clear()
        return line

    def breaks(self) -> list[Break]:
        """Return every break so far, in order."""
        found = []
        for number, (before, after) in enumerate(pairwise(self.ledger.lines), 1):
            gone = before.prompt + before.output - after.shared
            if gone > _ROUNDING:
                at = "{}.{}".format(*self._places[number])
                found.append(Break(at, self._by[number], after.diverged, gone))
        return found

    def turns(self) -> tuple[list[int], list[float]]:
        """Return the largest prompt of each turn in tokens, and the price up to its end in US dollars (flash)."""
        lines: dict[int, list[Line]] = {}
        for (turn, _), line in zip(self._places, self.ledger.lines, strict=True):
            lines.setdefault(turn, []).append(line)
        totals = [total(each) for each in lines.values()]
        prices = accumulate(each.price(SHEETS["flash"]) for each in totals)
        return [each.peak for each in totals], [round(price, 6) for price in prices]
