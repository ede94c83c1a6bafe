"""Sessions written turn by turn into a real log, with the real context: what a loop would do, without a loop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from logs import fresh_store
from stories import HEADER
from strategies import cell_ended, created

from prime import events as ev
from prime.context import Context
from prime.log import Log
from prime.messages import CallPart, Header, ImagePart, Request, TextPart, Usage, around, text_of
from prime.policies.base import Options
from prime.projection import message
from prime.store.base import Store
from prime.verify import verify

AFTER = "[context: 100 tokens]"


def code(size: int) -> str:
    """Return a text of ``size`` characters that is never folded."""
    return ("def f(x):\n    return x + 1\n" * (size // 26 + 1))[:size]


@dataclass(frozen=True)
class Cell:
    """A cell: what it prints, and the files that it reads (path, text, further arguments)."""

    output: str = "1"
    reads: Sequence[tuple[str, str, dict[str, Any]]] = ()
    calls: Sequence[tuple[str, dict[str, Any], Any]] = ()
    status: ev.CellStatus = "ok"
    target: str | None = None
    arguments: Any = None
    images: int = 0


@dataclass(frozen=True)
class Step:
    """A reply with the cells that it asks for."""

    text: str = ""
    cells: Sequence[Cell] = ()
    notice: str | None = None
    outcome: str = "done"


@dataclass
class Turns:
    """Writes turns. ``requests`` are those sent, ``starts`` the seqs of their steps, ``sizes`` their estimates,
    ``surfaces`` their nodes, each with whether it is a message."""

    log: Log
    context: Context
    header: Header = HEADER
    usage: bool = True
    requests: list[Request] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    surfaces: list[list[tuple[int, bool]]] = field(default_factory=list)

    def turn(self, words: str = "go", *steps: Step, images: int = 0) -> None:
        """Write a whole turn; it ends with the reply ``done`` when the last step asks for cells."""
        self.begin(words, images=images)
        for step in steps:
            self.step(step)
        if not steps or steps[-1].cells:
            self.step(Step("done"))
        self.end()

    def begin(self, words: str, *, images: int = 0) -> None:
        """Start a turn with words of a person."""
        self.log.append(ev.TurnStarted())
        self.say(words, images=images)

    def say(self, words: str, *, images: int = 0) -> None:
        """Let a person say something in the open turn."""
        parts = (TextPart(text=words), *[ImagePart(media_type="image/png", data="AAAA")] * images)
        name = f"i{len(self.log)}"
        self.log.append(ev.InputQueued(input_id=name, kind="ask", parts=parts))
        self.log.append(ev.InputClaimed(input_id=name), ev.UserSaid(input_id=name, kind="ask", parts=parts))

    def send(self) -> Request:
        """Build the next request, as the loop does, and start its step."""
        request = self.context.request(self.header)
        begun = ev.StepStarted(request=self.context.check(request), messages=len(request.messages))
        self.starts.append(len(self.log))
        self.log.append(begun)
        self.requests.append(request)
        self.sizes.append(self.context.used())
        said = self.log.pick(self.seqs)
        self.surfaces.append([(entry.seq, message(entry.event) is not None) for entry in said])
        return request

    def step(self, step: Step) -> None:
        """Write a whole step."""
        self.send()
        if step.outcome != "done":
            self.log.append(ev.StepEnded(outcome=step.outcome))
            return
        parts = [TextPart(text=step.text)] if step.text else []
        calls = [CallPart(call_id=f"call-{n}", name="repl", arguments='{"code": "1"}') for n in range(len(step.cells))]
        usage = Usage(input=self.context.used(), output=10) if self.usage else None
        stop = "calls" if calls else "end"
        self.log.append(ev.ModelReplied(parts=(*parts, *calls), stop=stop, model="m", usage=usage))
        for call, cell in zip(calls, step.cells, strict=True):
            self.cell(call.call_id, cell)
        self.log.append(ev.StepEnded(outcome="done"))
        if step.notice is not None:
            self.log.append(ev.NoticeGiven(about="test", text=step.notice))

    def cell(self, call_id: str | None, cell: Cell) -> int:
        """Write a whole cell and return where its result stands."""
        lease = f"c{len(self.log)}"
        self.log.append(ev.CellStarted(cell=lease, call_id=call_id, code="work()"))
        reads = [
            ("tools.read", {"path": path, **others}, {"path": path, "text": text, "line_count": text.count("\n")})
            for path, text, others in cell.reads
        ]
        for number, (target, arguments, value) in enumerate((*reads, *cell.calls), 1):
            started = ev.DispatchStarted(cell=lease, call=number, target=target, arguments=arguments)
            error = ev.DispatchError(code="failed", message="no") if value is None else None
            ended = ev.DispatchEnded(cell=lease, call=number, value=value, error=error, duration_s=0.0)
            self.log.append(started, ended)
        stream = "result" if cell.target else "stdout"
        self.log.append(
            ev.CellOutput(cell=lease, stream=stream, text=cell.output, target=cell.target, arguments=cell.arguments)
        )
        shown = around("", cell.output if len(cell.output) < 12_000 else cell.output[:6_000], AFTER)
        pictures = [ImagePart(media_type="image/png", data="AAAA")] * cell.images
        parts = (TextPart(text=shown), *pictures)
        self.log.append(cell_ended(lease, call_id, status=cell.status, shown=parts, after=AFTER))
        return len(self.log) - 1

    def end(self) -> None:
        """End the turn."""
        self.log.append(ev.TurnEnded(reason="completed"))

    def replaced(self, policy: str | None = None) -> list[ev.Entry]:
        """Return the replacements, of one policy when it is given."""
        found = self.log.entries(types=("surface_replaced",))
        return [entry for entry in found if policy in (None, entry.event.policy)]

    def texts(self) -> list[str]:
        """Return the texts of the newest request."""
        return [text_of(message.parts) for message in self.requests[-1].messages]

    @property
    def seqs(self) -> tuple[int, ...]:
        """What is on the surface."""
        return self.log.state.surface.seqs


@contextlib.contextmanager
def session(options: Options, *, window: int | None = None, usage: bool = True) -> Iterator[Turns]:
    """Give a fresh session; at the end its whole log is checked, every request with it."""
    with fresh_store() as store:
        yield begun(store, options, window=window, usage=usage)
        verify(store)


def begun(store: Store, options: Options, *, window: int | None = None, usage: bool = True) -> Turns:
    """Return a session over ``store``, which may hold the beginning of it."""
    log = Log(store)
    if not len(log):
        log.append(created())
    else:
        log.append(ev.SessionResumed(version="0"))
    return Turns(log, Context(log, options, window=lambda: window), usage=usage)
