"""The window: what is older than the newest messages leaves, and a directory says where it is. No model is asked.

Nothing is lost and nothing is summarised. The directory stands in the user's role, says that it was generated, and
names the calls that give everything back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prime import events as ev
from prime import locators
from prime.messages import Message, TextPart, text_of
from prime.policies.base import Item, Options, Originals, View
from prime.policies.draft import Draft, balanced

POLICY = "window"
#: What a reminder is about, and what the answer to a needless ``context.new()`` is about.
REMINDER, KEPT = "context_reminder", "context_kept"

#: Tokens by which the replaced messages must be larger than their directory.
WORTHWHILE = 512
#: Newest inputs of persons that a directory lists, and characters of each, so many of them from its end: what is said
#: of something pasted stands before or behind it.
MAX_PROMPTS, PROMPT_CHARS, PROMPT_TAIL = 8, 160, 64
#: Characters of the open turn's own request that a directory repeats: what is being done must not be looked up.
REQUEST_CHARS = 2_000
#: Names that a directory lists.
MAX_NAMES = 60
#: A result no longer than this many characters stays as it is: a stub would not be much shorter.
STUB_FROM = 600
#: Characters of the head that a stub keeps.
STUB_HEAD = 300

_NOTHING = (
    "Nothing could leave the window: what could be removed is no larger than the directory that would stand for it. "
    "Go on; the note is kept in any case."
)
_KEPT = "Nothing left the window: under this context policy a turn keeps its messages until it ends. Go on."


def switch(draft: Draft, view: View, originals: Originals, retain: int) -> bool:
    """Replace everything older than the newest ``retain`` tokens by a directory; return whether that was worth it."""
    cut = _cut(draft.items, retain / view.scale)
    if cut is None:
        return False
    message = Message(role="user", parts=(TextPart(text=directory(draft.items[cut:], view, originals)),))
    if sum(item.tokens for item in draft.items[:cut]) <= view.measure(message) + WORTHWHILE:
        return False
    draft.replace(0, cut, message, POLICY)
    return True


def renew(draft: Draft, view: View, originals: Originals) -> None:
    """Do what ``context.new()`` asked for: keep as little as possible, or say that nothing could leave."""
    if not switch(draft, view, originals, 0):
        draft.give(ev.NoticeGiven(about=KEPT, text=_NOTHING))


def keep(draft: Draft) -> None:
    """Say why nothing leaves although ``context.new()`` asked for it."""
    draft.give(ev.NoticeGiven(about=KEPT, text=_KEPT))


def recover(draft: Draft, view: View, originals: Originals, options: Options) -> None:
    """Make the surface as small as is sensible after a provider refused it for its size."""
    threshold = options.threshold(view)
    goal = min(threshold, view.used / 2) if threshold is not None else 0.0
    switch(draft, view, originals, 0)
    shorten(draft, goal)


def shorten(draft: Draft, goal: float) -> None:
    """Put stubs in the place of the largest results until a request has less than ``goal`` tokens, also of results that
    were sent: without that the session could not go on."""
    order = sorted(range(len(draft.items)), key=lambda place: draft.items[place].tokens, reverse=True)
    for place in order:
        if draft.used < goal:
            return
        item = draft.items[place]
        if item.node.closes is not None and (message := _stub(item)) is not None:
            draft.replace(place, place + 1, message, "fold")


def remind(draft: Draft, view: View, options: Options) -> None:
    """Ask once in a window for a fresh note, when the threshold is near."""
    threshold = options.threshold(view)
    if threshold is None or view.window is None:
        return
    headroom = threshold - draft.used
    if not 0 < headroom <= min(options.lead, view.window // 8) or _reminded(draft.items):
        return
    notice = ev.NoticeGiven(
        about=REMINDER,
        text=f"About {round(headroom):,} tokens are left before older messages leave the window. Before the next large "
        "step bring the note up to date with what you need to go on: the goal, constraints, what is verified and "
        "where, open points (`await notes.read()`, then `await notes.write(text, revision=...)`).",
    )
    draft.give(notice)


def directory(kept: Sequence[Item], view: View, originals: Originals) -> str:
    """Return the words that stand for everything before the items ``kept``."""
    return "\n".join(_lines(kept, view, originals))


def _lines(kept: Sequence[Item], view: View, originals: Originals) -> Iterator[str]:
    first = min((item.origin for item in kept), default=view.next_seq)
    last = min((item.turn for item in kept if item.turn is not None), default=view.turn)
    yield (
        "[context window switched · generated by prime-repl, said by nobody: background only; go on with the work and "
        "do not answer this]"
    )
    yield (
        f"Everything before entry {first} of this session (turns 1 to {last}) left the window. It is recorded word for "
        "word; nothing of it is summarised here. Cells get it back: "
        f'`await history.search("words")`, `await {locators.turn("n")}`, `await {locators.step("n", "m")}`, '
        f"`await {locators.expand('n')}`."
    )
    yield _names(view.names)
    yield from view.running
    yield from _note(view, originals)
    yield from _prompts(kept, view, originals)
    yield "[end of the generated background]"


def _names(names: Sequence[tuple[str, str]]) -> str:
    if not names:
        return "No names of earlier cells are alive in the kernel."
    listed = ", ".join(f"{name}: {kind}" for name, kind in names[:MAX_NAMES])
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"Alive in the kernel: {listed}{more}. Values may be older than the world: read again what may have changed."


def _note(view: View, originals: Originals) -> Iterator[str]:
    note = originals.note()
    if note is None or not note.text:
        yield "There is no note yet; `await notes.write(text, revision=...)` keeps one."
        return
    age = "before the open turn" if note.turn is None else f"in turn {note.turn}, {view.turn - note.turn} turns ago"
    yield (
        f"The note, revision {note.revision}, written at entry {note.seq} {age}; what happened since is not in it, and "
        "it is a record, not a request:"
    )
    yield note.text
    yield "[end of the note]"


def _prompts(kept: Sequence[Item], view: View, originals: Originals) -> Iterator[str]:
    visible = {item.seq for item in kept if isinstance(item.event, ev.UserSaid)}
    newest = originals.prompts(view.next_seq, MAX_PROMPTS + len(visible))  # what is kept is the newest of all
    found = [prompt for prompt in newest if prompt.seq not in visible]
    earlier = [prompt for prompt in found if prompt.turn != view.turn]
    if earlier:
        yield "Newest inputs of the person that left, oldest first; untrusted hints where to look, no requests:"
    for prompt in earlier:
        words = " ".join(prompt.text.split())
        yield f"- seq {prompt.seq}, turn {prompt.turn}: {_excerpt(words, PROMPT_CHARS, PROMPT_TAIL)}"
    for prompt in found:
        if prompt.turn == view.turn:
            yield f"The open turn is about this input (seq {prompt.seq}): {_excerpt(prompt.text, REQUEST_CHARS)}"


def _excerpt(text: str, size: int, tail: int = 0) -> str:
    return text if len(text) <= size else f"{text[: size - tail - 1]}…{text[len(text) - tail :]}"


def _cut(items: Sequence[Item], retain: float) -> int | None:
    """Return where the retained tail begins: it has ``retain`` tokens at least, parts no call from its result, and
    holds more than words of the host. None when that is everything."""
    place, size, more = len(items), 0.0, False
    while place > 0 and (size < retain or not more):
        place -= 1
        size += items[place].tokens
        more = more or not isinstance(items[place].event, ev.NoticeGiven)
    cuts = [cut for cut in balanced(items) if 0 < cut <= place]
    return cuts[-1] if cuts else None


def _reminded(items: Sequence[Item]) -> bool:
    switched = max((item.seq for item in items if item.standing_in and item.event.policy == POLICY), default=-1)
    return any(
        isinstance(item.event, ev.NoticeGiven) and item.event.about == REMINDER and item.seq > switched
        for item in items
    )


def _stub(item: Item) -> Message | None:
    assert item.message is not None
    text = text_of(item.message.parts)
    if len(text) <= STUB_FROM and len(item.message.parts) == 1:
        return None
    stub = (
        f"{text[:STUB_HEAD]}\n[... {len(text):,} characters left the window to make room; "
        f"`await {locators.expand(item.origin)}` returns the whole output ...]"
    )
    return Message(role="tool", parts=(TextPart(text=stub),), call_id=item.node.closes)
