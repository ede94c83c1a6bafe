"""The contract of a turn: writes are held against the rules that its constitution marks as checked.

A model extracted the rules, and often wrongly. So a rule may refuse only so many writes; the next one that breaks it
is made, the rule is suspended until the turn ends, and the model is told. What broke a rule is in the log, which is all
that is remembered. Tools call :meth:`Contract.permit` through :meth:`prime.tools.workspace.Workspace.permit`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anyio import from_thread

from prime import events as ev
from prime.errors import ToolFailed
from prime.log import Log
from prime.policies.base import StreamOptions
from prime.predicates import Rule, broken, parse

#: Seconds that one rule may take over one file; one that takes longer is suspended.
RULE_SECONDS = 0.5

_parse = functools.lru_cache(maxsize=8)(parse)


@dataclass(frozen=True, slots=True)
class _Broken:
    """A rule that a write breaks, or whose check was too ``slow`` to say."""

    number: int
    rule: Rule
    found: str
    slow: bool = False

    def event(self, path: str, *, suspended: bool) -> ev.ContractBroken:
        return ev.ContractBroken(rule=self.number, path=path, found=self.found, suspended=suspended)


class Contract:
    """Holds writes of one session against the rules of its open turn; without a constitution everything passes."""

    def __init__(self, log: Log, options: StreamOptions) -> None:
        self._log = log
        self._options = options

    def permit(self, path: str, text: str) -> None:
        """Check that the file ``path``, as tools name it, may get the content ``text``. Called in the worker thread
        of a tool, before it writes.

        Raises:
            ToolFailed: ``contract``, naming the rules that it breaks and what to do.
        """
        wrong = [verdict for number, rule in self._in_force() if (verdict := _verdict(number, rule, path, text))]
        if wrong and (refusing := from_thread.run_sync(self._settle, path, wrong)):
            raise ToolFailed("contract", self._refusal(path, refusing))

    def _in_force(self) -> Iterator[tuple[int, Rule]]:
        state = self._log.state
        side, trace = state.side, state.trace
        if not trace.in_turn or side.given != trace.turn:
            return
        if trace.step < self._options.enforce_step:
            return
        for number, rule in enumerate(_parse(side.answer), 1):
            if rule.check is not None and number not in side.suspended:
                yield number, rule

    def _settle(self, path: str, wrong: Sequence[_Broken]) -> Sequence[_Broken]:
        """Log what a write has broken, on the host's own thread, and return what refuses it."""
        side, budget = self._log.state.side, self._options.bounce_budget
        # a write that ran beside this one may have changed what holds
        holding = [each for each in wrong if each.number not in side.suspended]
        refusing = [each for each in holding if not each.slow and side.refusals(each.number) < budget]
        for each in holding:
            if each in refusing:
                self._log.append(each.event(path, suspended=False))
            elif each.slow or not refusing:  # else the write is not made, and this rule gets its next one
                self._log.append(each.event(path, suspended=True))
        return refusing

    def _refusal(self, path: str, refusing: Sequence[_Broken]) -> str:
        named = (f"rule {each.number} of the constitution ({each.rule.text}): {each.found}" for each in refusing)
        budget = self._options.bounce_budget
        return (
            f"{path} was not written, it breaks {'; '.join(named)}. Correct it; where the rule does not apply here, "
            f"write the same again: a rule refuses {'once' if budget == 1 else f'{budget} times'} in a turn"
        )


def _verdict(number: int, rule: Rule, path: str, text: str) -> _Broken | None:
    assert rule.check is not None, "only rules with a check are in force"
    try:
        found = broken(rule.check, path, text, RULE_SECONDS)
    except TimeoutError:
        return _Broken(number, rule, f"the check took longer than {RULE_SECONDS} s", slow=True)
    return _Broken(number, rule, found) if found is not None else None
