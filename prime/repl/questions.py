"""What the host asks of a kernel process over the bridge, each by a number, and the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from prime_kernel.wire import Frame, Inspected, Restored, Saved

#: The frames that answer a question.
Answer = Inspected | Saved | Restored


class Questions:
    """The open questions to one kernel process. ``send`` sends a frame; ``lost`` resolves when the process is gone."""

    def __init__(self, send: Callable[[Frame], None], lost: asyncio.Future[str]) -> None:
        self._send = send
        self._lost = lost
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._count = 0

    async def ask(self, question: Callable[[int], Frame], timeout_s: float) -> Any:
        """Send the frame that ``question`` makes of a number; return its answer, None when there is none in time or the
        process ends."""
        self._count += 1
        number, answer = self._count, asyncio.get_running_loop().create_future()
        self._open[number] = answer
        try:
            self._send(question(number))
            await asyncio.wait({answer, self._lost}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._open[number]
        return answer.result() if answer.done() else None

    def answered(self, answer: Answer) -> None:
        """Take an answer; one that came too late is dropped."""
        waiting = self._open.get(answer.request)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)
