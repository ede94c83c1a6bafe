"""What tokens cost. Prices are data of the ``genai-prices`` package, read offline. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from genai_prices import Usage as PricedUsage
from genai_prices import calc_price

from prime.messages import Usage


def cost(model: str, usage: Usage) -> Decimal | None:
    """Return the price in US dollars of ``usage`` by ``model`` (``PROVIDER/NAME``), None when no price is known."""
    provider, _, name = model.partition("/")
    counted = PricedUsage(
        input_tokens=usage.prompt,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_write,
        output_tokens=usage.output,
    )
    try:
        return calc_price(counted, model_ref=name, provider_id=provider).total_price
    except LookupError:
        return None


def total(usage: Mapping[str, Usage]) -> Decimal | None:
    """Return the price of the usage of several models, None as soon as one of them has no known price."""
    costs = [cost(model, used) for model, used in usage.items()]
    if any(each is None for each in costs):
        return None
    return sum((each for each in costs if each is not None), Decimal(0))
