"""Text as the words that a search compares: one rule for what is indexed and for what is asked. Pure.

Scripts that are written without spaces are cut into overlapping pairs of characters, so that a word of two characters
is found wherever it stands. All positions are code points of the original text.
"""

from __future__ import annotations

import regex

#: Most terms of one query; what is beyond says little more and costs as much as the rest.
MAX_TERMS = 32

_WORD = regex.compile(r"[\p{L}\p{N}\p{M}_.\-]+")
_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー]+")
_EDGES = "_.-"


def folded(text: str) -> str:
    """Return ``text`` in lower case with every character at its place (some grow when they are lowered)."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(low if len(low := character.lower()) == 1 else character for character in text)


def cut(text: str) -> str:
    """Return ``text`` as it is indexed: lower case, unspaced runs as pairs.

    The last character of a run stands alone too, so that each is the beginning of a word.
    """
    return _UNSPACED.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", folded(text))


def terms(query: str) -> tuple[str, ...]:
    """Return the distinct terms of a query: words without punctuation at their edges, pairs of unspaced runs.

    Words of one character are left out unless there are no others.
    """
    found: dict[str, None] = {}
    single: dict[str, None] = {}
    for word in _WORD.findall(folded(query)):
        place = 0
        for run in _UNSPACED.finditer(word):
            _keep(word[place : run.start()], found, single)
            found.update(dict.fromkeys(_pairs(run[0])[: max(len(run[0]) - 1, 1)]))
            place = run.end()
        _keep(word[place:], found, single)
    return tuple(found or single)[:MAX_TERMS]


def unspaced(term: str) -> bool:
    """Tell whether a term is of a script that is written without spaces."""
    return _UNSPACED.fullmatch(term) is not None


def _pairs(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(len(run))]


def _keep(word: str, found: dict[str, None], single: dict[str, None]) -> None:
    if word := word.strip(_EDGES):
        (found if len(word) > 1 else single)[word] = None
