"""Looks for a model server that already runs on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from prime.providers.dialects import DIALECTS
from prime.providers.http import get_json, window_of

#: Where servers listen on loopback by themselves: address by provider.
USUAL = {name: row.base_url for name, row in DIALECTS.items() if row.self_hosted and row.base_url}


@dataclass(frozen=True, slots=True)
class Found:
    """A server that answered.

    Attributes:
        model: full name of its first model, ``PROVIDER/NAME``, as :func:`prime.providers.registry.resolve` takes it.
        models: full names of all its models.
        base_url: where it answers.
        context_window: tokens of the first model, where the server says.
    """

    model: str
    models: tuple[str, ...]
    base_url: str
    context_window: int | None


async def probe(addresses: Mapping[str, str] = USUAL, *, timeout_s: float = 0.5) -> tuple[Found, ...]:
    """Ask every address at the same time for its models; whoever is not there within ``timeout_s`` seconds is not.

    Returns what was found in the order of ``addresses``. Only an answer in the form of ``/v1/models`` counts: other
    programs use these ports too.
    """
    async with httpx.AsyncClient(trust_env=False, timeout=timeout_s) as client:
        found = await asyncio.gather(*(_ask(client, name, url, timeout_s) for name, url in addresses.items()))
    return tuple(server for server in found if server is not None)


async def _ask(client: httpx.AsyncClient, provider: str, base_url: str, timeout_s: float) -> Found | None:
    rows = (await get_json(client, f"{base_url}/models", timeout_s)).get("data")
    if not isinstance(rows, list):
        return None
    names = [row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]
    if not names:
        return None
    return Found(
        model=f"{provider}/{names[0]}",
        models=tuple(f"{provider}/{name}" for name in names),
        base_url=base_url,
        context_window=await window_of(client, base_url, names[0]),
    )
