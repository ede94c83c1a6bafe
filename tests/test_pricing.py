"""What tokens cost, and that an unknown price is never 0."""

from __future__ import annotations

from decimal import Decimal

from prime import pricing
from prime.messages import Usage

MILLION = Usage(input=1_000_000)


def test_a_known_price_counts_every_bucket() -> None:
    whole = pricing.cost("openai/gpt-4o", MILLION)
    cached = pricing.cost("openai/gpt-4o", Usage(cache_read=1_000_000))
    said = pricing.cost("openai/gpt-4o", Usage(output=1_000_000))
    assert whole is not None
    assert cached is not None
    assert said is not None
    assert 0 < cached < whole < said


def test_an_unknown_price_is_unknown() -> None:
    assert pricing.cost("openai/nobody-knows-this-one", MILLION) is None
    assert pricing.cost("scripted/replies", MILLION) is None
    assert pricing.cost("local/small", MILLION) is None
    assert pricing.cost("nothing", MILLION) is None


def test_one_unknown_price_makes_the_total_unknown() -> None:
    known = pricing.cost("openai/gpt-4o", MILLION)
    assert pricing.total({}) == Decimal(0)
    assert pricing.total({"openai/gpt-4o": MILLION}) == known
    assert pricing.total({"openai/gpt-4o": MILLION, "local/small": MILLION}) is None


def test_a_price_for_people_says_when_it_is_unknown() -> None:
    assert pricing.shown(None) == "unknown"
    assert pricing.shown(Decimal(0)) == "$0"
    assert pricing.shown(Decimal("0.12346")) == "$0.1235"
