"""The form of a benchmark's result: machine, versions, rows, raw samples; as JSON and as a table."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

PACKAGES = ("prime-repl", "ipykernel", "ipython", "jupyter_client", "pyzmq", "pydantic", "httpx")


@dataclass(frozen=True)
class Row:
    """One figure of one subject. ``samples`` are the raw measurements, in ``unit``."""

    measure: str
    subject: str
    median: float
    p95: float
    samples: list[float]
    unit: str


def row(measure: str, subject: str, samples: Sequence[float], unit: str) -> Row:
    """Return the row of raw ``samples``."""
    ordered = sorted(samples)
    p95 = ordered[min(round(0.95 * (len(ordered) - 1)), len(ordered) - 1)]
    return Row(measure, subject, statistics.median(ordered), p95, [round(each, 6) for each in samples], unit)


def document(rows: Sequence[Any], **more: Any) -> dict[str, Any]:
    """Return the whole result: how it was made, on what, with which versions, and its rows."""
    return {
        "command": " ".join(["python", "-m", *(_module(), *sys.argv[1:])]),
        "date": time.strftime("%Y-%m-%d"),
        "commit": _commit(),
        "machine": {
            "system": platform.platform(terse=True),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "versions": {name: _version(name) for name in PACKAGES},
        **more,
        "rows": [asdict(each) if not isinstance(each, dict) else each for each in rows],
    }


def write(path: Path | None, result: dict[str, Any]) -> None:
    """Write the result as JSON when a path is given."""
    if path is not None:
        path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def table(rows: Sequence[Row]) -> None:
    """Print rows, one measure after the other; ratios are against the first subject of a measure."""
    shown = Table("measure", "subject", "median", "p95", "unit", "n", "ratio to first")
    first: dict[str, float] = {}
    for each in rows:
        base = first.setdefault(each.measure, each.median)
        ratio = f"{each.median / base:.2f}" if base else "-"
        shown.add_row(
            each.measure,
            each.subject,
            f"{each.median:.4g}",
            f"{each.p95:.4g}",
            each.unit,
            str(len(each.samples)),
            ratio,
        )
    Console().print(shown)


def _module() -> str:
    main = sys.modules["__main__"].__spec__
    return main.name if main is not None else Path(sys.argv[0]).name


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
