"""``sessions cost``: what sessions have cost, by what their providers reported."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from prime.cli.prices import check_sheet
from prime.cli.recorded import print_table
from prime.config import load
from prime.errors import PrimeError
from prime.messages import Usage
from prime.pricing import SHEETS, Prices, Spent, shown
from prime.sessions import Sessions
from prime.spending import spent

_TOTAL = "total"


def show(name: str | None, sheet: str | None, *, by_day: bool, as_json: bool) -> None:
    """Print a row for each session, newest first and followed by its children's, and their sum. ``name``: of one and
    its children. ``by_day``: a row for each day instead, in local time, newest first.

    Raises:
        BadParameter: no such sheet.
    """
    check_sheet(sheet)
    sessions = _sessions()
    session = sessions.resolve(name) if name is not None else None
    names = sessions.all() if session is None else [session, *sessions.children(session)]
    rows = list(_each(sessions, names))
    if by_day:
        _print("day", _days(each for _, found in rows for each in found), sheet, as_json=as_json)
    else:
        _print("session", rows, sheet, as_json=as_json)


def _days(replies: Iterable[Spent]) -> list[tuple[str, list[Spent]]]:
    found: dict[str, list[Spent]] = {}
    for each in replies:
        found.setdefault(f"{datetime.fromtimestamp(each.at / 1000, UTC).astimezone():%Y-%m-%d}", []).append(each)
    return sorted(found.items(), reverse=True)


def _each(sessions: Sessions, names: Iterable[str]) -> Iterator[tuple[str, list[Spent]]]:
    for session in names:
        try:
            with sessions.read(session) as store:
                yield session, spent(store)
        except PrimeError as error:
            print(f"error: {session}: {error}", file=sys.stderr)


def _print(what: str, rows: Sequence[tuple[str, list[Spent]]], sheet: str | None, *, as_json: bool) -> None:
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
