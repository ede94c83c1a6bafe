"""``tools.terminal_*``: programs with a keyboard and a screen, over calls."""

from __future__ import annotations

import asyncio
import signal as signals
from types import TracebackType
from typing import Annotated, Any, Literal

import regex
from pydantic import Field

from prime import events as ev
from prime import guest
from prime.errors import ToolFailed
from prime.jobs.numbers import Numbers
from prime.log import Log
from prime.notices import Notices
from prime.running import Job
from prime.terminals import values
from prime.terminals.keys import encoded
from prime.terminals.pty import Pty
from prime.terminals.terminal import LiveTerminal
from prime.tools.base import Tool, tool, waiting
from prime.tools.files import existing_folder
from prime.tools.process import shell
from prime.tools.workspace import Workspace

#: Screens of programs that have ended that can still be read.
KEPT = 8

Rows = Annotated[int, Field(ge=2, le=200)]
Cols = Annotated[int, Field(ge=10, le=500)]
SignalName = Literal["INT", "TERM", "KILL", "HUP", "QUIT", "TSTP", "CONT"]


class Terminals:
    """The terminals of one session. Use as an async context manager: what runs at the end of the block is ended."""

    def __init__(self, log: Log, numbers: Numbers) -> None:
        self._log = log
        self._numbers = numbers
        self._notices = Notices(log)
        self._live: dict[int, LiveTerminal] = {}

    async def __aenter__(self) -> Terminals:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(live.end("closed") for live in self._live.values()))

    async def open(
        self,
        workspace: Workspace,
        command: str | None = None,
        *,
        name: str | None = None,
        rows: Rows = 24,
        cols: Cols = 80,
        cwd: str | None = None,
    ) -> values.Opened:
        """Start a program on a terminal of its own, for what wants a keyboard and a screen: a REPL, an editor, an
        installer. By default a shell. It outlives this cell and this turn.

        What needs neither is better run with tools.bash or jobs.start. What still runs is ended with the session.
        """
        from prime.terminals.emulator import Emulator  # noqa: PLC0415 - its library takes a third of a second

        folder = existing_folder(workspace, cwd or ".")
        program, *rest = shell(workspace, command or "")
        arguments = [program, *rest] if command else [program]
        async with self._numbers.next() as number:
            pty = Pty(rows, cols)
            emulator = Emulator(rows, cols, pty.reply)
            try:
                process = await pty.start(
                    workspace.command(arguments, folder), folder, guest.interactive(workspace.environment)
                )
                begun = ev.JobStarted(
                    job=number,
                    kind="terminal",
                    name=name or "",
                    command=command or program,
                    cwd=str(folder),
                    pid=process.pid,
                )
                self._log.append(begun, durable=True)
            except OSError as error:
                pty.close()
                raise ToolFailed("not_started", f"the program could not be started: {error.strerror}") from None
            except BaseException:
                pty.close()  # which ends what has started: it hangs up
                raise
            self._forget()
            self._live[number] = LiveTerminal(self._log, begun, process, pty, emulator)
        return values.Opened(terminal_id=number, pid=process.pid)

    async def send(
        self,
        terminal_id: int,
        text: Annotated[str, Field(max_length=64 * 1024)] = "",
        *,
        keys: Annotated[list[str], Field(max_length=1_000)] = [],  # noqa: B006 - pydantic copies it
    ) -> values.Sent:
        """Type `text`, then the `keys` by name: "enter", "tab", "escape", "up", "pagedown", "f1", "backspace",
        "ctrl-c", "alt-x", "shift-tab". Enter is a key: text="print(1)", keys=["enter"].

        Several lines are pasted as one text where the program knows the difference; elsewhere each line end is Enter.
        """
        live = self._running(terminal_id)
        screen = live.emulator
        typed = text.replace("\r\n", "\n")
        if "\n" in typed and screen.bracketed_paste:
            typed = f"\x1b[200~{typed.replace(chr(27), '')}\x1b[201~"
        else:
            typed = typed.replace("\n", "\r")
        typed += "".join(encoded(key, application=screen.application_keys) for key in keys)
        data = typed.encode()
        await live.send(data)
        return values.Sent(sent=len(data))

    async def read(
        self,
        terminal_id: int,
        *,
        wait_s: Annotated[float, Field(ge=0, le=86_400)] = 10,
        until: str | None = None,
        quiet_s: Annotated[float, Field(gt=0, le=60)] = 0.3,
    ) -> values.Shown:
        """Return the screen, the cursor, and the lines that have scrolled off since it was last read. Before that, wait
        until nothing was written for `quiet_s`, or until the regular expression `until` is found in what was written
        since you last sent something; `wait_s` seconds at most.

        The wait does not count towards the cell's deadline. Whether a program is done only its end or a prompt tells.
        """
        job, pattern = self._job(terminal_id), _pattern(until)
        live = self._live.get(terminal_id)
        if live is None:
            raise ToolFailed("gone", f"{job.label} is over ({job.outcome}), and so is its screen")
        waited = await live.wait(wait_s, pattern, quiet_s)
        if self._job(terminal_id).ended is not None:
            self._notices.withdraw(job.source)
        screen = live.emulator
        scrolled, left_out = screen.take()
        (row, col), (rows, cols) = screen.cursor, screen.size
        return values.Shown(
            **_standing(self._job(terminal_id)),
            screen=screen.text,
            scrolled=scrolled,
            left_out=left_out,
            row=row,
            col=col,
            rows=rows,
            cols=cols,
            title=screen.title,
            alternate=screen.alternate,
            waited=waited,
        )

    async def resize(self, terminal_id: int, rows: Rows, cols: Cols) -> values.TerminalInfo:
        """Change the size of a terminal, of which its program is told."""
        self._running(terminal_id).resize(rows, cols)
        return _info(self._job(terminal_id))

    async def signal(self, terminal_id: int, name: SignalName) -> values.TerminalInfo:
        """Send a signal to the program in the foreground of a terminal."""
        self._running(terminal_id).signal_foreground(signals.Signals[f"SIG{name}"])
        return _info(self._job(terminal_id))

    async def close(self, terminal_id: int) -> values.TerminalInfo:
        """Close a terminal: hang up, and a second later end everything that still runs on it."""
        self._job(terminal_id)
        if (live := self._live.get(terminal_id)) is not None:
            await live.end("killed")
            del self._live[terminal_id]
        job = self._job(terminal_id)
        self._notices.withdraw(job.source)
        return _info(job)

    async def list(self) -> values.TerminalList:
        """List the terminals of the session, those that run and those that are over."""
        jobs = [job for job in self._log.state.running.jobs.values() if job.started.kind == "terminal"]
        return values.TerminalList(terminals=tuple(map(_info, jobs)))

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools."""
        # all of them overlap: none may have to wait for another one that waits
        typed = tool(self.send, name="terminal_send", parallel=True)
        read = tool(self.read, name="terminal_read", parallel=True, effects=False, for_model=values.shown_text)
        listed = tool(self.list, name="terminal_list", parallel=True, effects=False, for_model=values.list_text)
        return (
            tool(self.open, name="terminal_open", parallel=True),
            typed,
            waiting(read),
            tool(self.resize, name="terminal_resize", parallel=True, for_model=values.info_text),
            tool(self.signal, name="terminal_signal", parallel=True, for_model=values.info_text),
            tool(self.close, name="terminal_close", parallel=True, for_model=values.info_text),
            listed,
        )

    def _forget(self) -> None:
        """Let go of the screens of programs that ended long ago."""
        over = [number for number, live in self._live.items() if live.running.done()]
        for number in over[: max(len(over) - KEPT, 0)]:
            del self._live[number]

    def _job(self, terminal_id: int) -> Job:
        job = self._log.state.running.jobs.get(terminal_id)
        if job is None or job.started.kind != "terminal":
            raise ToolFailed(
                "not_found", f"this session has no terminal {terminal_id}; terminal_list lists what it has"
            )
        return job

    def _running(self, terminal_id: int) -> LiveTerminal:
        job = self._job(terminal_id)
        live = self._live.get(terminal_id)
        if live is None or job.ended is not None:
            raise ToolFailed("not_running", f"{job.label} is over ({job.outcome})")
        return live


def _pattern(until: str | None) -> regex.Pattern[str] | None:
    try:
        return regex.compile(until, regex.MULTILINE) if until else None
    except regex.error as error:
        raise ToolFailed("bad_arguments", f"until={until!r} is no regular expression: {error}") from None


def _info(job: Job) -> values.TerminalInfo:
    return values.TerminalInfo(**_standing(job), name=job.started.name, command=job.started.command)


def _standing(job: Job) -> dict[str, Any]:
    ended = job.ended
    return {
        "terminal_id": job.started.job,
        "state": ended.reason if ended is not None else "running",
        "exit_code": ended.exit_code if ended is not None else None,
        "signal": ended.signal if ended is not None else None,
    }
