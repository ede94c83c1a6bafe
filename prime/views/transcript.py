"""What a person sees of a session: turns, steps, cells, calls. Pure, from appended entries.

Made from what was appended and not from the surface, so a fold or a sealed turn never takes away what was shown. Also
the log of a session that still runs has a transcript: what is open is there with its end missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from prime import events as ev
from prime.messages import CallPart, ImagePart, ReasoningPart, ShownPart, Usage, text_of, thaw
from prime.pricing import Spent
from prime.running import Job


class Image(NamedTuple):
    """An image with the file name that it has in exports."""

    name: str
    part: ImagePart


@dataclass(slots=True)
class Call:
    """A host call of a cell; ``ended`` is None while it runs."""

    number: int
    target: str
    arguments: Any
    ended: ev.DispatchEnded | None = None


@dataclass(slots=True)
class Output:
    """A piece of a cell's output, with the seq of its entry."""

    seq: int
    event: ev.CellOutput


@dataclass(slots=True)
class Cell:
    """A cell. ``by_hand``: no model asked for it. ``ended`` is None while it runs."""

    seq: int
    code: str
    by_hand: bool
    outputs: list[Output] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    ended: ev.CellEnded | None = None

    @property
    def images(self) -> list[Image]:
        """The images that it showed."""
        pieces = [(output.seq, output.event.image) for output in self.outputs if output.event.image is not None]
        return [Image(image_name(seq, image), image) for seq, image in pieces]


@dataclass(slots=True)
class Said:
    """Words of a person. ``kind`` is how they came: ``ask``, ``steer`` or ``inform``."""

    seq: int
    at: int
    kind: ev.InputKind
    parts: tuple[ShownPart, ...]

    @property
    def text(self) -> str:
        """The words."""
        return text_of(self.parts)

    @property
    def images(self) -> list[Image]:
        """The images beside the words; several in one entry are numbered."""
        shown = [part for part in self.parts if isinstance(part, ImagePart)]
        return [Image(image_name(self.seq, part, number), part) for number, part in enumerate(shown)]


@dataclass(slots=True)
class Notice:
    """Something that neither a person nor the model said. ``about`` is a stable word, ``text`` is for people."""

    seq: int
    about: str
    text: str


@dataclass(slots=True)
class Reply:
    """A reply of the model, without its calls: those are the cells that follow. ``usage`` is None when unreported."""

    seq: int
    text: str
    reasoning: str
    calls: int
    usage: Usage | None
    interrupted: bool


@dataclass(slots=True)
class Step:
    """One model request and the cells that came of it. ``model`` is its name in the header."""

    number: int
    model: str
    items: list[Reply | Cell | Notice] = field(default_factory=list)


@dataclass(slots=True)
class Turn:
    """From an input to nothing owed; ``ended`` is None while it runs."""

    number: int
    seq: int
    at: int
    items: list[Said | Notice | Step] = field(default_factory=list)
    ended: ev.TurnEnded | None = None


@dataclass(slots=True)
class Transcript:
    """A whole session. ``started`` is in milliseconds since the epoch; ``model`` is that of the newest header, empty
    without one; ``spent`` are the tokens that providers reported, for a fork without its parent's."""

    session: str = ""
    parent: str | None = None
    cwd: str = ""
    started: int = 0
    model: str = ""
    spent: list[Spent] = field(default_factory=list)
    items: list[Turn | Cell | Notice] = field(default_factory=list)

    @property
    def usage(self) -> dict[str, Usage]:
        """The reported tokens by the model's full name."""
        found: dict[str, Usage] = {}
        for each in self.spent:
            found[each.model] = found.get(each.model, Usage()) + each.usage
        return found

    @property
    def turns(self) -> list[Turn]:
        """The turns in order."""
        return [item for item in self.items if isinstance(item, Turn)]

    @property
    def cells(self) -> list[Cell]:
        """The cells in order: the model's and those run by hand."""
        found = []
        for item in self.items:
            steps = [each for each in item.items if isinstance(each, Step)] if isinstance(item, Turn) else []
            found += [each for step in steps for each in step.items if isinstance(each, Cell)]
            found += [item] if isinstance(item, Cell) else []
        return found

    @property
    def images(self) -> list[Image]:
        """All images: those of the cells and those that a person showed."""
        said = [each for turn in self.turns for each in turn.items if isinstance(each, Said)]
        return [image for cell in self.cells for image in cell.images] + [image for one in said for image in one.images]

    @property
    def title(self) -> str:
        """One line that says what the session is about: its first words, else its first code; empty without either."""
        said = next((each.text for turn in self.turns for each in turn.items if isinstance(each, Said)), "")
        return one_line(said or next((cell.code for cell in self.cells), ""))


