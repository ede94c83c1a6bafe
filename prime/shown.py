"""What the model sees of a cell: bounded, head and tail, with a signpost to the rest. Pure.

The whole output is in the log; this is a view. The words around it, which say how the cell ended, have a share of their
own, so that much output never hides an error and a long error never breaks the limit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from prime import locators
from prime.messages import ImagePart, ShownPart, TextPart, around, plain
from prime.repl.signals import Ended, Image, Output
from prime.screen import Screen, collapsed
from prime.state import Restoration

#: Images of one cell that the model sees; more are named.
MAX_IMAGES = 8
#: Names listed in a notice of loss.
MAX_NAMES = 40
#: Characters of a reason why one of them is missing.
_REASON = 120


class Finished(NamedTuple):
    """What a model sees of a cell, and the words ``before`` and ``after`` the output in it."""

    parts: tuple[ShownPart, ...]
    before: str
    after: str


class Shown:
    """Collects a cell's output, as a terminal would show it, in a bounded amount of memory: at most twice ``limit``
    bytes of text and what a :class:`Screen` holds.

    ``limit`` is the setting ``visible_output_bytes`` that the system prompt states.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._screen = Screen()
        self._clear()

    def _clear(self) -> None:
        self._images: list[ImagePart] = []
        self._head: list[bytes] = []
        self._head_bytes = 0
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._total = 0
        self._more_images = 0

    def add(self, output: Output) -> None:
        """Take in a piece of output."""
        own_line = output.stream in ("result", "display")
        self._take(self._screen.write(plain(output.text), own_line=own_line))
        if output.image is not None:
            self._image(output.image)

    def _image(self, image: Image) -> None:
        if len(self._images) == MAX_IMAGES:
            self._more_images += 1
            return
        self._images.append(ImagePart(media_type=image.media_type, data=image.data))
        self._take(self._screen.write(f"[image {len(self._images)}: {image.media_type}]\n", own_line=True))

    def _take(self, pieces: list[str | None]) -> None:
        for piece in pieces:
            if piece is None:
                self._clear()
            elif piece:
                self._push(piece.encode())

    def finish(self, before: str, after: str, seq: int) -> Finished:
        """Return the parts: ``before``, the output, ``after``, then the images; and the words around the output.

        The text has at most ``limit`` bytes, for a limit of 1,000 or more: ``before`` gets a quarter, ``after`` a half,
        the output what they leave. ``seq`` is where the cell's result will stand in the log, for the signpost.
        """
        self._take(self._screen.end())
        if self._more_images:
            after = f"[{self._more_images} more images are not shown]\n{after}"
        before, after = _clip(before, self._limit // 4), _clip(after, self._limit // 2)
        ends = len(before.encode()) + len(after.encode()) + 2  # two line ends at most are added below
        body = self._body(max(self._limit - ends, 0), seq)
        return Finished((TextPart(text=around(before, body, after)), *self._images), before, after)

    def _push(self, data: bytes) -> None:
        self._total += len(data)
        if (room := self._limit - self._head_bytes) > 0:
            self._head.append(data[:room])
            self._head_bytes += len(data[:room])
            data = data[room:]
        if not data:
            return
        self._tail.append(data[-self._limit :])
        self._tail_bytes += len(self._tail[-1])
        while self._tail_bytes - len(self._tail[0]) >= self._limit:
            self._tail_bytes -= len(self._tail.popleft())

    def _body(self, room: int, seq: int) -> str:
        head, tail = b"".join(self._head), b"".join(self._tail)
        if self._total <= room:
            return (head + tail).decode()
        marker = (
            f"[... {self._total:,} bytes in all, the middle is not shown: "
            f'`await {locators.expand(seq)}` returns the whole, lines="1-200" or grep="..." a part ...]'
        )
        half = max((room - len(marker) - 2) // 2, 0)
        if len(tail) < half:  # then nothing is missing between the two
            tail = head + tail
        return f"{_first(head, half)}\n{marker}\n{_last(tail, half)}"


def _clip(text: str, room: int) -> str:
    data = collapsed(plain(text)).encode()
    if len(data) <= room:
        return data.decode()
    marker = f"[... {len(data):,} bytes, the middle is not shown ...]"
    half = max((room - len(marker) - 2) // 2, 0)
    return f"{_first(data, half)}\n{marker}\n{_last(data, half)}"


def _first(data: bytes, size: int) -> str:
    return data[:size].decode(errors="ignore")  # what is ignored is a part of a code point at the cut


def _last(data: bytes, size: int) -> str:
    return data[max(len(data) - size, 0) :].decode(errors="ignore")


def outcome(ended: Ended, called: bool) -> str:
    """Return the words that say how a cell ended, empty when it simply ran."""
    error, seconds = ended.error, f"{ended.duration_s:.1f} s"
    lines = []
    if ended.dropped:
        lines.append(f"[{ended.dropped:,} bytes of output were dropped: over the limit of a cell]")
    match ended.status:
        case "ok":
            pass
        case "error" | "refused":
            lines.append(error.traceback or f"{error.name}: {error.message}" if error else "the cell failed")
        case "interrupted" if ended.generation is None:
            lines.append("[interrupted before it ran]")
        case "interrupted":
            lines.append(f"[interrupted after {seconds}; what the cell did until then stands, names are kept]")
        case "timeout":
            lines.append(f"[stopped at its time limit after {seconds}; what it did until then stands, names are kept]")
        case "killed":
            lines.append(f"[did not stop when interrupted: the kernel was killed after {seconds}; all names are gone]")
        case "died" if ended.generation is None and error is not None:  # it never ran
            lines.append(f"[the kernel could not be started, and nothing ran: {error.message}]")
        case "died":
            reason = error.message if error else "no reason known"
            lines.append(f"[the kernel died after {seconds}, and all names are gone: {reason}]")
    if called and ended.status in ("interrupted", "timeout", "killed", "died"):
        lines.append("[calls of this cell may have had effects: check before repeating them]")
    lines += [f"[not awaited] {line}" for line in ended.unawaited]
    return "\n".join(lines)


def loss_notice(names: tuple[tuple[str, str], ...]) -> str:
    """Return the notice that the namespace of earlier cells is gone."""
    gone = f" Gone: {_listed([name for name, _ in names])}." if names else ""
    return (
        f"[the kernel was restarted before this cell: names of earlier cells no longer exist.{gone} "
        "Files and notes are as they were.]"
    )


def restored_notice(told: Restoration) -> str:
    """Return the notice that the namespace was restored from a snapshot: how old its values are, and which names are
    missing, older than the model remembers, or back although they had been removed."""
    saved, restored = told.snapshot.saved, told.restored.restored
    touched, before = told.snapshot.touched, frozenset(told.before)
    # what a later cell has removed is no loss
    lost = {name: why for name, why in told.restored.missing.items() if name in before or name not in touched}
    lost |= {
        name: saved.left_out.get(name, "bound after the snapshot")
        for name in told.before
        if name not in restored and name not in lost
    }
    start = "the kernel was restarted before this cell"
    if not restored:
        reasons = f" Gone: {_listed(_reasons(lost))}." if lost else ""
        return (
            f"[{start}, and names of earlier cells could not be restored.{reasons} Files and notes are as they were.]"
        )
    if not lost and not told.snapshot.cells:
        return f"[{start}; all names are as they were, restored from a snapshot: {_listed(sorted(restored))}]"
    older = sorted(name for name in touched if name in restored and name in before)
    back = sorted(name for name in touched if name in restored and name not in before)
    after = f", {told.snapshot.cells} cells ago" if told.snapshot.cells else ""
    facts = [
        f"{start}. Its names have the values of a snapshot taken at entry {told.snapshot.seq}{after}.",
        f"Gone: {_listed(_reasons(lost))}." if lost else "",
        f"Bound by later cells, and therefore older than you remember: {_listed(older)}." if older else "",
        f"Removed by later cells, and back: {_listed(back)}." if back else "",
        f"Restored: {_listed(sorted(restored))}.",
    ]
    return f"[{' '.join(filter(None, facts))}]"


def _reasons(names: Mapping[str, str]) -> list[str]:
    return [f"{name} ({why if len(why) <= _REASON else why[:_REASON] + ' ...'})" for name, why in sorted(names.items())]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def context_line(used: int, window: int | None) -> str:
    """Return the line that ends every result: tokens used before the cell, of the model's window when it is known."""
    return f"[context: {used:,} of {window:,} tokens]" if window else f"[context: {used:,} tokens]"
