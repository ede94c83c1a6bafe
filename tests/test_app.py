"""What the composition root connects."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import prime
from prime import app
from prime.config import Config
from prime.messages import text_of
from prime.tools.base import waiting

pytestmark = pytest.mark.anyio


@waiting
@prime.tool(parallel=True, effects=False)
async def patient() -> int:
    """Wait longer than a cell may run."""
    await asyncio.sleep(1)
    return 7


async def test_the_deadline_of_cells_does_not_count_tools_that_wait(home: Path, tmp_path: Path) -> None:
    async with app.workshop(Config(home=home, cell_timeout_s=0.5), tmp_path, tools=[patient]) as shop:
        ended = await shop.cells.run("await tools.patient()", None, asyncio.Event())
        assert (ended.status, text_of(ended.shown)) == ("ok", "7")
        ended = await shop.cells.run("await asyncio.sleep(60)", None, asyncio.Event())
        assert ended.status == "timeout"
