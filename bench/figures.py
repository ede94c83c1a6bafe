"""The tables of figures in the documentation, made from the committed results: ``python -m bench.figures [--write]``.

``tests/test_docs.py`` fails when a page holds anything else.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"

#: The rows of the kernel's table; a result holds more.
_MEASURES = (
    "cold start to first result",
    "trivial cell",
    "one call",
    "1,000 sequential calls",
    "1,000 concurrent calls",
)
_SUBJECTS = ("prime-repl", "stock", "tuned", "bare socket")
_TITLES = {
    "prime-repl": "prime-repl, log included",
    "stock": "raw ipykernel",
    "tuned": "the same, tuned",
    "bare socket": "bare socket, no log",
}

#: What each scenario of the context benchmark is.
_SESSIONS = {
    "z0": "every tool once, then a question about what three gave",
    "short": "four small changes, then a question",
    "s10": "64 files read one a turn, early facts asked for at the end",
    "l1": "45 linked files in one turn, nine rules",
    "l2": "45 records booked in one turn",
    "s13": "facts said at the start, work, eight long reads",
    "s14b": "facts dropped beside other work",
    "s15": "24 values measured once, ten long reads",
    "w1": "72 accounts, more than the window even when sealed",
    "n1": "twelve clauses dictated, eight logs pasted",
    "n2": "rules corrected between pasted logs",
    "n3": "six facts, pasted logs that grow",
    "x1": "two million tokens pasted",
}
_ARMS = ("compaction", "fold", "slice", "slice-v3", "window", "auto")


@dataclass(frozen=True)
class _Published:
    """What the authors of the slice-agent-loop plugin of DeepSeek Harness published of a session of the same shape:
    price as a share of their default, and the two peaks in thousands of tokens (empty where they gave none)."""

    price: str
    peak: str


#: The rows of the comparison: our arm, and theirs with folding, of September 2026.
_COMPARED = {
    "s10": ("auto", _Published("0.63", "96K → 33K")),
    "l1": ("auto", _Published("0.18 to 0.23", "330K → 42K to 52K")),
    "s13": ("auto", _Published("0.70", "59K → 16K")),
    "s14b": ("auto", _Published("0.81", "")),
    "x1": ("slice-v3", _Published("0.73", "765K → 64K")),
}


def kernel(result: dict[str, Any]) -> str:
    """Return the Markdown table of a result of ``bench.kernel``."""
    rows = result["rows"]
    lines = [f"| | {' | '.join(_TITLES[subject] for subject in _SUBJECTS)} |", "|---|" + "---:|" * len(_SUBJECTS)]
    for measure in _MEASURES:
        found = {row["subject"]: row for row in rows if row["measure"] == measure}
        cells = [_figure(found[subject]) if subject in found else "" for subject in _SUBJECTS]
        lines.append(f"| {measure} | {' | '.join(cells)} |")
    return "\n".join(lines)


def compared(result: dict[str, Any]) -> str:
    """Return the Markdown table of a result of ``bench.context`` beside what others published."""
    found = {(row["scenario"], row["arm"]): row for row in result["rows"]}
    lines = [
        "| session | compared with | facts lost | price | peak tokens | published price | published peak |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for scenario, (arm, theirs) in _COMPARED.items():
        row = found[scenario, arm]
        base = found[scenario, row["base"]]
        title = _SESSIONS[scenario] + ("" if arm == "auto" else ", profile `v3`")
        lost = f"{base['facts_lost']} → {row['facts_lost']} of {row['facts']}"
        peak = f"{_thousands(base['peak_tokens'])} → {_thousands(row['peak_tokens'])}"
        cells = (title, row["base"], lost, f"{row['shares']['price']:.2f}", peak, theirs.price, theirs.peak)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def shares(result: dict[str, Any]) -> str:
    """Return the Markdown table of the price of every arm in every session of a result of ``bench.context``."""
    found = {(row["scenario"], row["arm"]): row for row in result["rows"]}
    lines = [f"| session | `transcript` | {' | '.join(f'`{arm}`' for arm in _ARMS)} |", "|---|" + "---:|" * 7]
    for scenario, title in _SESSIONS.items():
        cells = [_share(found.get((scenario, arm))) for arm in ("transcript", *_ARMS)]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class Place:
    """A table in a page, between ``<!-- mark -->`` and ``<!-- /mark -->``."""

    page: Path
    mark: str
    result: str
    table: Callable[[dict[str, Any]], str]

    def text(self) -> str:
        """Return what belongs there."""
        return self.table(json.loads((RESULTS / self.result).read_text()))

    def put(self) -> None:
        """Put it there."""
        place = re.compile(rf"(<!-- {self.mark} -->\n).*?(\n<!-- /{self.mark} -->)", re.DOTALL)
        text = self.text()
        self.page.write_text(place.sub(lambda match: match[1] + text + match[2], self.page.read_text()))


PLACES = (
    Place(ROOT / "README.md", "figures", "kernel.json", kernel),
    Place(ROOT / "README.md", "context figures", "context.json", compared),
    Place(ROOT / "docs" / "context.md", "figures", "context.json", shares),
)


def _figure(row: dict[str, Any]) -> str:
    value, unit = row["median"], row["unit"]
    if unit == "s" and value < 1:
        value, unit = value * 1000, "ms"
    return f"{value:.3g} {unit}"


def _thousands(tokens: int) -> str:
    return f"{tokens / 1000:.0f}K"


def _share(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    if row["void"]:
        return str(row["void"])
    lost = f", {row['facts_lost']} of {row['facts']} lost" if row["facts_lost"] else ""
    return f"{row['shares']['price']:.2f}{lost}"


def main() -> None:
    """Print the tables, or put them into their pages."""
    for place in PLACES:
        if "--write" in sys.argv[1:]:
            place.put()
        else:
            print(place.text(), end="\n\n")


if __name__ == "__main__":
    main()
