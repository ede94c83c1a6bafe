"""The figures of the committed result: ``python -m bench.context_plot``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

RESULTS = Path(__file__).parent / "results"
ARMS = ("transcript", "compaction", "fold", "slice", "slice-v3", "window", "auto")
#: Scenarios that are drawn turn by turn.
LONG = {"s10": "64 files read one a turn (s10)", "x1": "two million tokens pasted (x1)"}
#: The arms of which two may lie on one another, so that both are seen.
_STYLES = dict(zip(ARMS, ("-", "-", "-", "-", "-", "--", "--"), strict=True))


def shares(rows: list[dict[str, Any]]) -> None:
    """Draw price and peak of every scenario and arm as shares of the base's; a cross marks lost facts."""
    found = {(row["scenario"], row["arm"]): row for row in rows if row["shares"]}
    names = [name for name in dict.fromkeys(row["scenario"] for row in rows) if (name, "auto") in found]
    figure, axes = plt.subplots(2, 1, figsize=(13, 7), sharex=True, layout="constrained")
    for axis, title in zip(axes, ("price", "peak"), strict=True):
        for place, arm in enumerate(ARMS):
            here = [(x, found[name, arm]) for x, name in enumerate(names) if (name, arm) in found]
            places = [x + (place - len(ARMS) / 2 + 0.5) * 0.12 for x, _ in here]
            heights = [row["shares"][title] for _, row in here]
            axis.bar(places, heights, 0.12, label=arm, color=f"C{place}")
            lost = [(x, y) for x, y, (_, row) in zip(places, heights, here, strict=True) if not row["passed"]]
            if lost:
                axis.plot(*zip(*lost, strict=True), "kx", markersize=7)
        axis.set_ylabel(f"{title} as a share of the base's")
        axis.axhline(1, color="gray", linewidth=0.5)
    labels = [f"{name}\n({found[name, 'auto']['base']})" for name in names]
    axes[1].set_xticks(range(len(names)), labels, fontsize="small")
    axes[0].legend(ncols=len(ARMS), loc="upper center", fontsize="small")
    axes[0].set_ylim(0, 1.6)
    axes[0].set_title("Context policies with a scripted model, against the base in brackets; a cross marks lost facts")
    figure.savefig(RESULTS / "context.png", dpi=110)


def turns(rows: list[dict[str, Any]]) -> None:
    """Draw the largest request of each turn and the price so far, arm by arm. A run that was refused ends there."""
    figure, axes = plt.subplots(2, len(LONG), figsize=(13, 8), sharex="col", layout="constrained")
    for column, (scenario, title) in enumerate(LONG.items()):
        above, below = axes[0][column], axes[1][column]
        for place, arm in enumerate(ARMS):
            row = next(row for row in rows if (row["scenario"], row["arm"]) == (scenario, arm))
            numbers = range(1, len(row["turn_peaks"]) + 1)
            style = {"color": f"C{place}", "linestyle": _STYLES[arm], "linewidth": 1.4}
            above.plot(numbers, [peak / 1000 for peak in row["turn_peaks"]], label=arm, **style)
            below.plot(numbers, row["turn_prices"], label=arm, **style)
            if row["void"]:
                above.plot(numbers[-1], row["turn_peaks"][-1] / 1000, "kx", markersize=9)
                below.plot(numbers[-1], row["turn_prices"][-1], "kx", markersize=9)
        above.set_title(title)
        above.set_ylabel("largest request of the turn, thousands of tokens")
        below.set_ylabel("price so far in US dollars (flash)")
        below.set_xlabel("turn; a cross: refused, the request was larger than the window")
        above.set_ylim(bottom=0)
        below.set_ylim(bottom=0)
    axes[0][0].legend(fontsize="small")
    figure.savefig(RESULTS / "context_turns.png", dpi=110)


def main() -> None:
    """Draw both figures."""
    rows = json.loads((RESULTS / "context.json").read_text())["rows"]
    shares(rows)
    turns(rows)


if __name__ == "__main__":
    main()
