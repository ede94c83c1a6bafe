"""What tokens cost. Prices are data of the ``genai-prices`` package, read offline. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from prime.messages import Usage

#: Providers that bill nobody: what their tokens cost is not a price, and it is unknown.
_UNBILLED = ("llamacpp", "lmstudio", "local", "ollama", "scripted", "vllm")


def cost(model: str, usage: Usage) -> Decimal | None:
    """Return the price in US dollars of ``usage`` by ``model`` (``PROVIDER/NAME``), None when no price is known."""
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
    try:
        return genai_prices.calc_price(counted, model_ref=name, provider_id=provider).total_price
    except LookupError:
        return None


def total(usage: Mapping[str, Usage]) -> Decimal | None:
    """Return the price of the usage of several models, None as soon as one of them has no known price."""
    costs = [cost(model, used) for model, used in usage.items()]
    if any(each is None for each in costs):
        return None
    return sum((each for each in costs if each is not None), Decimal(0))


def shown(price: Decimal | None) -> str:
    """Return a price for people; an unknown one says so and is never 0."""
    if price is None:
        return "unknown"
    return f"${price:.4f}" if price else "$0"
