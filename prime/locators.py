"""The calls that give back what left the window, as the model reads them.

Everything that tells the model how to get something back takes the words from here, so that what is printed is what
exists. A letter in the place of a number makes the pattern of a call.
"""

from __future__ import annotations

from prime.events import FORMAT


def expand(seq: int | str) -> str:
    """Return the call that gives back entry ``seq``, whole or filtered.

    The number of an entry is good for the format of the log that it was printed under, so the call says which.
    """
    return f"history.expand(seq={seq}, format={FORMAT})"


def turn(number: int | str) -> str:
    """Return the call that gives back what was said in a turn, with where to find the rest of it."""
    return f"history.turn({number})"


def step(turn: int | str, number: int | str) -> str:
    """Return the call that gives back one step of a turn, whole."""
    return f"history.step(turn={turn}, step={number})"
