"""The figure of the committed result: ``python -m bench.context_plot``."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.pyplot as plt

RESULTS = Path(__file__).parent / "results"
ARMS = ("transcript", "compaction", "fold", "slice", "slice-v3", "window", "auto")


def main() -> None:
    """Draw price and peak of every scenario and arm as shares of the transcript's; a cross marks lost facts."""
    rows = json.loads((RESULTS / "context.json").read_text())["rows"]
    found = {(row["scenario"], row["arm"]): row for row in rows if not row["void"]}
    names = [name for name in dict.fromkeys(row["scenario"] for row in rows) if (name, "transcript") in found]
    figure, axes = plt.subplots(2, 1, figsize=(12, 7), sharex=True, layout="constrained")
    for axis, title in zip(axes, ("price (flash)", "peak tokens"), strict=True):
        for place, arm in enumerate(ARMS):
            here = [
                (x, found[name, arm], found[name, "transcript"]) for x, name in enumerate(names) if (name, arm) in found
            ]
            places = [x + (place - len(ARMS) / 2 + 0.5) * 0.12 for x, _, _ in here]
            heights = [_figure(row, title) / _figure(base, title) for _, row, base in here]
            axis.bar(places, heights, 0.12, label=arm)
            lost = [(x, y) for x, y, (_, row, _) in zip(places, heights, here, strict=True) if not row["passed"]]
            if lost:
                axis.plot(*zip(*lost, strict=True), "kx", markersize=7)
        axis.set_ylabel(f"{title}\nas a share of the transcript's")
        axis.axhline(1, color="gray", linewidth=0.5)
    axes[1].set_xticks(range(len(names)), names)
    axes[0].legend(ncols=len(ARMS), loc="upper center", fontsize="small")
    axes[0].set_ylim(0, 1.4)
    axes[0].set_title("Context policies with a scripted model; a cross marks a run that lost facts")
    figure.savefig(RESULTS / "context.png", dpi=110)


def _figure(row: dict[str, object], title: str) -> float:
    price, peak = row["price"], row["peak_tokens"]
    assert isinstance(price, dict)
    assert isinstance(peak, int)
    return float(price["flash"]) if title.startswith("price") else float(peak)


if __name__ == "__main__":
    main()
