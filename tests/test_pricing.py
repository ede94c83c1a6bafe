"""What tokens cost, and that an unknown price is never 0."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

from prime.messages import Usage
from prime.pricing import PUBLISHED, SHEETS, Price, Prices, Spent, shown

MILLION = Usage(input=1_000_000)


def test_a_known_price_counts_every_bucket() -> None:
    whole = PUBLISHED.cost("openai/gpt-4o", MILLION)
    cached = PUBLISHED.cost("openai/gpt-4o", Usage(cache_read=1_000_000))
    said = PUBLISHED.cost("openai/gpt-4o", Usage(output=1_000_000))
    assert whole is not None
    assert cached is not None
    assert said is not None
    assert 0 < cached < whole < said


def test_an_unknown_price_is_unknown() -> None:
    assert PUBLISHED.cost("openai/nobody-knows-this-one", MILLION) is None
    assert PUBLISHED.cost("scripted/replies", MILLION) is None
    assert PUBLISHED.cost("local/small", MILLION) is None
    assert PUBLISHED.cost("nothing", MILLION) is None


def test_one_unknown_price_makes_the_total_unknown() -> None:
    known = PUBLISHED.cost("openai/gpt-4o", MILLION)
    assert PUBLISHED.total({}) == Decimal(0)
    assert PUBLISHED.total({"openai/gpt-4o": MILLION}) == known
    assert PUBLISHED.total({"openai/gpt-4o": MILLION, "local/small": MILLION}) is None


def test_a_price_for_people_says_when_it_is_unknown() -> None:
    assert shown(None) == "unknown"
    assert shown(Decimal(0)) == "$0"
    assert shown(Decimal("0.12346")) == "$0.1235"


def test_a_price_of_ones_own_comes_first_and_the_nearest_name_wins() -> None:
    def price(cents: int) -> Price:
        return Price(input=Decimal(cents), output=Decimal(0))

    prices = Prices({"local/*": price(1), "local/small*": price(2), "local/small": price(3), "openai/gpt-4o": price(4)})
    cost = {name: prices.cost(name, MILLION) for name in ("local/big", "local/small-2", "local/small", "openai/gpt-4o")}
    assert cost == {"local/big": 1, "local/small-2": 2, "local/small": 3, "openai/gpt-4o": 4}
    assert prices.cost("scripted/x", MILLION) is None
    assert prices.cost("openai/gpt-4.1", MILLION) == PUBLISHED.cost("openai/gpt-4.1", MILLION)


def test_what_has_no_price_of_its_own_costs_as_much_as_input() -> None:
    usage = Usage(input=1_000_000, cache_read=2_000_000, cache_write=4_000_000, output=8_000_000)
    assert Price(input=Decimal(1), output=Decimal(10)).cost(usage) == 87
    dear = Price(input=Decimal(1), cached_input=Decimal("0.5"), cache_write=Decimal(2), output=Decimal(10))
    assert dear.cost(usage) == 90


def test_replies_are_priced_each_at_its_hour() -> None:
    """DeepSeek's price of 2026 depends on the hour: off peak is 16:30 to 00:30 UTC."""
    night, day = (int(datetime(2026, 11, 30, hour, tzinfo=UTC).timestamp() * 1000) for hour in (18, 3))
    model = "deepseek/deepseek-flash"
    cheap, dear = PUBLISHED.cost(model, MILLION, night), PUBLISHED.cost(model, MILLION, day)
    assert cheap is not None
    assert dear is not None
    assert cheap < dear
    assert PUBLISHED.spent([Spent(night, model, MILLION), Spent(day, model, MILLION)]) == cheap + dear
    assert PUBLISHED.spent([Spent(night, model, MILLION), Spent(day, "local/x", MILLION)]) is None


def test_every_sheet_says_when_and_where_it_was_looked_up() -> None:
    assert list(SHEETS) == ["flash", "pro", "no_cache", "openai", "anthropic"]
    for sheet in SHEETS.values():
        assert date(2026, 1, 1) <= sheet.date <= date.today()
        assert "." in sheet.source
        assert sheet.about
    assert SHEETS["no_cache"].cost(Usage(cache_read=1_000_000)) == SHEETS["flash"].input
