"""How a model request fails: from a server's answer to a :class:`ProviderError`. Pure; nothing is retried here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from prime.errors import ProviderError

#: Codes after which the same request may succeed. The rest fail again until somebody changes the request or the key.
RETRYABLE = frozenset({"transport", "timeout", "rate_limit", "server", "empty", "malformed"})
#: Every code, see :class:`ProviderError` for what each says.
CODES = RETRYABLE | {"auth", "bad_request", "overflow"}

#: How servers say that a prompt is larger than the window. The first alternatives are codes, the rest wording.
_OVERFLOW = re.compile(
    r"context_length_exceeded"  # OpenAI, Groq
    r"|exceed_context_size_error"  # llama.cpp, code
    r"|request_too_large"  # Anthropic, code of 413
    r"|maximum context length"  # OpenAI, DeepSeek, vLLM, OpenRouter
    r"|maximum model length"  # vLLM
    r"|exceeds? (?:the )?(?:available |model'?s? )?context (?:size|length|window|limit)"  # llama.cpp, OpenAI, Ollama
    r"|context size has been exceeded"  # llama.cpp, while generating
    r"|prompt is too long"  # Anthropic
    r"|input length and `?max_tokens`? exceed context limit"  # Anthropic
    r"|input token count .{0,40}exceeds the maximum"  # Gemini through OpenRouter
    r"|input is too long for requested model"  # Bedrock through OpenRouter
    r"|reduce the length of the (?:messages|prompt)",  # OpenAI, vLLM, Groq
    re.IGNORECASE,
)
#: llama.cpp: the model wrote a call that the template's grammar cannot parse. Another sample may be well-formed.
_BAD_SAMPLE = re.compile(r"does not match the expected \S+ format", re.IGNORECASE)
#: Codes that come with status 429 though waiting does not help.
_NO_CREDIT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
#: Errors that arrive inside a stream have a type instead of a status (Anthropic's table of error types).
_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "exceed_context_size_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "server_error": 500,
    "overloaded_error": 529,
}


def failure(code: str, message: str, *, retry_after_s: float | None = None, status: int | None = None) -> ProviderError:
    """Return the error for ``code``; whether it is retryable follows from the code alone."""
    return ProviderError(code, message, retryable=code in RETRYABLE, retry_after_s=retry_after_s, status=status)


def from_status(status: int, body: str, headers: Mapping[str, str], *, who: str, now: datetime) -> ProviderError:
    """Return the error for an HTTP answer that is not a success.

    ``who`` begins the message and names the model; the server's own words follow. ``headers`` has lower-case names.
    ``now`` is the time the answer came, for a ``Retry-After`` that is a date.
    """
    words, marks = _words(body)
    code = _code(status, f"{marks} {words or body}", marks)
    hint = {
        "auth": "; check the key",
        "overflow": "; the request is larger than the model's window",
    }.get(code, "")
    return failure(
        code,
        f"{who}: HTTP {status}: {_one_line(words or body) or 'no message'}{hint}",
        retry_after_s=retry_after(headers, now),
        status=status,
    )


def from_stream(error: Any, *, who: str) -> ProviderError:
    """Return the error for an ``error`` object inside a stream that began well."""
    words, marks = _words(json.dumps({"error": error}))
    known = (int(mark) if mark.isdecimal() else _STATUS_OF_TYPE.get(mark) for mark in marks.split())
    status = next((number for number in known if number is not None and 400 <= number < 600), 500)
    code = _code(status, f"{marks} {words}", marks)
    return failure(code, f"{who}: error in the stream: {_one_line(words) or 'no message'}", status=status)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds a server asks to wait, never below 0, or None.

    Reads ``retry-after-ms`` (OpenAI), and ``retry-after`` as seconds or as an HTTP date (RFC 9110, 10.2.3). A value
    that is neither counts as absent.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "").strip()
    seconds = _number(value)
    if seconds is not None:
        return seconds
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())


def _code(status: int, text: str, marks: str) -> str:
    if _BAD_SAMPLE.search(text):
        return "malformed"
    if status in (401, 403) or _NO_CREDIT & set(marks.split()):
        return "auth"
    if status == 429:
        return "rate_limit"
    if status == 413 or _OVERFLOW.search(text):
        return "overflow"
    if status == 408:
        return "timeout"
    if status == 409 or status >= 500:
        return "server"
    return "bad_request"


def _words(body: str) -> tuple[str, str]:
    """Return the server's message and its machine-readable marks (type, code), separated by spaces."""
    try:
        data = json.loads(body)
    except ValueError:
        return "", ""
    error = data.get("error", data) if isinstance(data, dict) else data
    if isinstance(error, str):
        return error, ""
    if not isinstance(error, dict):
        return "", ""
    words = error.get("message") or error.get("detail") or ""
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):
        words = f"{words}: {metadata['raw']}"  # OpenRouter puts the words of the provider behind it here.
    marks = [str(error[key]) for key in ("code", "type") if isinstance(error.get(key), (str, int))]
    return str(words), " ".join(marks)


def _one_line(text: str, limit: int = 400) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\s*\d+(\.\d+)?\s*", text) else None