def one_line(text: str, limit: int = 80) -> str:
    """Return the words of ``text`` in one line of at most ``limit`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def transcript(entries: Iterable[ev.Entry]) -> Transcript:
    """Return the transcript of a log or of its beginning."""
    reading = _Reading()
    for entry in entries:
        reading.take(entry)
    return reading.whole


class _Reading:
    """A transcript that grows by one entry at a time."""

    def __init__(self) -> None:
        self.whole = Transcript()
        self._turn: Turn | None = None
        self._step: Step | None = None
        self._cells: dict[str, Cell] = {}
        self._calls: dict[tuple[str, int], Call] = {}
        self._turns = 0

    def take(self, entry: ev.Entry) -> None:
        event = entry.event
        rule = _RULES.get(type(event))
        if rule is not None:
            rule(self, entry, event)
        elif (text := notice(event)) is not None:
            self._add(Notice(entry.seq, event.type, text))

    def created(self, entry: ev.Entry, event: ev.SessionCreated) -> None:
        self.whole.session, self.whole.cwd, self.whole.started = event.session, event.cwd, entry.at
        if event.parent is not None:
            self._add(Notice(entry.seq, event.type, f"child of {event.parent}"))

    def forked(self, entry: ev.Entry, event: ev.SessionForked) -> None:
        self.whole.session, self.whole.parent, self.whole.started = event.session, event.parent, entry.at
        self.whole.spent = []
        how = "child of" if event.child else "forked from"
        self._add(Notice(entry.seq, event.type, f"{how} {event.parent}"))

    def header(self, entry: ev.Entry, event: ev.HeaderChanged) -> None:
        self.whole.model = event.header.model

    def turn_started(self, entry: ev.Entry, event: ev.TurnStarted) -> None:
        self._turns += 1
        self._turn = Turn(self._turns, entry.seq, entry.at)
        self.whole.items.append(self._turn)

    def turn_ended(self, entry: ev.Entry, event: ev.TurnEnded) -> None:
        assert self._turn is not None
        self._turn.ended, self._turn = event, None

    def step_started(self, entry: ev.Entry, event: ev.StepStarted) -> None:
        assert self._turn is not None
        number = sum(isinstance(item, Step) for item in self._turn.items) + 1
        self._step = Step(number, self.whole.model)
        self._turn.items.append(self._step)

    def step_ended(self, entry: ev.Entry, event: ev.StepEnded) -> None:
        self._step = None

    def said(self, entry: ev.Entry, event: ev.UserSaid) -> None:
        assert self._turn is not None
        self._turn.items.append(Said(entry.seq, entry.at, event.kind, event.parts))

    def replied(self, entry: ev.Entry, event: ev.ModelReplied) -> None:
        reasoning = "".join(part.text for part in event.parts if isinstance(part, ReasoningPart) and not part.redacted)
        calls = sum(isinstance(part, CallPart) for part in event.parts)
        self._add(Reply(entry.seq, text_of(event.parts), reasoning, calls, event.usage, event.interrupted))
        self._used(entry.at, self.whole.model, event.usage)

    def query_ended(self, entry: ev.Entry, event: ev.QueryEnded) -> None:
        self._used(entry.at, event.model, event.reply.usage if event.reply is not None else None)

    def cell_started(self, entry: ev.Entry, event: ev.CellStarted) -> None:
        self._cells[event.cell] = cell = Cell(entry.seq, event.code, event.call_id is None)
        self._add(cell)

    def cell_output(self, entry: ev.Entry, event: ev.CellOutput) -> None:
        if event.cell in self._cells:  # a late piece may be of a cell before a fork's first entry
            self._cells[event.cell].outputs.append(Output(entry.seq, event))

    def cell_ended(self, entry: ev.Entry, event: ev.CellEnded) -> None:
        self._cells[event.cell].ended = event

    def dispatch_started(self, entry: ev.Entry, event: ev.DispatchStarted) -> None:
        self._calls[event.cell, event.call] = call = Call(event.call, event.target, thaw(event.arguments))
        self._cells[event.cell].calls.append(call)

    def dispatch_refused(self, entry: ev.Entry, event: ev.DispatchRefused) -> None:
        error = ev.DispatchError(code="denied", message=event.reason)
        ended = ev.DispatchEnded(cell=event.cell, call=event.call, value=None, error=error, duration_s=0.0)
        self._cells[event.cell].calls.append(Call(event.call, event.target, thaw(event.arguments), ended))

    def dispatch_ended(self, entry: ev.Entry, event: ev.DispatchEnded) -> None:
        self._calls[event.cell, event.call].ended = event

    def _used(self, at: int, model: str, usage: Usage | None) -> None:
        if usage is not None:
            self.whole.spent.append(Spent(at, model, usage))

    def _add(self, item: Reply | Cell | Notice) -> None:
        if self._step is not None:
            self._step.items.append(item)
        elif self._turn is not None and isinstance(item, Notice):
            self._turn.items.append(item)
        else:
            assert not isinstance(item, Reply)
            self.whole.items.append(item)


def notice(event: Any) -> str | None:
    """Return what a person should read of an event that is neither words, cell nor bracket; None for nothing."""
    match event:
        case ev.NoticeGiven(text=text) | ev.CallRefused(text=text):
            return text
        case ev.RequestFailed():
            return f"attempt {event.attempt} failed: {event.code}: {event.message}"
        case ev.RetryScheduled():
            return f"trying again in {event.delay_s:.1f} s"
        case ev.KernelLost():
            return f"the kernel is gone: {event.reason}"
        case ev.SnapshotSaved():
            less = f", without {', '.join(event.left_out)}" if event.left_out else ""
            return f"{len(event.names)} variables saved{less}"
        case ev.SnapshotSkipped():
            return f"the variables were not saved: {event.reason}"
        case ev.NamespaceRestored():
            less = f"; missing: {', '.join(event.missing)}" if event.missing else ""
            return f"{len(event.restored)} variables restored{less}"
        case ev.JobStarted():
            return f"{Job(event).label} started: {event.command}"
        case ev.JobEnded(reason="lost"):
            return f"job {event.job} was lost with the process that ran it"
        case ev.JobEnded():
            how = f"ended by {event.signal}" if event.signal else f"exit code {event.exit_code}"
            return f"job {event.job} ended ({event.reason}): {how}"
        case ev.ChildSpawned() | ev.ChildSettled():
            return _of_child(event)
        case ev.SurfaceReplaced():
            return f"{len(event.sources)} entries left the window ({event.policy}); the log keeps them"
        case ev.QueryAsked(about=about) if about is not None:
            return f"the model is asked beside the conversation: {about}"
        case ev.ContractBroken():
            done = "the rule is suspended" if event.suspended else "the write was refused"
            return f"{event.path} breaks rule {event.rule}: {event.found}; {done}"
        case ev.NotesWritten():
            return f"note {event.revision} written"
    return None


def _of_child(event: ev.ChildSpawned | ev.ChildSettled) -> str:
    if isinstance(event, ev.ChildSpawned):
        return f"child {event.name} started: {event.agent_id}"
    return f"child {event.agent_id} settled: {event.settlement.outcome} {event.settlement.detail}".rstrip()


_RULES: dict[type, Callable[[_Reading, ev.Entry, Any], None]] = {
    ev.SessionCreated: _Reading.created,
    ev.SessionForked: _Reading.forked,
    ev.HeaderChanged: _Reading.header,
    ev.TurnStarted: _Reading.turn_started,
    ev.TurnEnded: _Reading.turn_ended,
    ev.StepStarted: _Reading.step_started,
    ev.StepEnded: _Reading.step_ended,
    ev.UserSaid: _Reading.said,
    ev.ModelReplied: _Reading.replied,
    ev.QueryEnded: _Reading.query_ended,
    ev.CellStarted: _Reading.cell_started,
    ev.CellOutput: _Reading.cell_output,
    ev.CellEnded: _Reading.cell_ended,
    ev.DispatchStarted: _Reading.dispatch_started,
    ev.DispatchRefused: _Reading.dispatch_refused,
    ev.DispatchEnded: _Reading.dispatch_ended,
}


def image_name(seq: int, image: ImagePart, number: int = 0) -> str:
    """Return the file name of image ``number``, from 0, of entry ``seq``."""
    place = f"{seq}-{number + 1}" if number else str(seq)
    return f"image-{place}.{image.media_type.removeprefix('image/').partition('+')[0]}"
