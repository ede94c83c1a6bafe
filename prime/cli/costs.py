"""``sessions price --all``, ``--day`` and ``--tree``: what sessions cost, by what their providers reported."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from prime.cli.recorded import print_table
from prime.config import load
from prime.errors import PrimeError
from prime.messages import Usage
from prime.pricing import SHEETS, Prices, Spent, shown
from prime.sessions import Sessions
from prime.spending import spent

_TOTAL = "total"


def every(sheet: str | None, *, as_json: bool) -> None:
    """Print a row for each session, newest first and followed by its children's, and their sum."""
    sessions = _sessions()
    _print("session", _each(sessions, sessions.all()), sheet, as_json=as_json)


def tree(name: str, sheet: str | None, *, as_json: bool) -> None:
    """Print a row for a session and one for each of its children and theirs, and their sum."""
    sessions = _sessions()
    session = sessions.resolve(name)
    _print("session", _each(sessions, [session, *sessions.children(session)]), sheet, as_json=as_json)


def days(sheet: str | None, *, as_json: bool) -> None:
    """Print a row for each day, in local time, newest first, and their sum."""
    by_day: dict[str, list[Spent]] = {}
    sessions = _sessions()
    for _, found in _each(sessions, sessions.all()):
        for each in found:
            by_day.setdefault(f"{datetime.fromtimestamp(each.at / 1000, UTC).astimezone():%Y-%m-%d}", []).append(each)
    _print("day", sorted(by_day.items(), reverse=True), sheet, as_json=as_json)


def _each(sessions: Sessions, names: Iterable[str]) -> Iterator[tuple[str, list[Spent]]]:
    for session in names:
        try:
            with sessions.read(session) as store:
                yield session, spent(store)
        except PrimeError as error:
            print(f"error: {session}: {error}", file=sys.stderr)


def _print(what: str, found: Iterable[tuple[str, list[Spent]]], sheet: str | None, *, as_json: bool) -> None:
    rows = list(found)
    prices = Prices(load(Path.cwd()).prices)
    whole = [(_TOTAL, [each for _, found in rows for each in found])]
    made = [_row(what, name, found, prices, sheet) for name, found in (*rows, *([] if as_json else whole))]
    if as_json:
        for row in made:
            print(json.dumps(row))
        return
    lines = [tuple(made[0])] + [tuple(_cell(value) for value in row.values()) for row in made]
    print_table(lines)
    if any(row["estimated"] for row in made):
        print("estimated: replies whose provider reported no tokens; counted by the rules of `sessions price ID`")
    if any(row["price"] is None for row in made):
        print('unknown: put [prices."PROVIDER/NAME"] into your configuration file, or compare with --sheet')


def _row(what: str, name: str, found: Sequence[Spent], prices: Prices, sheet: str | None) -> dict[str, object]:
    usage = sum((each.usage for each in found), Usage())
    price: Decimal | None = prices.spent(found) if sheet is None else SHEETS[sheet].cost(usage)
    return {
        what: name,
        "replies": len(found),
        "prompt": usage.prompt,
        "cached": usage.cache_read,
        "output": usage.output,
        "estimated": sum(each.estimated for each in found),
        "price": float(price) if price is not None else None,
    }


def _cell(value: object) -> str:
    if value is None or isinstance(value, float):
        return shown(None if value is None else Decimal(str(value)))
    return f"{value:,}" if isinstance(value, int) else str(value)


def _sessions() -> Sessions:
    return Sessions(load(Path.cwd()).home)
