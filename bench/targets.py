"""What the context benchmark is measured against: the base of each row, and the figures to be reached."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from prime.pricing import SHEETS

#: Arms that a row may be compared with, the first one that could have happened.
BASES = ("transcript", "compaction", "native")


@dataclass(frozen=True)
class Target:
    """A figure to be reached: ``price`` and ``peak`` as shares of the row's base, all others as they are."""

    scenario: str
    arm: str
    figure: str
    most: float


_OURS = ("slice", "auto")
TARGETS = (
    *(Target("s10", arm, "facts_lost", 0) for arm in _OURS),
    *(Target("s10", arm, "peak_tokens", 32_000) for arm in _OURS),
    *(Target("s10", arm, "price", 0.6) for arm in _OURS),
    *(Target("l1", arm, "price", 0.2) for arm in _OURS),
    *(Target("l1", arm, "peak_tokens", 50_000) for arm in _OURS),
    *(Target(name, arm, "price", 0.75) for name in ("s13", "s14b") for arm in _OURS),
    *(Target(name, arm, "facts_lost", 0) for name in ("s13", "s14b", "s15") for arm in _OURS),
    *(Target(name, "auto", "facts_lost", 0) for name in ("n1", "n2", "n3", "w1", "x1")),
    Target("x1", "slice-v3", "facts_lost", 0),
    Target("x1", "slice-v3", "price", 0.6),
    *(Target(name, "auto", "price", 1.02) for name in ("z0", "short")),
)


def based(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with the arm that each is compared with and its shares of that one's price and peak.

    The base is the transcript. Where that did not fit its window it could not have happened, and the base is the
    transcript that was compacted; where neither is there, one call a step. The share ``floor`` is the price of the
    user's words sent once, at the price of a miss: no policy that lets the model read them can be cheaper.
    """
    rows = list(rows)
    possible = {(row["scenario"], row["arm"]): row for row in rows if not row["void"]}
    found = []
    for row in rows:
        arm = next((arm for arm in BASES if (row["scenario"], arm) in possible), "")
        base = possible.get((row["scenario"], arm))
        found.append({**row, "base": arm, "shares": {} if base is None or row["void"] else _shares(row, base)})
    return found


def _shares(row: dict[str, Any], base: dict[str, Any]) -> dict[str, float]:
    price = base["price"]["flash"]
    shares = {
        "price": row["price"]["flash"] / price,
        "peak": row["peak_tokens"] / base["peak_tokens"],
        "floor": row["said_tokens"] * float(SHEETS["flash"].input) / 1_000_000 / price,
    }
    return {name: round(share, 4) for name, share in shares.items()}


def judged(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return every target whose run is there, with its figure and whether it was met. The rows have their bases."""
    found = {(row["scenario"], row["arm"]): row for row in rows if not row["void"]}
    verdicts = []
    for target in TARGETS:
        row = found.get((target.scenario, target.arm))
        if row is None or (target.figure == "price" and not row["base"]):
            continue
        share = target.figure in row["shares"]
        value = row["shares"][target.figure] if share else row[target.figure]
        more = {"of": row["base"], "floor": row["shares"]["floor"]} if share else {"of": "", "floor": 0.0}
        verdicts.append({**asdict(target), **more, "value": value, "met": value <= target.most})
    return verdicts
