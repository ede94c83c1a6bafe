"""The host's record of a running cell: the queue of its signals and the three messages that end it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Literal

from prime_kernel.wire import CALL_KEY, CellDone

from prime.repl.signals import Ended, Failed, HostCall, Image, Lost, Output, Signal, Status

#: Bytes charged for a piece of output besides its text, so that many empty ones are bounded too.
_OVERHEAD = 64

#: Undelivered host calls at which reading from the kernel pauses, and at which it goes on.
_PAUSE, _RESUME = 512, 128

_IMAGES = ("image/png", "image/jpeg")
_SVG = "image/svg+xml"

#: What a terminal calls ``clear_output()``.
_CLEAR = "\x1b[H\x1b[2J"

#: Lines of a display that a later state of it replaces.
_REPLACED = 40


class Cell:
    """A cell between its submission and its end.

    Signals are queued here, at most ``limit`` bytes of output (what is beyond is counted), and taken by
    :meth:`signals`.

    Attributes:
        stop: why the host interrupts it, once it does.
        calls: host calls so far.
        finished: set when the last signal is queued.
    """

    def __init__(self, cell: str, generation: int, limit: int) -> None:
        self.id = cell
        self.generation = generation
        self.stop: Literal["interrupted", "timeout"] | None = None
        self.calls = 0
        self.finished = asyncio.Event()
        self._left = limit
        self._dropped = 0
        self._above: tuple[str, int] | None = None
        self._queue: deque[Signal] = deque()
        self._queued_calls = 0
        self._news = asyncio.Event()
        self._started = time.monotonic()
        self._reply: dict[str, Any] | None = None
        self._idle = False
        self._done: CellDone | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since its submission."""
        return time.monotonic() - self._started

    @property
    def crowded(self) -> bool:
        """Whether so many calls wait to be delivered that no more should be read."""
        return self._queued_calls >= _PAUSE

    @property
    def roomy(self) -> bool:
        """Whether reading may go on."""
        return self._queued_calls <= _RESUME

    def put(self, signal: Signal) -> None:
        """Queue a signal; output beyond the limit is counted instead."""
        if self.finished.is_set():
            return
        if isinstance(signal, Output):
            admitted = self._admit(signal)
            if admitted is None:
                return
            signal = self._replacing(admitted)
        elif isinstance(signal, HostCall):
            self._queued_calls += 1
        self._queue.append(signal)
        self._news.set()

    def _admit(self, shown: Output) -> Output | None:
        """Return what of an output is within the limit, and count the rest."""
        text = shown.text.encode(errors="replace")
        image = len(shown.image.data if shown.image else shown.svg or "")
        room = self._left - image - _OVERHEAD
        if room < 0 or (room == 0 and text):
            self._dropped += len(text) + image
            return None
        if len(text) > room:
            kept = text[:room].decode(errors="ignore")
            self._dropped += len(text) - len(kept.encode())
            shown, text = replace(shown, text=kept), kept.encode()
        self._left = room - len(text)
        return shown

    def _replacing(self, shown: Output) -> Output:
        """Return the output so that it takes the place of an earlier state of the same display right above it."""
        if shown.late:
            return shown
        above, self._above = self._above, None
        if shown.display is None or shown.image is not None:
            return shown
        lines = shown.text.removesuffix("\n").count("\n") + 1
        if lines <= _REPLACED:
            self._above = shown.display, lines
        if above is not None and above[0] == shown.display:
            shown = replace(shown, text=f"\x1b[{above[1]}A\r\x1b[J{shown.text}")
        return shown

    async def signals(self) -> AsyncIterator[Signal]:
        """Yield the signals in order, the last one being :class:`Ended`."""
        while True:
            while self._queue:
                signal = self._queue.popleft()
                if isinstance(signal, HostCall):
                    self._queued_calls -= 1
                yield signal
                if isinstance(signal, Ended):
                    return
            self._news.clear()
            if not self._queue:
                await self._news.wait()

    def replied(self, content: dict[str, Any]) -> None:
        """Take the kernel's reply."""
        self._reply = content
        self._end()

    def idled(self) -> None:
        """Take the message that nothing more is published."""
        self._idle = True
        self._end()

    def reported(self, done: CellDone) -> None:
        """Take the kernel's report."""
        self._done = done
        self._end()

    def lost(self, reason: str) -> None:
        """End the cell because its kernel is gone."""
        self.put(Lost(self.generation, reason))
        if self.stop is None:
            self._finish("died", Failed("KernelDied", reason, ""))
        else:
            self._finish("killed", None)

    def _end(self) -> None:
        if self._reply is None or not self._idle or self._done is None:
            return
        if self._done.refused is not None:
            name = str(self._reply.get("ename", "Refused"))
            self._finish("refused", Failed(name, self._done.refused, self._done.refused))
            return
        error = _failed(self._reply)
        status: Status = self.stop or ("ok" if error is None else "error")
        self._finish(status, error)

    def _finish(self, status: Status, error: Failed | None) -> None:
        done = self._done
        self.put(
            Ended(
                status=status,
                generation=self.generation,
                error=error,
                set=done.set if done else (),
                removed=done.removed if done else (),
                unawaited=done.unawaited if done else (),
                dropped=self._dropped + (done.dropped if done else 0),
                duration_s=self.elapsed_s,
            )
        )
        self.finished.set()


def output(message: dict[str, Any], late: bool) -> Output | None:
    """Return the output that an iopub message carries, if any. Whatever the message holds, it does not raise."""
    content = message["content"]
    kind = message["header"].get("msg_type")
    if kind == "stream":
        name, text = content.get("name"), content.get("text")
        if not isinstance(text, str) or not text:
            return None
        return Output("stderr" if name == "stderr" else "stdout", text, late=late)
    if kind == "clear_output":
        return Output("stdout", _CLEAR, late=late)
    if kind not in {"execute_result", "display_data", "update_display_data"}:
        return None
    data, metadata = content.get("data"), content.get("metadata")
    if not isinstance(data, dict):
        return None
    text, svg = data.get("text/plain"), data.get(_SVG)
    transient = content.get("transient")
    name = transient.get("display_id") if isinstance(transient, dict) else None
    call = metadata.get(CALL_KEY) if isinstance(metadata, dict) else None
    return Output(
        "result" if kind == "execute_result" else "display",
        text if isinstance(text, str) else "",
        image=next((_image(mime, data[mime]) for mime in _IMAGES if isinstance(data.get(mime), str)), None),
        call=call if type(call) is int else None,
        late=late,
        svg=svg if isinstance(svg, str) else None,
        display=name if isinstance(name, str) else None,
    )


def _image(mime: str, data: str) -> Image:
    return Image(mime, "".join(data.split()))


def _failed(reply: dict[str, Any]) -> Failed | None:
    if reply.get("status") == "ok":
        return None
    trace = reply.get("traceback")
    lines = [line for line in trace if isinstance(line, str)] if isinstance(trace, list) else []
    return Failed(str(reply.get("ename", "aborted")), str(reply.get("evalue", ""))[:4_000], "\n".join(lines)[:8_000])
