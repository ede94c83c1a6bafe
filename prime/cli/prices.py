"""``sessions price``: what a session's requests cost, and what they would have cost under other context policies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

import typer

from prime import app
from prime.cli.recorded import print_table
from prime.config import load
from prime.errors import LogError
from prime.ledger import Total
from prime.log import read
from prime.messages import Usage
from prime.policies.base import Policy
from prime.pricing import SHEETS, Prices, Sheet
from prime.providers.windows import context_window
from prime.replayed import recorded, replay
from prime.sessions import Sessions

_HELD = (
    "Tokens are estimates. Words, cells and replies are those that were recorded: what the model would have said to\n"
    "other requests, nobody knows."
)


def show(name: str, policies: Sequence[str], sheet: str | None, window: int | None, *, as_json: bool) -> None:
    """Print a row for the session as it was recorded and one for each policy.

    Raises:
        BadParameter: no such policy or sheet.
        LogError: no request was ever made.
    """
    for policy in policies:
        _check("policy", policy, get_args(Policy))
    check_sheet(sheet)
    config = load(Path.cwd())
    prices = Prices(config.prices) if sheet is None else SHEETS[sheet]
    sessions = Sessions(config.home)
    session = sessions.resolve(name)
    rows = []
    with sessions.read(session) as store:
        headers = [entry.event.header for entry in read(store, types=("header_changed",))]
        if not headers:
            raise LogError(f"no model was asked in {session}; there is nothing to price")
        model = headers[-1].model
        if window is None:
            window = context_window(*model.split("/", 1)) if "/" in model else None
        rows.append(_row("recorded", recorded(store).total(), None, model, prices))
        for policy in policies:
            options = replace(app.options(config), policy=cast(Policy, policy))
            found = replay(store, options, window)
            rows.append(_row(policy, found.ledger.total(), found.operations, model, prices))
    if as_json:
        for row in rows:
            print(json.dumps(row))
    else:
        _print(rows)


def check_sheet(sheet: str | None) -> None:
    """Refuse a sheet that there is not.

    Raises:
        BadParameter: there is no such sheet.
    """
    if sheet is not None:
        _check("sheet", sheet, list(SHEETS))


def _check(what: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise typer.BadParameter(f"there is no {what} {given!r}; there are {', '.join(known)}")


def _row(policy: str, total: Total, operations: int | None, model: str, prices: Prices | Sheet) -> dict[str, object]:
    usage = Usage(input=total.miss, cache_read=total.hit, output=total.output)
    cost = prices.cost(model, usage) if isinstance(prices, Prices) else prices.cost(usage)
    return {
        "policy": policy,
        "requests": total.requests,
        "prompt": total.prompt,
        "peak": total.peak,
        "hit": total.hit,
        "miss": total.miss,
        "output": total.output,
        "operations": operations,
        "price": float(cost) if cost is not None else None,
    }


def _cell(value: object) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _print(rows: Sequence[dict[str, object]]) -> None:
    lines = [tuple(rows[0])]
    for row in rows:
        price = row["price"]
        shown = {**row, "price": "unknown" if price is None else f"${price:.4f}"}
        lines.append(tuple(map(_cell, shown.values())))
    print_table(lines)
    print(_HELD)
