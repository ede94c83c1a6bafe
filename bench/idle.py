"""Print the bytes of memory (RSS) that an idle host and its kernel take: ``python -m bench.idle stock|prime-repl``.

A process of its own for :mod:`bench.kernel`, because what other subjects import would count too.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import psutil

from bench.subjects import ours, raw


async def idle(subject: str) -> int:
    """Start a kernel, run a cell, and return the memory of this process and all below it."""
    with tempfile.TemporaryDirectory() as home:
        async with ours(Path(home)) if subject == "prime-repl" else raw(tuned=False) as kernel:
            await kernel.run("x = 1")
            host = psutil.Process()
            return sum(process.memory_info().rss for process in (host, *host.children(recursive=True)))


if __name__ == "__main__":
    print(asyncio.run(idle(sys.argv[1])))
