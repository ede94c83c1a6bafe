"""``context.names``, in a real session."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from prime import app
from prime.config import Config
from prime.log import Log
from prime.messages import text_of
from prime.namespace import MAX_NAMES, Namespace

pytestmark = pytest.mark.anyio


async def _run(shop: app.Workshop, code: str) -> str:
    ended = await shop.cells.run(code, None, asyncio.Event())
    assert ended.status == "ok", ended.error
    return text_of(ended.shown)


async def _names(shop: app.Workshop, arguments: str = "") -> dict[str, Any]:
    shown = await _run(shop, f"import json as _json\nprint(_json.dumps(await context.names({arguments})))")
    found: dict[str, Any] = json.loads(shown)
    return {**found, "names": {each["name"]: each["kind"] for each in found["names"]}}


async def _unseen() -> None:
    return None


async def test_names_bound_since_an_entry_live_on_in_a_resumed_session(home: Path, tmp_path: Path) -> None:
    async with app.workshop(Config(home=home), tmp_path) as shop:
        await _run(shop, "a = 1")
        since = len(shop.log) - 1
        await _run(shop, "b = 2; c = (i for i in '')")
    async with app.workshop(Config(home=home), tmp_path, session=shop.log.session) as shop:
        await _run(shop, "del a")
        assert await _names(shop, f"since={since}") == {"names": {"b": "int"}, "further": 0, "removed": ["a"]}


async def test_the_names_alive_and_what_cells_have_changed(home: Path, tmp_path: Path) -> None:
    async with app.workshop(Config(home=home), tmp_path) as shop:
        await _run(shop, "a = [1, 2, 3]; b = 'text'; old = 1")
        since = len(shop.log) - 1
        await _run(shop, "b = 2; c = {}; gone = 1")
        await _run(shop, "del old, gone")
        assert await _names(shop) == {
            "names": {"a": "list[3]", "b": "int", "c": "dict[0]"},
            "further": 0,
            "removed": [],
        }
        assert await _names(shop, f"since={since}") == {
            "names": {"b": "int", "c": "dict"},
            "further": 0,
            "removed": ["old"],
        }
        refused = await shop.cells.run("await context.names(since=10_000)", None, asyncio.Event())
        assert refused.error is not None
        assert "there is no entry 10000" in refused.error.message
        await shop.cells.run("import os; os._exit(1)", None, asyncio.Event())
        await _run(shop, "d = 1")
        assert await _names(shop, f"since={since}") == {
            "names": {"d": "int"},
            "further": 0,
            "removed": ["a", "b", "old"],
        }


async def test_the_answer_is_bounded(home: Path, tmp_path: Path) -> None:
    async with app.workshop(Config(home=home), tmp_path) as shop:
        since = len(shop.log) - 1
        await _run(shop, f"for n in range({MAX_NAMES + 50}): globals()[f'name{{n}}'] = n")
        for arguments in ("", f"since={since}"):
            found = await _names(shop, arguments)
            assert len(found["names"]) == MAX_NAMES
            assert found["further"] == 51  # and n


async def test_a_kernel_that_cannot_say_is_an_error(home: Path, tmp_path: Path) -> None:
    async with app.workshop(Config(home=home), tmp_path) as shop:
        log: Log = shop.log
        (names,) = Namespace(log, _unseen).tools()
        with pytest.raises(Exception, match="ask again"):
            await names.run(shop.cells.workspace, {})
