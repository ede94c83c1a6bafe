"""A running session on a terminal: what happens is printed as it happens, and nothing is ever redrawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from prime import events as ev
from prime.messages import Delta, ImagePart, text_of
from prime.screen import collapsed
from prime.views import terminal
from prime.views.calls import called
from prime.views.transcript import notice, one_line

#: Calls of a cell that get a line of their own; the rest are counted when the cell ends.
CALLS_SHOWN = 5


class Progress:
    """Prints what it is given on ``console``.

    ``keep_image`` stores an image of the entry ``seq`` and returns where, for people.
    """

    def __init__(self, console: Console, keep_image: Callable[[int, ImagePart], str]) -> None:
        self._console = console
        self._keep_image = keep_image
        self._words = Words(console)
        self._targets: list[str] = []
        self._stepped = False

    def take(self, item: ev.Entry | Delta) -> None:
        """Print one log entry or piece of a reply."""
        if isinstance(item, Delta):
            if item.kind == "text":
                self._words.add(item.text)
            return
        rule = _RULES.get(type(item.event))
        if rule is not None:
            rule(self, item, item.event)
        elif (text := notice(item.event)) is not None:
            self._print(terminal.note(text))

    def _print(self, what: RenderableType) -> None:
        self._words.end()
        self._console.print(what, soft_wrap=True)

    def _turn_started(self, entry: ev.Entry, event: ev.TurnStarted) -> None:
        self._stepped = False

    def _step_started(self, entry: ev.Entry, event: ev.StepStarted) -> None:
        self._stepped = True

    def _said(self, entry: ev.Entry, event: ev.UserSaid) -> None:
        if self._stepped:  # what began the turn stands above it
            self._print(terminal.note(f"{event.kind}: {one_line(text_of(event.parts))}", "cyan"))

    def _replied(self, entry: ev.Entry, event: ev.ModelReplied) -> None:
        if not self._words.streamed and (text := text_of(event.parts)):
            self._words.add(text)
        self._words.end()
        self._words.streamed = False
        if event.interrupted:
            self._print(terminal.note("interrupted here", "yellow"))

    def _failed(self, entry: ev.Entry, event: ev.RequestFailed) -> None:
        self._words.end()
        self._words.streamed = False
        self._print(terminal.note(notice(event) or "", "yellow"))

    def _cell_started(self, entry: ev.Entry, event: ev.CellStarted) -> None:
        self._targets = []
        self._print(terminal.code(event.code))

    def _cell_output(self, entry: ev.Entry, event: ev.CellOutput) -> None:
        if event.image is not None:
            self._print(terminal.note(f"image saved: {self._keep_image(entry.seq, event.image)}", "green"))

    def _cell_ended(self, entry: ev.Entry, event: ev.CellEnded) -> None:
        self._print(terminal.result(event, self._targets))

    def _dispatch_started(self, entry: ev.Entry, event: ev.DispatchStarted) -> None:
        self._targets.append(event.target)
        if len(self._targets) <= CALLS_SHOWN:
            line = one_line(f"→ {called(event.target, event.arguments)}", max(self._console.width - 4, 20))
            self._print(Text(f"  {collapsed(line)}", style="dim"))
        elif len(self._targets) == CALLS_SHOWN + 1:
            self._print(Text("  → …", style="dim"))

    def _dispatch_refused(self, entry: ev.Entry, event: ev.DispatchRefused) -> None:
        line = one_line(f"denied: {called(event.target, event.arguments)}", max(self._console.width - 4, 20))
        self._print(Text(f"  {collapsed(line)}", style="yellow"))

    def _turn_ended(self, entry: ev.Entry, event: ev.TurnEnded) -> None:
        if event.reason != "completed":
            self._print(terminal.note(f"{event.reason}: {event.detail}".rstrip(": "), "yellow"))


_RULES: dict[type, Callable[[Progress, ev.Entry, Any], None]] = {
    ev.TurnStarted: Progress._turn_started,
    ev.StepStarted: Progress._step_started,
    ev.UserSaid: Progress._said,
    ev.ModelReplied: Progress._replied,
    ev.RequestFailed: Progress._failed,
    ev.CellStarted: Progress._cell_started,
    ev.CellOutput: Progress._cell_output,
    ev.CellEnded: Progress._cell_ended,
    ev.DispatchStarted: Progress._dispatch_started,
    ev.DispatchRefused: Progress._dispatch_refused,
    ev.TurnEnded: Progress._turn_ended,
}


class Words:
    """Streaming text in whole lines, broken at spaces, so that a prompt below it is never drawn into a half one.

    ``streamed`` says whether anything came since it was last set to False.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._line = ""
        self.streamed = False

    def add(self, text: str) -> None:
        """Take in a piece of text and print the lines that it completes."""
        self.streamed = True
        *lines, rest = (self._line + text).split("\n")
        for line in lines:
            self._write(self._broken(line))
        self._line = self._broken(rest)

    def end(self) -> None:
        """Print what is left of a line."""
        if self._line:
            self._write(self._line)
        self._line = ""

    def _broken(self, line: str) -> str:
        """Print what of a line does not fit, and return its rest."""
        width = self._console.width
        while len(line) > width:
            head, _, tail = line[: width + 1].rpartition(" ")
            if not head.strip():
                break  # one long word: the terminal breaks it
            self._write(head)
            line = tail + line[width + 1 :]
        return line

    def _write(self, line: str) -> None:
        self._console.print(Text(collapsed(line)), soft_wrap=True)
