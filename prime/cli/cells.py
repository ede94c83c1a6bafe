"""Cells without a model."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

from prime import app
from prime import events as ev
from prime.cli.interrupts import on_interrupt
from prime.config import Config
from prime.messages import text_of
from prime.screen import collapsed


@dataclass(frozen=True, slots=True)
class Job:
    """Which cells to run, and where."""

    cells: tuple[str, ...]
    session: str | None
    cwd: Path | None
    as_json: bool
    keep_going: bool


async def run(config: Config, job: Job) -> int:
    """Run the cells in order, print what each shows, and return the exit code: 130 after Ctrl-C."""
    failed, cancel = False, asyncio.Event()
    async with app.workshop(config, job.cwd, session=job.session) as shop:
        with on_interrupt(cancel.set):
            for code in job.cells:
                ended = await shop.cells.run(code, None, cancel)
                shown = text_of(ended.shown)
                if job.as_json:
                    print(_json(ended, shown), flush=True)
                elif shown:
                    print(collapsed(shown), flush=True)
                failed |= ended.status != "ok"
                if cancel.is_set() or (failed and not job.keep_going):
                    break
    return 130 if cancel.is_set() else int(failed)


def _json(ended: ev.CellEnded, shown: str) -> str:
    fields = {
        "status": ended.status,
        "shown": shown,
        "generation": ended.generation,
        "duration_s": ended.duration_s,
        "calls": ended.calls,
    }
    return json.dumps(fields, ensure_ascii=False)
