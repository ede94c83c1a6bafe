"""The calls that give back what left the window, as the model reads them.

Everything that tells the model how to get something back takes the words from here, so that what is printed is what
exists. A letter in the place of a number makes the pattern of a call.
"""

from __future__ import annotations

import ast
import re

from prime.events import FORMAT

_CALL = re.compile(r"\bhistory\.[a-z]+\(")
_TURNS = re.compile(r"\bturns? (\d+)(?:(?:-| to )(\d+))?")
_SEQ = re.compile(r"\bseq[ -](\d+)")


def expand(seq: int | str) -> str:
    """Return the call that gives back entry ``seq``, whole or filtered.

    The number of an entry is good for the format of the log that it was printed under, so the call says which.
    """
    return f"history.expand(seq={seq}, format={FORMAT})"


def read(seq: int, offset: int = 0, session: str | None = None) -> str:
    """Return the call that gives back entry ``seq`` as it was written, in slices; ``session`` is another one's id."""
    at = f", offset={offset}" if offset else ""
    whose = f", session={session!r}" if session is not None else ""
    return f"history.read({seq}{at}{whose})"


def picture(seq: int, number: int, session: str | None = None) -> str:
    """Return the call that gives back picture ``number``, from 1, of entry ``seq``."""
    whose = f", session={session!r}" if session is not None else ""
    return f"history.read({seq}, picture={number}{whose})"


def browse(before: int, query: str = "") -> str:
    """Return the call that goes on through the log, to what came before entry ``before``."""
    return f"history.browse({query!r}, before={before})" if query else f"history.browse(before={before})"


def turn(number: int | str) -> str:
    """Return the call that gives back what was said in a turn, with where to find the rest of it."""
    return f"history.turn({number})"


def step(turn: int | str, number: int | str) -> str:
    """Return the call that gives back one step of a turn, whole."""
    return f"history.step(turn={turn}, step={number})"


def calls(text: str) -> list[str]:
    """Return the calls into the history that a text names, as they can be evaluated, in order; each once."""
    found: dict[str, None] = {}
    for start in _CALL.finditer(text):
        end = start.end()
        while (end := text.find(")", end) + 1) > 0:
            call = text[start.start() : end]
            if "\n" in call:
                break
            if _literal(call):
                found[call] = None
                break
    return list(found)


def patterns(text: str) -> list[str]:
    """Return the calls that a text names by a pattern and the numbers to put in: turns and seqs that it mentions."""
    found: dict[str, None] = {}
    if re.search(r"history\.turn\([a-z]\)", text):
        for first, last in _TURNS.findall(text):
            found.update(dict.fromkeys(map(turn, range(int(first), int(last or first) + 1))))
    if re.search(r"history\.expand\(seq=[a-z],", text) or f"· v{FORMAT}" in text:
        found.update(dict.fromkeys(expand(int(seq)) for seq in _SEQ.findall(text)))
    return list(found)


def _literal(call: str) -> bool:
    try:
        tree = ast.parse(call, mode="eval").body
        given = [*tree.args, *(keyword.value for keyword in tree.keywords)] if isinstance(tree, ast.Call) else [tree]
        for value in given:
            ast.literal_eval(value)
    except (SyntaxError, ValueError):  # a signature or prose, which names no call that can be made
        return False
    return True
