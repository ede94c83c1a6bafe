"""Context windows of hosted models, from the data of the ``genai-prices`` package, read offline."""

from __future__ import annotations

from genai_prices.data_snapshot import get_snapshot


def context_window(provider: str, name: str) -> int | None:
    """Return the window of a model in tokens, None when it is not known."""
    try:
        _, model = get_snapshot().find_provider_model(name, None, provider, None)
    except LookupError:
        return None
    return model.context_window
