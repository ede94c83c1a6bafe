"""What the loop needs from a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from prime.messages import Delta, Reply, Request


class Provider(Protocol):
    """One model behind one dialect. Encoding and decoding are pure; only ``http.py`` touches the network.

    Attributes:
        model: the full name, ``PROVIDER/NAME``, as it is logged in the header.
        context_window: tokens the model can take, None when unknown.
        images: whether the model accepts image parts.
    """

    model: str
    context_window: int | None
    images: bool

    async def reply(self, request: Request, on_delta: Callable[[Delta], None]) -> Reply:
        """Send one request and return the whole reply, calling ``on_delta`` for each piece as it arrives.

        Cancelling the task closes the connection at once; nothing is retried here.

        Raises:
            ProviderError: with a code that says what went wrong and whether trying again makes sense.
        """
        ...

    async def close(self) -> None:
        """Close connections and end processes that belong to this model. Idempotent."""
        ...
