"""One row about a session, for lists. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from prime import events as ev
from prime.pricing import PUBLISHED, Prices
from prime.views.transcript import transcript

#: The only entries that a row needs, so that a list need not read the output of every cell.
TYPES = (
    "session_created",
    "session_forked",
    "header_changed",
    "turn_started",
    "turn_ended",
    "step_started",
    "step_ended",
    "user_said",
    "model_replied",
    "cell_started",
    "query_ended",
)


@dataclass(frozen=True, slots=True)
class Row:
    """What a list says of a session.

    Attributes:
        title: its first words in one line, else its first code.
        started: in UTC, to the second.
        model: the newest one, None when no model ever answered.
        price: US dollars, None when unknown.
    """

    id: str
    title: str
    started: datetime
    turns: int
    cells: int
    model: str | None
    price: Decimal | None
    cwd: str

    def as_json(self) -> dict[str, Any]:
        """Return the row as plain JSON values."""
        return {
            "id": self.id,
            "title": self.title,
            "started": self.started.isoformat(),
            "turns": self.turns,
            "cells": self.cells,
            "model": self.model,
            "price": float(self.price) if self.price is not None else None,
            "cwd": self.cwd,
        }


def row(entries: Iterable[ev.Entry], *, prices: Prices = PUBLISHED) -> Row:
    """Return the row of a session from its entries of the types :data:`TYPES`."""
    whole = transcript(entries)
    return Row(
        id=whole.session,
        title=whole.title,
        started=datetime.fromtimestamp(whole.started // 1000, UTC),
        turns=len(whole.turns),
        cells=len(whole.cells),
        model=whole.model or None,
        price=prices.spent(whole.spent),
        cwd=whole.cwd,
    )
