"""The command line as a person runs it: a process of its own, with its own home and nothing of this one's settings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

COMMAND = [sys.executable, "-m", "prime"]


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return what a command sees: no keys, no configuration but the data directory ``home``."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), "PRIME_REPL_HOME": str(home), "COLUMNS": "80", **more}


def prime(home: Path, *arguments: str | Path, given: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the folder above ``home`` to its end; ``given`` is its standard input."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=home.parent,
        env=environment(home, **more),
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def as_in_a_terminal() -> None:
    """Between fork and exec: Ctrl-C works, also when the tests themselves run in a shell's background, which ignores it
    and hands that down."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def script(folder: Path, *replies: dict[str, Any]) -> str:
    """Write a scripted model into ``folder`` and return its name."""
    file = folder / "script.yaml"
    file.write_text(yaml.safe_dump({"replies": list(replies)}))
    return f"scripted/{file}"


def objects(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects of a text, one a line."""
    return [json.loads(line) for line in text.splitlines()]
