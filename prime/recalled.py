"""What recall gives back: the values of ``history``, and how the model reads them. Pure.

Sizes and offsets are code points. Every call that is named in a value can be evaluated as it stands.
"""

from __future__ import annotations

from typing import Any

from prime.messages import Frozen, around


class Hit(Frozen):
    """A place where the words stand; ``call`` is the exact call that returns the whole of it. ``name`` is what was
    called, for a call of a cell; ``session`` is None for this one."""

    seq: int
    turn: int | None
    step: int | None
    kind: str
    name: str
    snippet: str
    call: str
    session: str | None


class Hits(Frozen):
    """The best hits first. ``note`` says what was searched when that is worth knowing, as when nothing was found."""

    hits: tuple[Hit, ...]
    truncated: bool
    note: str


class Said(Frozen):
    """One piece of a turn. In the dialogue view a result is one line that names the call which returns it (kind
    ``result``), and so are pictures in every view; otherwise ``text`` is whole. ``name`` is what was called, for a call
    of a cell or one that was refused."""

    seq: int
    step: int | None
    kind: str
    name: str
    text: str


class Told(Frozen):
    """A turn, or one step of it. ``status`` says how it ended and what it had."""

    turn: int
    status: str
    said: tuple[Said, ...]


class Expanded(Frozen):
    """One original, whole or filtered. ``seq`` is its own number; ``lines`` is how many the whole has; ``picture`` is
    the call that returns the first picture beside the words, None when there is none."""

    seq: int
    kind: str
    text: str
    lines: int
    picture: str | None = None


class Slice(Frozen):
    """A part of an entry as it was written. ``next`` is the call that returns the next part, None at the end, and
    ``picture`` the one that returns the first picture beside the words, None when there is none."""

    seq: int
    kind: str
    text: str
    offset: int
    size: int
    next: str | None
    picture: str | None = None


class Picture(Frozen):
    """A picture of an entry, number ``picture`` of ``pictures``; ``image`` is base64. ``next`` is the call that returns
    the next one, None at the last."""

    seq: int
    picture: int
    pictures: int
    media_type: str
    image: str
    next: str | None


class Item(Frozen):
    """An entry of a page; ``call`` returns it."""

    seq: int
    turn: int | None
    step: int | None
    kind: str
    name: str
    size: int
    preview: str
    call: str


class Page(Frozen):
    """Entries, the newest first. ``next`` is the call that goes on, None at the beginning of the log."""

    items: tuple[Item, ...]
    next: str | None


def hits_text(arguments: dict[str, Any], value: Any) -> str:
    """Return hits as the model reads them."""
    lines = []
    for hit in value["hits"]:
        lines += [f"[{_place(hit)} · {hit['call']}]", hit["snippet"]]
    if value["truncated"]:
        lines.append("[there are more: give a higher limit or more words]")
    if value["note"]:
        lines.append(f"[{value['note']}]")
    return "\n".join(lines)


def told_text(arguments: dict[str, Any], value: Any) -> str:
    """Return a turn as the model reads it."""
    lines = [f"[{value['status']}]"]
    for said in value["said"]:
        if said["kind"] == "result":
            lines.append(said["text"])
        else:
            lines += [f"[{_place({'turn': None, 'session': None, **said})} · seq {said['seq']}]", said["text"]]
    return "\n".join(lines)


def expanded_text(arguments: dict[str, Any], value: Any) -> str:
    """Return an original as the model reads it: its text, and where its pictures are."""
    return around("", str(value["text"]), _pictures(value))


def slice_text(arguments: dict[str, Any], value: Any) -> str:
    """Return a slice as the model reads it, or what is said beside a picture, which it sees."""
    if "image" in value:
        more = f" · {value['next']}" if value["next"] else ""
        return f"[picture {value['picture']} of {value['pictures']} · {value['media_type']}{more}]"
    end = value["offset"] + len(value["text"])
    more = f" · {value['next']}" if value["next"] else ""
    return f"[{value['kind']} · {value['offset']:,} to {end:,} of {value['size']:,} characters{more}]\n" + around(
        "", value["text"], _pictures(value)
    )


def page_text(arguments: dict[str, Any], value: Any) -> str:
    """Return a page as the model reads it."""
    lines = []
    for item in value["items"]:
        place = _place({"session": None, **item})
        lines += [f"[{place} · {item['size']:,} characters · {item['call']}]", item["preview"]]
    lines.append(f"[{value['next']} goes on]" if value["next"] else "[that is the beginning of the log]")
    return "\n".join(lines)


def _pictures(value: dict[str, Any]) -> str:
    return f"[with pictures: {value['picture']}]" if value["picture"] else ""


def _place(found: dict[str, Any]) -> str:
    named = (
        (found["session"] is not None, f"session {found['session']}"),
        (True, f"{found['kind']} {found['name']}".rstrip()),
        (found["turn"] is not None, f"turn {found['turn']}"),
        (found["step"] is not None, f"step {found['step']}"),
    )
    return " · ".join(text for wanted, text in named if wanted)
