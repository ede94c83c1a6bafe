"""The interactive terminal: a prompt that stays open while the agent works, and what happens printed above it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from rich.text import Text

from prime import app, models
from prime import events as ev
from prime.agent import Agent
from prime.cli import inspections, recorded
from prime.cli.approvals import Person
from prime.cli.headless import progress
from prime.config import Config
from prime.errors import PrimeError
from prime.log import read
from prime.messages import Delta
from prime.pricing import Prices, shown
from prime.screen import collapsed
from prime.sessions import Sessions
from prime.views import terminal
from prime.views.transcript import one_line, transcript

Leaving = Literal["quit", "new"]


async def chat(config: Config, cwd: Path | None, session: str | None) -> int:
    """Talk until the person leaves; return the exit code."""
    choice = await models.choose(config)
    config = config.model_copy(update={"model": choice.model})
    prompt = _prompt(config.home)
    with patch_stdout(raw=True):
        console = terminal.console()
        console.print(terminal.note(f"model {choice.model} · {choice.why} · /help"))
        while True:
            person = Person(lambda line: console.print(Text(f"  {line}", style="yellow")))
            provider = models.resolve(config)
            async with app.running(config, cwd, provider, session=session, approve=person.approve) as agent:
                _greet(config, agent, session is not None)
                stop = agent.observe(progress(console, config, agent.session).take)
                try:
                    leaving = await Conversation(config, agent, prompt, person).run()
                finally:
                    if not agent.accompanied:  # else their end is still to be seen
                        stop()
                if left := agent.state.running.alive:
                    console.print(terminal.note(f"ended with the session: {', '.join(job.label for job in left)}"))
            if leaving == "quit":
                console.print(terminal.note(f"prime-repl chat --session {agent.session} goes on here"))
                return 0
            session = None


class Conversation:
    """Reads lines and does what they say, for as long as one session is open."""

    def __init__(self, config: Config, agent: Agent, prompt: PromptSession[str], person: Person) -> None:
        self._config = config
        self._agent = agent
        self._prompt = prompt
        self._person = person
        self._console = terminal.console()
        self._sessions = Sessions(config.home)
        self._tasks: set[asyncio.Task[None]] = set()
        self._since = time.monotonic()

    async def run(self) -> Leaving:
        """Read lines until one of them, or Ctrl-D, leaves."""
        stop = self._agent.observe(self._mark)
        try:
            while True:
                try:
                    line = await self._prompt.prompt_async("› ", bottom_toolbar=self._toolbar, refresh_interval=1.0)
                except KeyboardInterrupt:
                    self._interrupt()
                    continue
                except EOFError:
                    return "quit"
                if line.strip() and (leaving := self._do(line.strip())) is not None:
                    return leaving
        finally:
            stop()
            for task in self._tasks:  # the person leaves while something runs
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def _do(self, line: str) -> Leaving | None:
        if self._person.take(line):
            return None
        name, *rest = line.split(maxsplit=1)
        if line.startswith("!"):
            name, rest = "/cell", [line[1:]]
        if (command := COMMANDS.get(name)) is not None:
            try:
                return command.act(self, "".join(rest).strip())
            except (PrimeError, OSError) as error:
                self._say(f"error: {error}", "red")
        elif name.startswith("/") and "/" not in name[1:]:
            self._say(f"there is no command {name}; /help lists them", "red")
        elif self._working:
            self._agent.steer(line)
        else:
            self._start(self._agent.ask(line))
        return None

    def _start(self, work: Coroutine[object, object, object]) -> None:
        """Have something done while the prompt stays open."""

        async def done() -> None:
            try:
                await work
            except Exception as error:  # nobody waits for it: the person is the one to tell
                self._say(f"error: {error}", "red")

        task = asyncio.create_task(done())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def help(self, rest: str) -> None:
        """Say what can be typed."""
        rows = [(f"{name} {command.argument}", command.does) for name, command in COMMANDS.items()]
        for keys, does in (*KEYS, *rows):
            self._console.print(f"  {keys:<16} {does}")

    def cell(self, code: str) -> None:
        """Run a cell, without waiting for it: Ctrl-C interrupts it like a turn."""
        if not code:
            self._say("write the code behind it: /cell 1 + 1", "red")
        else:
            self._start(self._agent.cell(code))  # after a running turn or cell

    def names(self, rest: str) -> None:
        """List the names alive in the kernel, also while a cell runs, and where that is."""
        self._start(self._names())

    async def _names(self) -> None:
        inspection = await self._agent.inspect()
        for line in inspections.lines(inspection):
            self._say(line)

    def jobs(self, rest: str) -> None:
        """List the jobs that run."""
        alive = self._agent.state.running.alive
        for job in alive:
            self._say(f"{job.label}: {one_line(job.started.command)}")
        if not alive:
            self._say("none runs")

    def notes(self, rest: str) -> None:
        """Print the agent's note."""
        note = self._agent.state.notes
        self._console.print(collapsed(note.text) if note else terminal.note("no note yet"))

    def sessions(self, rest: str) -> None:
        """List the newest sessions."""
        for number, row in enumerate(recorded.rows(self._sessions)):
            if number == 10:
                break
            here = "*" if row.id == self._agent.session else " "
            self._console.print(f"{here} {row.id}  {row.turns:>3} turns  {collapsed(one_line(row.title, 40))}")

    def usage(self, rest: str) -> None:
        """Say what the session cost so far."""
        for model, used in self._agent.state.usage.items():
            price = shown(Prices(self._config.prices).cost(model, used))
            self._say(f"{model}: {used.prompt:,} tokens in, {used.output:,} out, price {price}")
        if not self._agent.state.usage:
            self._say("nothing yet")

    def export(self, file: str) -> None:
        """Write the session as Markdown."""
        output = Path(file or f"{self._agent.session}.md").expanduser()
        recorded.export_from(self._sessions, self._agent.session, "md", output)
        self._say(f"written to {output}")

    def new(self, rest: str) -> Leaving:
        """End this session and begin another."""
        return "new"

    def quit(self, rest: str) -> Leaving:
        """Leave."""
        return "quit"

    def _interrupt(self) -> None:
        if self._working:
            self._agent.interrupt()
        else:
            self._say("Ctrl-D leaves")

    def _toolbar(self) -> str:
        if self._person.asked:
            return " a call waits for your answer: y / n / a · Ctrl-C interrupts"
        if self._working:
            return f" working {time.monotonic() - self._since:.0f} s · Ctrl-C interrupts · Enter steers"
        if self._agent.accompanied:
            return " its children work · Enter sends · /help · Ctrl-D stops them and leaves"
        return f" {self._config.model} · Enter sends · Alt-Enter new line · /help · Ctrl-D leaves"

    @property
    def _working(self) -> bool:
        return not self._agent.state.trace.quiet or bool(self._agent.state.inbox.wakes)

    def _mark(self, item: ev.Entry | Delta) -> None:
        match item:
            case ev.Entry(event=ev.TurnStarted() | ev.CellStarted(call_id=None)):
                self._since = time.monotonic()

    def _say(self, words: str, style: str = "dim") -> None:
        self._console.print(terminal.note(words, style))


