"""What the host has to tell the model of something that went on beside its cells: a job, another agent.

A notice waits in the inbox like words of a person and is claimed once, also when processes die in between; what is
claimed is marked as the host's. Whoever appends one here needs no agent: the agent of the session hears of it.
"""

from __future__ import annotations

import asyncio
import secrets

from prime import events as ev
from prime.log import Log
from prime.messages import TextPart, plain


class Notices:
    """Gives notices to the model of one session, and takes back those that have become old news."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def give(self, text: str, *, source: str, wake: bool = True) -> str:
        """Queue a notice, on the disk before this returns, and return its input's id.

        The next step of the running turn claims it. Between turns it starts one, with ``wake`` and as far as
        :attr:`prime.inbox.Inbox.wakes_left` allows; else it is claimed with the next words of a person. ``text`` stays
        in the window until the window is switched: the caller keeps it short. ``source`` names what it is about.
        """
        queued = notice(text, source=source, wake=wake)
        self._log.append(queued, durable=True)
        return queued.input_id

    async def taken(self, source: str) -> None:
        """Wait until no notice of a source is pending."""
        news = asyncio.Event()
        stop = self._log.observe(lambda entry: news.set())
        try:
            while self._pending(source):
                news.clear()
                await news.wait()
        finally:
            stop()

    def withdraw(self, source: str) -> bool:
        """Take back the notices of a source that are not claimed yet, because the model has read what they would say;
        return whether there were any."""
        old = [ev.InputWithdrawn(input_id=item.input_id) for item in self._pending(source)]
        if old:
            self._log.append(*old, durable=True)
        return bool(old)

    def _pending(self, source: str) -> list[ev.InputQueued]:
        pending = self._log.state.inbox.pending
        return [item for item in pending if item.kind == "notice" and item.source == source]


def notice(text: str, *, source: str, wake: bool = True) -> ev.InputQueued:
    """Return the event of :meth:`Notices.give`, for who appends it together with what it tells of."""
    parts = (TextPart(text=plain(text)),)
    return ev.InputQueued(input_id=secrets.token_hex(8), kind="notice", parts=parts, source=source, wake=wake)
