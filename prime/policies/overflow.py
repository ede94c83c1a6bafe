"""What to do when the model says that a request is larger than its window. Pure, no model call.

Every cell result on the surface that is longer than a stub is replaced by a stub that names the call which returns it
whole. Nothing is lost; the words of the person and of the model stay.
"""

from __future__ import annotations

from collections.abc import Sequence

from prime import events as ev
from prime import locators
from prime.messages import Message, TextPart, text_of

#: A result no longer than this many characters stays: a stub would not be much shorter.
KEEP = 600
#: Characters of the head that a stub keeps.
HEAD = 300

POLICY = "overflow"


def shrink(surface: Sequence[ev.Entry]) -> tuple[ev.SurfaceReplaced, ...]:
    """Return the replacements that make a surface smaller, none when nothing on it can be shortened."""
    operations = []
    for entry in surface:
        event = entry.event
        if not isinstance(event, ev.CellEnded) or event.call_id is None:
            continue
        text = text_of(event.shown)
        if len(text) <= KEEP and len(event.shown) == 1:
            continue
        stub = (
            f"{text[:HEAD]}\n[... {len(text):,} characters left the window to make room; "
            f"`await {locators.expand(entry.seq)}` returns the whole output ...]"
        )
        message = Message(role="tool", parts=(TextPart(text=stub),), call_id=event.call_id)
        operations.append(
            ev.SurfaceReplaced(start=entry.seq, end=entry.seq, sources=(entry.seq,), message=message, policy=POLICY)
        )
    return tuple(operations)
