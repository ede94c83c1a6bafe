"""What a keyboard sends for a key, by its name. Pure.

The sequences are those of xterm, which ``TERM`` promises.
"""

from __future__ import annotations

from prime.errors import ToolFailed
from prime.tools.signature import nearest

_PLAIN = {
    "enter": "\r",
    "tab": "\t",
    "escape": "\x1b",
    "esc": "\x1b",
    "backspace": "\x7f",
    "space": " ",
    "shift-tab": "\x1b[Z",
    "ctrl-space": "\0",
    "ctrl-backspace": "\x08",
    **{f"ctrl-{chr(code + 96)}": chr(code) for code in range(1, 27)},
    "ctrl-[": "\x1b",
    "ctrl-\\": "\x1c",
    "ctrl-]": "\x1d",
    "ctrl-^": "\x1e",
    "ctrl-_": "\x1f",
}
#: ``ESC [ LETTER``; with modifiers ``ESC [ 1 ; N LETTER``.
_LETTER = {"up": "A", "down": "B", "right": "C", "left": "D", "home": "H", "end": "F"}
#: The same with ``ESC O LETTER`` when there are none.
_FUNCTION = {"f1": "P", "f2": "Q", "f3": "R", "f4": "S"}
#: ``ESC [ NUMBER ~``; with modifiers ``ESC [ NUMBER ; N ~``.
_NUMBER = {
    "insert": 2,
    "delete": 3,
    "pageup": 5,
    "pagedown": 6,
    "f5": 15,
    "f6": 17,
    "f7": 18,
    "f8": 19,
    "f9": 20,
    "f10": 21,
    "f11": 23,
    "f12": 24,
}
_MODIFIERS = {"shift": 1, "alt": 2, "ctrl": 4}


def encoded(key: str, *, application: bool) -> str:
    """Return what a key sends; ``application``: the program has asked for application cursor keys.

    Raises:
        ToolFailed: ``bad_arguments`` for a name that is none, with the nearest.
    """
    name = key if len(key) == 1 else key.lower()
    if name in _PLAIN:
        return _PLAIN[name]
    if len(name) == 1:
        return name
    *modifiers, base = name.split("-")
    if all(each in _MODIFIERS for each in modifiers):
        number = 1 + sum(_MODIFIERS[each] for each in set(modifiers))
        if base in _NUMBER:
            return f"\x1b[{_NUMBER[base]}{f';{number}' if number > 1 else ''}~"
        letter = _LETTER.get(base) or _FUNCTION.get(base)
        if letter is not None:
            short = "\x1bO" if base in _FUNCTION or application else "\x1b["
            return f"\x1b[1;{number}{letter}" if number > 1 else short + letter
    if name.startswith("alt-"):
        return "\x1b" + encoded(key[4:], application=application)
    known = [*_PLAIN, *_LETTER, *_FUNCTION, *_NUMBER]
    raise ToolFailed("bad_arguments", f"there is no key {key!r}{nearest(name, known)}; write text as text")
