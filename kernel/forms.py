"""Text of what is made to be shown in another form: pages, Markdown, JSON, scripts, players."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

from .display import TEXT_LIMIT

#: Pixels of an image's longer side; a larger one is scaled down before it is encoded. Models see no more than this.
MAX_SIDE = 2_000

#: Forms that become text, the most readable first.
FORMS = ("text/markdown", "text/latex", "text/html", "application/json", "application/javascript")

#: The text of an object that says no more than its type.
_BARE = re.compile(r"<[\w.]+ (?:object)?(?: ?at 0x[0-9a-fA-F]+)?>")

_LINES = frozenset(
    {"article", "blockquote", "br", "caption", "dd", "div", "dl", "dt", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li"}
    | {"ol", "p", "pre", "section", "table", "tr", "ul"}
)
_CELLS = frozenset({"td", "th"})
_SILENT = frozenset({"script", "style", "head", "template", "svg"})
_PLAYERS = frozenset({"audio", "video", "iframe", "canvas", "object"})


def bare(text: str) -> bool:
    """Tell whether a representation says nothing but the type."""
    return len(text) < 300 and _BARE.fullmatch(text) is not None


def words(forms: Mapping[Any, Any]) -> str:
    """Return the text of the best of a bundle's forms, at most :data:`TEXT_LIMIT` characters; a line that names them
    when none has a text."""
    for mime in FORMS:
        text = _words(mime, forms[mime]) if mime in forms else ""
        if text:
            return text[:TEXT_LIMIT]
    others = ", ".join(str(mime) for mime in forms)[:200]
    return f"[{others}: no text form]" if others else ""


def _words(mime: str, value: Any) -> str:
    if mime == "application/json":
        return json.dumps(value, ensure_ascii=False, default=str)
    if not isinstance(value, str):
        return ""
    if mime == "application/javascript":
        return f"[a script of {len(value):,} characters, which nothing runs here]"
    return _page(value) if mime == "text/html" else value


def _page(html: str) -> str:
    reader = _Reader()
    reader.feed(html[:TEXT_LIMIT])
    reader.close()
    lines = ("\t".join(" ".join(cell.split()) for cell in line.split("\t")) for line in reader.text.split("\n"))
    return re.sub(r"\n{2,}", "\n", "\n".join(line.rstrip() for line in lines)).strip("\n")


class _Reader(HTMLParser):
    """The words of a page, a line for each block and row."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[str] = []
        self._silent = 0

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag in _PLAYERS and not self._silent:
            self._parts.append(f"[{tag}]")
        if tag in _SILENT or tag in _PLAYERS:
            self._silent += 1
        elif tag in _LINES:
            self._parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in _SILENT or tag in _PLAYERS:
            self._silent = max(self._silent - 1, 0)
        elif tag in _CELLS:
            self._parts.append("\t")
        elif tag in _LINES:
            self._parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self._parts.append(data.replace("\n", " "))


def scaled(value: Any) -> Any:
    """Return a Pillow image as large as it may be shown, anything else as it is."""
    pillow = sys.modules.get("PIL.Image")
    if pillow is None or not isinstance(value, pillow.Image) or max(value.size) <= MAX_SIDE:
        return value
    factor = MAX_SIDE / max(value.size)
    width, height = (max(round(side * factor), 1) for side in value.size)
    return value.resize((width, height), reducing_gap=2.0)