@dataclass(frozen=True, slots=True)
class Command:
    """A line that begins with a slash: what stands behind it, what it does, and how."""

    argument: str
    does: str
    act: Callable[[Conversation, str], Leaving | None]


KEYS = (
    ("Enter", "send; while the agent works: steer it"),
    ("Alt-Enter", "begin a new line"),
    ("Ctrl-C", "interrupt the turn or cell and keep the session"),
    ("Ctrl-D", "leave"),
)
COMMANDS = {
    "/help": Command("", "this list", Conversation.help),
    "/cell": Command("CODE", "run a cell in the agent's kernel; !CODE is the same", Conversation.cell),
    "/names": Command("", "names alive in the kernel, with sizes, and where the cell is", Conversation.names),
    "/jobs": Command("", "the jobs that run; they end with the session", Conversation.jobs),
    "/notes": Command("", "the agent's note", Conversation.notes),
    "/usage": Command("", "tokens and price so far", Conversation.usage),
    "/sessions": Command("", "the newest sessions", Conversation.sessions),
    "/export": Command("[FILE]", "write this session as Markdown", Conversation.export),
    "/new": Command("", "begin a new session", Conversation.new),
    "/quit": Command("", "leave", Conversation.quit),
}


def _prompt(home: Path) -> PromptSession[str]:
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    completer = WordCompleter(
        list(COMMANDS), sentence=True, meta_dict={name: command.does for name, command in COMMANDS.items()}
    )
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return PromptSession(history=FileHistory(str(home / "chat-history")), completer=completer, key_bindings=keys)


def _greet(config: Config, agent: Agent, resumed: bool) -> None:
    """Say where the conversation is, with the last turn of one that goes on."""
    console = terminal.console()
    console.print(terminal.note(f"session {agent.session}"))
    if not resumed:
        return
    with Sessions(config.home).read(agent.session) as store:
        turns = transcript(read(store)).turns
    if turns:
        console.print(terminal.turn(turns[-1]))
