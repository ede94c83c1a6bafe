"""Why a kernel process ended, in words for the model: from its exit code, its last words and the count of OOM kills."""

from __future__ import annotations

import re
import signal
from pathlib import Path

#: Characters of its last words that are told, and lines.
_WORDS, _LINES = 2_000, 20

#: Where Linux counts the processes that it has killed for want of memory, in whatever control group (since 4.13).
_COUNTERS = Path("/proc/vmstat")

_CELL_FRAME = '  File "<cell '
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[^\n\t -~\u00a0-\U0010ffff]")


def cause(code: int | None, printed: str, *, out_of_memory: bool = False) -> str:
    """Return how a process ended.

    Args:
        code: its exit code, negative for the signal that killed it; None when nobody can tell.
        printed: the end of what the process itself printed, not its cells.
        out_of_memory: whether the system has killed some process for want of memory meanwhile.
    """
    if code is None:
        how = "the kernel process is gone; its exit code is not known"
    elif code >= 0:
        how = f"the kernel process ended by itself with exit code {code}"
    else:
        how = f"the kernel process was killed by {_name(-code)}"
    if code == -signal.SIGKILL and out_of_memory:
        how += ": probably out of memory, for which the system has just killed a process; load less at a time"
    words = last_words(printed)
    return f"{how}; its last words:\n{words}" if words else how


def last_words(printed: str) -> str:
    """Return the end of what a process printed: of a crash, as Python reports it, no more than the line that names it
    and the frames up to the cell's own."""
    lines = [line.rstrip() for line in _CONTROL.sub("", printed).splitlines()]
    lines = [line for line in lines if line and not line.startswith("Extension modules:")]
    fatal = [number for number, line in enumerate(lines) if line.startswith("Fatal Python error:")]
    if fatal:
        lines = lines[fatal[-1] :]
        frames = [number for number, line in enumerate(lines) if line.startswith(_CELL_FRAME)]
        lines = lines[: frames[-1] + 1] if frames else lines
        if len(lines) > _LINES:  # the innermost frames say what crashed, the outermost ones in which line of the cell
            lines = [*lines[: _LINES - 4], "  ...", *lines[-3:]]
    return "\n".join(lines[-_LINES:])[-_WORDS:].strip("\n")


def oom_kills() -> int:
    """Return how many processes the system has killed for want of memory; 0 where it does not count them."""
    try:
        counters = _COUNTERS.read_text()
    except OSError:  # not Linux, or hidden: then nothing is known, and nothing is claimed
        return 0
    found = re.search(r"^oom_kill (\d+)$", counters, re.MULTILINE)
    return int(found[1]) if found else 0


def _name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
