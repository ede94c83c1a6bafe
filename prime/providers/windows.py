"""Context windows of hosted models, from the data of the ``genai-prices`` package, read offline."""

from __future__ import annotations


def context_window(provider: str, name: str) -> int | None:
    """Return the window of a model in tokens, None when it is not known."""
    # the data takes 0.3 s to load, and only hosted models are in it
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415

    try:
        _, model = get_snapshot().find_provider_model(name, None, provider, None)
    except LookupError:
        return None
    return model.context_window
