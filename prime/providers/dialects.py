"""The servers that speak OpenAI's Chat Completions, one row each. A new server is a new row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Dialect:
    """Where one Chat Completions server differs from another.

    Attributes:
        name: the provider part of a model name.
        base_url: the address under which ``/chat/completions`` is found; empty when the user has to give it.
        key: the environment variable that holds the key; None when none is needed.
        images: whether its models take image parts, as far as the name tells.
        max_tokens: the field that limits a reply.
        effort: the path of the reasoning effort.
        cached: paths of the number of cached prompt tokens in ``usage``; the first one present counts.
        cache_written: the same for prompt tokens written to the cache.
        send_reasoning: whether reasoning goes back in messages with calls, as ``reasoning_content``: ``no``,
            ``if_any``, or ``always`` (an empty text when there was none). It depends on the message alone, so an
            earlier message never changes and the server's prefix cache holds.
        self_hosted: the server can be asked for the context window of its model.
    """

    name: str
    base_url: str = ""
    key: str | None = None
    images: bool = False
    max_tokens: str = "max_tokens"
    effort: tuple[str, ...] = ("reasoning_effort",)
    cached: tuple[tuple[str, ...], ...] = (("prompt_tokens_details", "cached_tokens"),)
    cache_written: tuple[tuple[str, ...], ...] = ()
    send_reasoning: Literal["no", "if_any", "always"] = "no"
    self_hosted: bool = False


#: Rows by name. ``compatible`` is any other server. The loopback ports are those the servers take by themselves.
DIALECTS = {
    row.name: row
    for row in (
        Dialect(
            "openai",
            "https://api.openai.com/v1",
            key="OPENAI_API_KEY",
            images=True,
            max_tokens="max_completion_tokens",
        ),
        Dialect(
            "deepseek",
            "https://api.deepseek.com",
            key="DEEPSEEK_API_KEY",
            cached=(("prompt_cache_hit_tokens",), ("prompt_tokens_details", "cached_tokens")),
            # Thinking mode answers 400 when a message with calls comes back without the field, even an empty one
            # (https://api-docs.deepseek.com/guides/thinking_mode).
            send_reasoning="always",
        ),
        Dialect(
            "openrouter",
            "https://openrouter.ai/api/v1",
            key="OPENROUTER_API_KEY",
            effort=("reasoning", "effort"),
            cache_written=(("prompt_tokens_details", "cache_write_tokens"),),
        ),
        Dialect("ollama", "http://127.0.0.1:11434/v1", self_hosted=True),
        Dialect("llamacpp", "http://127.0.0.1:8080/v1", send_reasoning="if_any", self_hosted=True),
        Dialect("vllm", "http://127.0.0.1:8000/v1", send_reasoning="if_any", self_hosted=True),
        Dialect("lmstudio", "http://127.0.0.1:1234/v1", self_hosted=True),
        Dialect(
            "compatible",
            key="PRIME_REPL_API_KEY",
            cached=(("prompt_tokens_details", "cached_tokens"), ("prompt_cache_hit_tokens",)),
            send_reasoning="if_any",
            self_hosted=True,
        ),
    )
}
