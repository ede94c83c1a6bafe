"""A model that gives a recorded session's replies again, in order."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence

from prime.messages import Delta, Reply, Request
from prime.providers.failures import failure
from prime.providers.scripted import stream

#: Characters of one delta; a recording keeps whole replies, not the pieces they came in.
_CHUNK = 64


class ReplayProvider:
    """A :class:`~prime.providers.base.Provider` that answers request N with recorded reply N and reaches no network.

    A query, which is a request that offers no tools, is answered as the same one was; those of a batch come in any
    order.
    ``requests_left`` is the number of recorded replies nobody asked for yet: 0 when a session was replayed whole.
    """

    def __init__(
        self,
        model: str,
        replies: Sequence[Reply],
        queries: Sequence[tuple[Request, Reply]] = (),
        *,
        context_window: int | None = None,
        images: bool = True,
    ) -> None:
        self.model = model
        self.context_window = context_window
        self.images = images
        self._replies = tuple(replies)
        self._answered = 0
        self._queries: dict[object, deque[Reply]] = defaultdict(deque)
        for request, reply in queries:
            self._queries[_asked(request)].append(reply)

    @property
    def requests_left(self) -> int:
        """How many recorded replies are left."""
        return len(self._replies) - self._answered

    async def reply(self, request: Request, on_delta: Callable[[Delta], None]) -> Reply:
        """Give the next recorded reply.

        Raises:
            ProviderError: ``bad_request`` when there are more requests than recorded replies, or no such query.
        """
        reply = self._next() if request.header.tools else self._query(request)
        await stream(reply.parts, on_delta, chunk=_CHUNK)
        return reply

    async def close(self) -> None:
        """Do nothing: a recording holds no resources."""

    def _query(self, request: Request) -> Reply:
        recorded = self._queries[_asked(request)]
        if not recorded:
            raise failure("bad_request", f"{self.model}: the recording has no answer, or no further one, to this query")
        return recorded.popleft()

    def _next(self) -> Reply:
        if not self.requests_left:
            raise failure(
                "bad_request",
                f"{self.model}: the recording has {len(self._replies)} replies and one more was asked for; "
                "what runs now is not what was recorded",
            )
        reply = self._replies[self._answered]
        self._answered += 1
        return reply


def _asked(request: Request) -> object:
    """Return what makes a query the same one: all but the model's name, which is that of the recording."""
    return request.header.system, request.header.parameters, request.messages
