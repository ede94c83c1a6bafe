"""Who hears a reply while it arrives."""

from __future__ import annotations

import logging
from collections.abc import Callable

from prime.messages import Delta

_logger = logging.getLogger(__name__)


class Live:
    """Passes the pieces of replies to listeners. What it says is gone when nobody listens: the log has the whole."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Delta], None]] = []

    def __call__(self, delta: Delta) -> None:
        """Tell every listener. One that raises is reported and disturbs nobody."""
        for listener in tuple(self._listeners):
            try:
                listener(delta)
            except Exception:
                _logger.exception("a listener to the model's reply failed")

    def add(self, listener: Callable[[Delta], None]) -> Callable[[], None]:
        """Add a listener; return how to remove it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)
