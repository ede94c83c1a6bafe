"""How a model request fails: the codes of :class:`ProviderError`, and which of them are worth another try."""

from __future__ import annotations

from prime.errors import ProviderError

#: Codes after which the same request may succeed. The rest fail again until somebody changes the request or the key.
RETRYABLE = frozenset({"transport", "timeout", "rate_limit", "server", "empty", "malformed"})
#: Every code, see :class:`ProviderError` for what each says.
CODES = RETRYABLE | {"auth", "bad_request", "overflow"}


def failure(code: str, message: str, *, retry_after_s: float | None = None, status: int | None = None) -> ProviderError:
    """Return the error for ``code``; whether it is retryable follows from the code alone."""
    return ProviderError(code, message, retryable=code in RETRYABLE, retry_after_s=retry_after_s, status=status)
