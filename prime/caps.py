"""The limits of a turn, decided purely from its entries."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from prime import events as ev
from prime.config import Config
from prime.pricing import PUBLISHED, Prices


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps of a turn and of a session. None means no cap.

    Attributes:
        max_steps: model requests in one turn.
        max_seconds: wall time of one turn, checked between steps.
        max_cost: US dollars of a session, checked between steps; needs a model with a known price.
        cell_timeout_s: seconds that one cell may run.
        visible_output_bytes: bytes of a cell's output that the model sees.
        prices: what counts for ``max_cost``.
    """

    max_steps: int = 50
    max_seconds: float | None = None
    max_cost: float | None = None
    cell_timeout_s: float = 600.0
    visible_output_bytes: int = 12_000
    prices: Prices = PUBLISHED


def limits(config: Config) -> Limits:
    """Return the limits that a configuration sets."""
    return Limits(
        max_steps=config.max_steps,
        max_seconds=config.max_seconds,
        max_cost=config.budget,
        cell_timeout_s=config.cell_timeout_s,
        visible_output_bytes=config.visible_output_bytes,
        prices=Prices(config.prices),
    )


@dataclass(frozen=True, slots=True)
class Stop:
    """The turn ends here."""

    reason: ev.TurnReason
    detail: str


@dataclass(frozen=True, slots=True)
class Correct:
    """The turn goes on after a word to the model. ``about`` is the notice's stable word."""

    about: str
    text: str


#: Identical failing cells in a row: corrected at the first figure, stopped at the second.
REPEAT_CORRECT, REPEAT_STOP = 3, 5
#: What the correction is about.
REPEATED = "repeated_failure"
#: Replies with neither words nor cells that get a nudge; one more ends the turn.
NUDGES = 2

#: What the decisions below are made from.
TYPES = ("turn_started", "step_started", "cell_started", "cell_ended", "model_replied", "notice_given")

NUDGE = Correct(
    "empty_reply", "Your last reply was empty. Go on with a repl call, or say in words what the result of the task is."
)


def check(
    entries: Sequence[ev.Entry], limits: Limits, spent: Decimal | None, now_ms: int | None = None
) -> Stop | Correct | None:
    """Decide between two steps of a turn whether it may go on.

    ``entries`` are those of the open turn of the types :data:`TYPES`; ``spent`` is the session's price so far in US
    dollars, None when unknown.
    """
    now_ms = now_ms if now_ms is not None else time.time_ns() // 1_000_000
    steps = sum(isinstance(entry.event, ev.StepStarted) for entry in entries)
    if steps >= limits.max_steps:
        return Stop("max_steps", f"the turn took {steps} steps, the most that are allowed")
    if entries and limits.max_seconds is not None and now_ms - entries[0].at >= limits.max_seconds * 1000:
        return Stop("max_seconds", f"the turn took longer than {limits.max_seconds:g} s")
    return overspent(limits, spent) or _repeated(entries)


def overspent(limits: Limits, spent: Decimal | None) -> Stop | None:
    """Decide whether a session that cost ``spent`` US dollars, None when unknown, may send another request."""
    if limits.max_cost is None or spent is None or spent < Decimal(str(limits.max_cost)):
        return None
    return Stop("max_cost", f"the session cost ${spent:.4f}, the most that is allowed is ${limits.max_cost:g}")


def empty(entries: Sequence[ev.Entry]) -> Stop | Correct:
    """Decide what follows a reply with neither words nor cells: a nudge, or the end after :data:`NUDGES` of them."""
    given = sum(isinstance(entry.event, ev.NoticeGiven) and entry.event.about == NUDGE.about for entry in entries)
    if given >= NUDGES:
        return Stop("empty_replies", f"the model gave nothing {given + 1} times")
    return NUDGE


def _repeated(entries: Sequence[ev.Entry]) -> Stop | Correct | None:
    codes = {entry.event.cell: entry.event.code for entry in entries if isinstance(entry.event, ev.CellStarted)}
    code, count, noticed, corrected = None, 0, False, False
    for entry in reversed(entries):
        event = entry.event
        if isinstance(event, ev.NoticeGiven):
            noticed = noticed or event.about == REPEATED
        elif isinstance(event, ev.CellEnded):
            code = codes.get(event.cell) if code is None else code
            if event.status == "ok" or codes.get(event.cell) != code:
                break
            count += 1
            corrected = noticed  # a notice before the first of these was about another cell
    if count >= REPEAT_STOP:
        return Stop("repeated_failure", f"the same cell failed {count} times in a row")
    if count >= REPEAT_CORRECT and not corrected:
        return Correct(
            REPEATED,
            f"The same cell failed {count} times in a row with the same code. Do not run it again unchanged: "
            "read the error, look at the values it uses, and take another way.",
        )
    return None
