"""Who is asked whether a call may begin: a person at the terminal, or a program at standard input."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from prime.approvals import Approval, Verdict

#: Characters and lines of one argument that a person is shown.
_SHOWN, _LINES = 2_000, 20

_YES, _NO, _ALWAYS = ("y", "yes"), ("n", "no"), ("a", "always")


class Person:
    """Asks at a terminal. ``say`` prints a line there."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._open: tuple[Approval, asyncio.Future[Verdict]] | None = None

    @property
    def asked(self) -> bool:
        """Whether a question is open."""
        return self._open is not None

    async def approve(self, approval: Approval) -> Verdict:
        """Ask, and wait for the answer."""
        for line in _question(approval):
            self._say(line)
        answer: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._open = approval, answer
        try:
            return await answer
        finally:
            self._open = None

    def take(self, line: str) -> bool:
        """Take a line that was typed, if it is for the open question; return whether it was."""
        if self._open is None or line.startswith("/"):
            return False
        word, (approval, answer) = line.strip().lower(), self._open
        if word not in (*_YES, *_NO, *_ALWAYS):
            self._say(_choices(approval))
        elif not answer.done():
            answer.set_result(Verdict(allowed=word not in _NO, by="person", always=word in _ALWAYS))
        return True


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    approve: str | None = None
    deny: str | None = None
    always: bool = False


class Lines:
    """Takes answers from standard input, each a JSON object on one line: ``{"approve": ID}``, which with ``"always":
    true`` is for all calls like it, or ``{"deny": ID}``. The questions are the ``approval_requested`` entries."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[bytes] | None = None
        self._rest = b""

    async def approve(self, approval: Approval) -> Verdict:
        """Wait for the line that answers a question. At the end of the input nobody answers any more."""
        while (line := await self._line()) is not None:
            try:
                answer = _Answer.model_validate_json(line)
            except ValidationError:
                answer = _Answer()
            if approval.id == answer.approve and answer.deny is None:
                return Verdict(allowed=True, by="program", always=answer.always)
            if approval.id == answer.deny and answer.approve is None:
                return Verdict(allowed=False, by="program")
            expected = f'{{"approve": "{approval.id}"}} or {{"deny": "{approval.id}"}}'
            print(f"error: expected {expected} on standard input, not {line[:200]!r}", file=sys.stderr)
        return Verdict(allowed=False, by="nobody: standard input has ended")

    async def _line(self) -> bytes | None:
        if self._pieces is None:
            self._pieces = asyncio.Queue()
            feed = (asyncio.get_running_loop(), self._pieces)
            # a thread of its own: the event loop cannot wait for a file, and one of a pool would hold up the exit
            threading.Thread(target=_read, args=feed, name="approvals", daemon=True).start()
        while b"\n" not in self._rest:
            piece = await self._pieces.get()
            if not piece:
                self._pieces.put_nowait(b"")  # for whoever asks next
                line, self._rest = self._rest, b""
                return line or None
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line


def _read(loop: asyncio.AbstractEventLoop, pieces: asyncio.Queue[bytes]) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody asks any more
        while True:
            # not through sys.stdin: its lock must be free when the program ends
            piece = os.read(sys.stdin.fileno(), 65_536)
            loop.call_soon_threadsafe(pieces.put_nowait, piece)
            if not piece:
                return


def _question(approval: Approval) -> Iterator[str]:
    yield f"May {approval.target} begin? ({approval.rule})"
    for name, value in approval.arguments.items():
        yield from _argument(name, value)
    yield _choices(approval)


def _choices(approval: Approval) -> str:
    return f"y: yes, once · n: no · a: always, every {approval.target} of this session"


def _argument(name: str, value: Any) -> Iterator[str]:
    text = value if isinstance(value, str) else repr(value)
    lines = text[:_SHOWN].split("\n")
    for number, line in enumerate(lines[:_LINES]):
        # what moves a cursor could make the question look like another one
        plain = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in line)
        yield f"  {name}: {plain}" if number == 0 else f"  {' ' * len(name)}  {plain}"
    left = len(text) - len("\n".join(lines[:_LINES]))
    if left:
        yield f"  {' ' * len(name)}  … and {left:,} characters more"
