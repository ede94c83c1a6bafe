"""The screen of a terminal: what a person would see, from what the program writes."""

from __future__ import annotations

from collections.abc import Callable

from pyghostty import Terminal, ffi, lib
from pyghostty.core import check, init_sized

#: Lines that have left the screen and are kept until they are read, and bytes of memory for them.
SCROLLBACK, SCROLLBACK_BYTES = 5_000, 16 * 1024 * 1024
#: From so many on the oldest may be gone: whole pages of them are dropped.
_NEARLY = SCROLLBACK * 9 // 10
#: Saved lines are erased with it.
_ERASE = b"\x1b[3J"


class Emulator:
    """A terminal that only exists as its state. ``reply`` gets what it answers to the program.

    The library is thin over native code; what it lacks is asked of that code by the names of its C interface.
    """

    def __init__(self, rows: int, cols: int, reply: Callable[[bytes], None]) -> None:
        self._terminal = Terminal(cols=cols, rows=rows, scrollback=SCROLLBACK)
        most = ffi.new("size_t*", SCROLLBACK_BYTES)
        setting = lib.GHOSTTY_TERMINAL_OPT_SCROLLBACK_MAX_BYTES
        check(lib.ghostty_terminal_set(self._terminal._t[0], setting, most), "set scrollback bytes")
        self._terminal.on_reply(reply)
        self._left_out = False

    def feed(self, data: bytes) -> None:
        """Take in what the program writes."""
        before = self._scrolled
        self._terminal.feed(data)
        after = self._scrolled
        # it falls also when the program erases them itself, or shows its other screen: too often is better than never
        self._left_out |= after > _NEARLY or (after < before and not self.alternate)

    def resize(self, rows: int, cols: int) -> None:
        """Change the size; what does not fit into a line is broken anew."""
        self._terminal.resize(cols, rows)

    def take(self) -> tuple[str, bool]:
        """Return the lines that have left the screen since this was last called, and whether earlier ones are gone."""
        rows = self._scrolled
        text = ""
        if rows:
            terminal = self._terminal
            chosen = init_sized("GhosttySelection")
            chosen.start = terminal.ref(0, 0, "history")[0]
            chosen.end = terminal.ref(terminal.size[0] - 1, rows - 1, "history")[0]
            text = terminal._format_sel(chosen, unwrap=True)
        left_out = self._left_out
        if self._terminal.get("vt_ground", "bool"):  # in the middle of a sequence nothing may be put in
            self._terminal.feed(_ERASE)
            self._left_out = False
        return text, left_out

    @property
    def text(self) -> str:
        """The screen, without what is empty at the ends of lines and at its own."""
        return str(self._terminal.text())

    @property
    def cursor(self) -> tuple[int, int]:
        """Row and column of the cursor, from 0."""
        column, row = self._terminal.cursor
        return row, column

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        cols, rows = self._terminal.size
        return rows, cols

    @property
    def title(self) -> str:
        """The title that the program has set."""
        title = self._terminal.get("title", "GhosttyString")
        return bytes(ffi.buffer(title.ptr, title.len)[:]).decode(errors="replace") if title.len else ""

    @property
    def alternate(self) -> bool:
        """Whether the program shows its second screen, as those that fill the screen do."""
        return bool(self._terminal.get("active_screen", "GhosttyTerminalScreen"))

    @property
    def bracketed_paste(self) -> bool:
        """Whether the program wants to know what is pasted."""
        return bool(self._terminal.mode(2004))

    @property
    def application_keys(self) -> bool:
        """Whether the program wants the application's sequences for cursor keys."""
        return bool(self._terminal.mode(1))

    @property
    def _scrolled(self) -> int:
        return int(self._terminal.get("scrollback_rows", "size_t"))
