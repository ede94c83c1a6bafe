"""What a scenario is made of, and what makes one void.

A *fact* is a token that nobody can guess. A scenario says where each is told and when it is needed or asked for, and
lies about nothing: an answer that stays visible whatever a policy does is no question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

#: Lines of a file before and after a fact in it: more than any view keeps of the ends of a result.
HEAD, TAIL = 11, 6

Source = Literal["result", "top", "user", "cell", "none"]


class Void(Exception):
    """A scenario or a run that proves nothing."""


@dataclass(frozen=True)
class Fact:
    """Something to be known: ``query`` are words to search for, ``grep`` a pattern of its line.

    ``source`` is where it is said: in the middle of a ``result``, on the ``top`` of one, by the ``user``, in a ``cell``
    that the model wrote; or ``none`` for a question that has no answer. ``decoys`` are other values that are said of
    the same name somewhere: older ones, examples, drafts.
    """

    name: str
    token: str
    query: str
    grep: str
    source: Source = "result"
    decoys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Need:
    """Facts that the next cell has in it; ``code`` gets them as ``<0>``, ``<1>`` and so on. Without code they are only
    looked for."""

    facts: tuple[Fact, ...]
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
        window: tokens of the model's window. A request that is larger is refused, as by a provider; a transcript is
            compacted at 0.8 of it.
        keeps: facts that a summary keeps, the newest.
        check: gets a reader of files and returns what is wrong with the work, empty for nothing.
        length: least and most length of all answers together, as shares of the facts' own; None where it says nothing.
        switches: whether a policy that switches the window must do so for the run to prove anything.
        program: the same work as one program a turn, where that is a subject.
        arms: those that say something, all when empty.
    """

    name: str
    turns: tuple[Turn, ...]
    files: dict[str, str] = field(default_factory=dict)
    window: int = 128_000
    keeps: int = 12
    check: Callable[[Callable[[str], str]], str] = lambda read: ""
    length: tuple[float, float] | None = None
    switches: bool = False
    program: tuple[Turn, ...] = ()
    arms: tuple[str, ...] = ()

    def asked(self) -> list[Fact]:
        """Return the facts that are asked for and have an answer."""
        return [fact for turn in self.turns for fact in turn.ask if fact.source != "none"]

    def needed(self) -> list[Fact]:
        """Return the facts that cells need, each once."""
        needs = (step for turn in self.turns for step in turn.steps if isinstance(step, Need))
        return list(dict.fromkeys(fact for need in needs for fact in need.facts))


def check_leaks(scenario: Scenario) -> None:
    """Refuse a scenario whose answers stay visible whatever a policy does.

    Raises:
        Void: a fact is asked twice, stands in a channel that is always kept, or is told nowhere.
    """
    asked = scenario.asked()
    if len({fact.token for fact in asked}) != len(asked):
        raise Void(f"{scenario.name}: a fact is asked twice, so the first answer gives away the second")
    for fact in asked:
        for why in _leaks(scenario, fact):
            raise Void(f"{scenario.name}: {fact.name} {why}")
    for fact in (*asked, *scenario.needed()):
        if any(fact.token in decoy or decoy in fact.token for decoy in fact.decoys):
            raise Void(f"{scenario.name}: a decoy of {fact.name} is no other value")


def _leaks(scenario: Scenario, fact: Fact) -> Iterator[str]:
    prompts = "\n".join(turn.prompt for turn in scenario.turns)
    cells = "\n".join(_code(step) for turn in scenario.turns for step in turn.steps)
    if any(fact.token in turn.reply for turn in scenario.turns):
        yield "stands in a reply"
    if cells.count(fact.token) != (fact.source == "cell"):
        yield f"stands in {cells.count(fact.token)} cells"
    if prompts.count(fact.token) != (fact.source == "user"):
        yield f"is said by the user {prompts.count(fact.token)} times"
    if fact.source not in ("result", "top"):
        return
    holding = [text.split("\n") for text in scenario.files.values() if fact.token in text]
    if not holding:
        yield "stands nowhere"
    if fact.source == "top":
        return
    if any(fact.token in path for path in scenario.files):
        yield "stands in the name of a file, which views keep"
    for lines in holding:
        places = [number for number, line in enumerate(lines) if fact.token in line]
        if min(places) < HEAD or max(places) >= len(lines) - TAIL:
            yield "stands at an end of what is shown, which views keep"


def _code(step: str | Need) -> str:
    return step if isinstance(step, str) else step.code
