"""What is kept of JSON: some of the items of its longest list, and everything beside that list. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from prime.policies.base import FoldOptions
from prime.policies.keep import cut, ends

_ERROR = re.compile(r"error|fail|exception|denied|invalid|critical|fatal", re.IGNORECASE)
#: Names of fields that are listed of what is left out.
_FIELDS = 12


def condensed(value: Any, options: FoldOptions) -> tuple[list[str], int, int] | None:
    """Return lines for a JSON value, how many items its longest list has, and how many of them are kept; None when it
    has no list worth it."""
    key, items = _longest(value)
    if items is None or len(items) < options.json_items_from:
        return None
    texts = [json.dumps(item, ensure_ascii=False, separators=(", ", ": ")) for item in items]
    chosen = _chosen(texts, options.json_items)
    shown = []
    if key is not None:
        rest = {name: item for name, item in value.items() if name != key}
        shown += [cut(json.dumps(rest, ensure_ascii=False)), f"{key}, {len(items):,} items:"]
    before = -1
    for place in chosen:
        if place > before + 1:
            shown.append(_gap(items, texts, before + 1, place))
        shown.append(cut(texts[place]))
        before = place
    if before + 1 < len(items):
        shown.append(_gap(items, texts, before + 1, len(items)))
    return shown, len(items), len(chosen)


def _longest(value: Any) -> tuple[str | None, list[Any] | None]:
    if isinstance(value, list):
        return None, value
    if isinstance(value, dict):
        lists = [(name, item) for name, item in value.items() if isinstance(item, list) and len(item) >= 2]
        if lists:
            return max(lists, key=lambda pair: len(pair[1]))
    return None, None


def _chosen(texts: list[str], most: int) -> list[int]:
    """Return places of the first, the last, and of what looks like an error, each text once."""
    seen: set[str] = set()
    distinct = []
    for place, text in enumerate(texts):
        if text not in seen:
            seen.add(text)
            distinct.append(place)
    head, tail = round(most * 0.3), round(most * 0.15)
    chosen = set(ends(distinct, head, tail))
    wrong = (place for place in distinct if place not in chosen and _ERROR.search(texts[place]))
    middle = (place for place in distinct if place not in chosen and not _ERROR.search(texts[place]))
    for source in (wrong, middle):
        for place in source:
            if len(chosen) >= most:
                break
            chosen.add(place)
    return sorted(chosen)


def _gap(items: list[Any], texts: list[str], start: int, stop: int) -> str:
    names = list(dict.fromkeys(name for item in items[start:stop] if isinstance(item, dict) for name in item))
    fields = f" with {', '.join(names[:_FIELDS])}{' …' if len(names) > _FIELDS else ''}" if names else ""
    return f"[... items {start + 1}-{stop}{fields}, {sum(map(len, texts[start:stop])):,} characters ...]"
