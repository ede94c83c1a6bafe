"""What tokens cost: by the user's own table, by the price data of the ``genai-prices`` package, read offline, or by a
sheet to compare by. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from prime.messages import Usage

#: Providers that bill nobody: what their tokens cost is not a price, and it is unknown.
_UNBILLED = ("llamacpp", "lmstudio", "local", "ollama", "scripted", "vllm")


class Price(BaseModel):
    """US dollars for a million tokens. What is cached, and what is written to the cache, costs as much as other input
    unless it has a price of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: Decimal = Field(ge=0)
    cached_input: Decimal | None = Field(None, ge=0)
    cache_write: Decimal | None = Field(None, ge=0)
    output: Decimal = Field(ge=0)

    def cost(self, usage: Usage) -> Decimal:
        """Return US dollars."""
        cached = self.input if self.cached_input is None else self.cached_input
        write = self.input if self.cache_write is None else self.cache_write
        prompt = usage.input * self.input + usage.cache_read * cached + usage.cache_write * write
        return (prompt + usage.output * self.output) / 1_000_000


class Sheet(Price):
    """Prices of ``sheets.toml`` to compare sessions by. ``date`` is the day on which ``source`` gave them."""

    name: str
    about: str
    date: date
    source: str


def _sheets() -> Mapping[str, Sheet]:
    found = tomllib.loads(files("prime").joinpath("sheets.toml").read_text(), parse_float=Decimal)["sheet"]
    return {each["name"]: Sheet.model_validate(each) for each in found}


#: The sheets by name.
SHEETS = _sheets()


class Spent(NamedTuple):
    """The tokens of one reply: when, in milliseconds since the epoch, and by which model, in full.

    ``estimated``: the provider did not report them.
    """

    at: int
    model: str
    usage: Usage
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of models. ``own`` are the user's, by full name (``PROVIDER/NAME``) or by a pattern with ``*``; they come
    first, a whole name before a pattern and a longer pattern before a shorter one."""

    own: Mapping[str, Price] = field(default_factory=dict)

    def cost(self, model: str, usage: Usage, at: int | None = None) -> Decimal | None:
        """Return the price in US dollars of ``usage`` by ``model``, None when no price is known.

        ``at``: when it was used, in milliseconds since the epoch, now by default; some prices depend on the hour.
        """
        if (own := self._own(model)) is not None:
            return own.cost(usage)
        provider, _, name = model.partition("/")
        if provider in _UNBILLED:
            return None
        # the price data takes 0.3 s to load, and a command that asks for no price should not wait for it
        import genai_prices  # noqa: PLC0415

        counted = genai_prices.Usage(
            input_tokens=usage.prompt,
            cache_read_tokens=usage.cache_read,
            cache_write_tokens=usage.cache_write,
            output_tokens=usage.output,
        )
        when = None if at is None else datetime.fromtimestamp(at / 1000, UTC)
        try:
            found = genai_prices.calc_price(counted, name, provider_id=provider, genai_request_timestamp=when)
        except LookupError:
            return None
        return found.total_price

    def total(self, usage: Mapping[str, Usage]) -> Decimal | None:
        """Return the price now of the usage of several models, None as soon as one of them has no known price."""
        return _sum(self.cost(model, used) for model, used in usage.items())

    def spent(self, replies: Iterable[Spent]) -> Decimal | None:
        """Return the price of replies, each at its time, None as soon as one of them has no known price."""
        return _sum(self.cost(each.model, each.usage, each.at) for each in replies)

    def _own(self, model: str) -> Price | None:
        fitting = [name for name in self.own if name == model or fnmatchcase(model, name)]
        best = max(fitting, key=lambda name: (name == model, len(name)), default=None)
        return self.own[best] if best is not None else None


#: Without a table of the user's.
PUBLISHED = Prices()


def shown(price: Decimal | None) -> str:
    """Return a price for people; an unknown one says so and is never 0."""
    if price is None:
        return "unknown"
    return f"${price:.4f}" if price else "$0"


def _sum(costs: Iterable[Decimal | None]) -> Decimal | None:
    total = Decimal(0)
    for each in costs:
        if each is None:
            return None
        total += each
    return total
