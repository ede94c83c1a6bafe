"""The README's table of figures, made from the committed result: ``python -m bench.figures [--write]``.

``tests/test_docs.py`` fails when the README holds anything else.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "bench" / "results" / "kernel.json"
README = ROOT / "README.md"

#: The rows of the table; a result holds more.
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
_PLACE = re.compile(r"(<!-- figures -->\n).*?(\n<!-- /figures -->)", re.DOTALL)


def table(result: dict[str, Any]) -> str:
    """Return the Markdown table of a result of ``bench.kernel``."""
    rows = result["rows"]
    lines = [f"| | {' | '.join(_TITLES[subject] for subject in _SUBJECTS)} |", "|---|" + "---:|" * len(_SUBJECTS)]
    for measure in _MEASURES:
        found = {row["subject"]: row for row in rows if row["measure"] == measure}
        cells = [_figure(found[subject]) if subject in found else "" for subject in _SUBJECTS]
        lines.append(f"| {measure} | {' | '.join(cells)} |")
    return "\n".join(lines)


def placed(readme: str, figures: str) -> str:
    """Return the README with ``figures`` in their place."""
    return _PLACE.sub(lambda match: match[1] + figures + match[2], readme)


def _figure(row: dict[str, Any]) -> str:
    value, unit = row["median"], row["unit"]
    if unit == "s" and value < 1:
        value, unit = value * 1000, "ms"
    return f"{value:.3g} {unit}"


def main() -> None:
    """Print the table, or put it into the README."""
    figures = table(json.loads(RESULT.read_text()))
    if "--write" in sys.argv[1:]:
        README.write_text(placed(README.read_text(), figures))
    else:
        print(figures)


if __name__ == "__main__":
    main()
