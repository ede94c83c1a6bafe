"""A model that gives a recorded session's replies again, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prime.messages import Delta, Reply, Request
from prime.providers.failures import failure
from prime.providers.scripted import stream

#: Characters of one delta; a recording keeps whole replies, not the pieces they came in.
_CHUNK = 64


class ReplayProvider:
    """A :class:`~prime.providers.base.Provider` that answers request N with recorded reply N and reaches no network.

    ``requests_left`` is the number of recorded replies nobody asked for yet: 0 when a session was replayed whole.
    """

    def __init__(
        self, model: str, replies: Sequence[Reply], *, context_window: int | None = None, images: bool = True
    ) -> None:
        self.model = model
        self.context_window = context_window
        self.images = images
        self._replies = tuple(replies)
        self._answered = 0

    @property
    def requests_left(self) -> int:
        """How many recorded replies are left."""
        return len(self._replies) - self._answered

    async def reply(self, request: Request, on_delta: Callable[[Delta], None]) -> Reply:
        """Give the next recorded reply.

        Raises:
            ProviderError: ``bad_request`` when there are more requests than recorded replies.
        """
        del request
        if not self.requests_left:
            raise failure(
                "bad_request",
                f"{self.model}: the recording has {len(self._replies)} replies and one more was asked for; "
                "what runs now is not what was recorded",
            )
        reply = self._replies[self._answered]
        self._answered += 1
        await stream(reply.parts, on_delta, chunk=_CHUNK)
        return reply

    async def close(self) -> None:
        """Do nothing: a recording holds no resources."""
