"""What a log says of its newest side call, of the constitution made from it, and of the writes that broke it. Pure.

A side call is a query of the host: which rules hold for the open turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from prime import events as ev
from prime.messages import text_of

#: What a side call is about, as a query.
RULES = "rules"
#: What the notices are about that give a constitution, and that tell of suspended rules.
CONSTITUTION, SUSPENDED = "constitution", "contract_suspended"


@dataclass(frozen=True, slots=True)
class Side:
    """The newest side call.

    Attributes:
        turn: the turn that made it, 0 before the first.
        asked, ended: its events, None while there are none.
        given: the turn in which its constitution was given, None before that. Its rules hold until that turn ends.
        broken: what broke a rule since.
        told: how many of these the model was told of.
    """

    turn: int = 0
    asked: ev.QueryAsked | None = None
    ended: ev.QueryEnded | None = None
    given: int | None = None
    broken: tuple[ev.ContractBroken, ...] = ()
    told: int = 0

    @property
    def answered(self) -> bool:
        """Whether it was answered, or failed, and no constitution was given yet. One that was cut off is neither."""
        if self.given is not None or self.ended is None:
            return False
        return self.ended.error is None or self.ended.error.code not in ("cancelled", "outcome_unknown")

    @property
    def answer(self) -> str:
        """What the model said, empty when nothing."""
        return text_of(self.ended.reply.parts) if self.ended is not None and self.ended.reply is not None else ""

    @property
    def suspended(self) -> frozenset[int]:
        """The numbers of the rules that hold no more."""
        return frozenset(each.rule for each in self.broken if each.suspended)

    def refusals(self, rule: int) -> int:
        """Return how many writes this rule has refused."""
        return sum(each.rule == rule and not each.suspended for each in self.broken)

    def after(self, event: Any, turn: int) -> Side:
        """Return the state after ``event`` in the turn with this number."""
        match event:
            case ev.QueryAsked(about=about) if about == RULES:
                return Side(turn, event)
            case ev.QueryEnded(query=query) if self.asked is not None and query == self.asked.query:
                return replace(self, ended=event)
            case ev.NoticeGiven(about=about) if about == CONSTITUTION:
                return replace(self, given=turn)
            case ev.NoticeGiven(about=about) if about == SUSPENDED:
                return replace(self, told=len(self.broken))
            case ev.ContractBroken():
                return replace(self, broken=(*self.broken, event))
        return self
