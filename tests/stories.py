"""One long session in which everything happens: the log that is cut, forked, tampered with and verified."""

from __future__ import annotations

from typing import Any

from strategies import Commit, Folded, cell_ended, created, stand_in

from prime import events as ev
from prime.messages import CallPart, Header, ImagePart, Message, TextPart, ToolSpec, Usage

HEADER = Header(
    model="scripted/a",
    system="You have a kernel.",
    tools=(ToolSpec(name="repl", description="Run a cell.", parameters={"type": "object"}),),
)
#: A value that is too large for its row.
LARGE = "line of output\n" * 10_000


class Teller:
    """Writes a story commit by commit; a request bears its true digest."""

    def __init__(self) -> None:
        self.folded = Folded()
        self.commits: list[Commit] = []

    def tell(self, *events: Any) -> None:
        """Add one commit."""
        for event in events:
            self.folded.add(event)
        self.commits.append(events)

    def say(self, input_id: str, text: str, kind: ev.InputKind = "ask") -> None:
        """Queue an input and have it claimed by the open turn."""
        parts = (TextPart(text=text),)
        self.tell(ev.InputQueued(input_id=input_id, kind=kind, parts=parts))
        self.claim(input_id, text, kind)

    def claim(self, input_id: str, text: str, kind: ev.InputKind = "ask") -> None:
        """Claim a queued input."""
        said = ev.UserSaid(input_id=input_id, kind=kind, parts=(TextPart(text=text),))
        self.tell(ev.InputClaimed(input_id=input_id), said)

    def send(self) -> None:
        """Start a step."""
        assert self.folded.state.header is not None
        self.tell(self.folded.sent(self.folded.state.header))

    def reply(self, text: str = "", *calls: str, **fields: Any) -> None:
        """Reply with a text and calls."""
        parts = [TextPart(text=text)] if text else []
        parts += [CallPart(call_id=call, name="repl", arguments='{"code": "1"}') for call in calls]
        usual = {"stop": "calls" if calls else "end", "usage": Usage(input=10, output=5)}
        self.tell(ev.ModelReplied(parts=tuple(parts), model="m", **{**usual, **fields}))

    def cell(self, cell: str, call_id: str | None, dispatches: int = 0, **fields: Any) -> None:
        """Run a cell with some host calls that overlap."""
        self.tell(ev.CellStarted(cell=cell, call_id=call_id, code="work()"))
        numbers = range(1, dispatches + 1)
        for number in numbers:
            self.tell(ev.DispatchStarted(cell=cell, call=number, target="tools.read", arguments={"path": "a"}))
        for number in reversed(numbers):
            self.tell(ev.DispatchEnded(cell=cell, call=number, value={"n": number}, error=None, duration_s=0.1))
        self.tell(cell_ended(cell, call_id, calls=dispatches, **fields))

    def end(self, outcome: Any = "done") -> None:
        """End the step."""
        self.tell(ev.StepEnded(outcome=outcome))


def kernel_started(generation: int) -> ev.KernelStarted:
    """Return the start of a kernel process."""
    return ev.KernelStarted(
        generation=generation,
        pid=1,
        executable="python",
        python="3.11",
        ipython="9",
        ipykernel="7",
        interrupts="handler",
    )


def story(session: str = "s1") -> list[Commit]:
    """Return the commits of the session; its turns end after several steps, a cancel and an error."""
    teller = Teller()
    teller.tell(created(session))
    teller.cell("c0", None)
    _first_turn(teller)
    _later_turns(teller)
    return teller.commits


def _first_turn(teller: Teller) -> None:
    """Three steps: a retry, three calls, an input that joins, two kernels."""
    tell = teller.tell
    tell(ev.TurnStarted())
    teller.say("i1", "count the tests")
    tell(ev.HeaderChanged(header=HEADER))
    teller.send()
    tell(ev.RequestFailed(attempt=1, code="server", message="overloaded", status=529))
    tell(ev.RetryScheduled(attempt=2, delay_s=0.5))
    teller.reply("Let me look.", "call_0", "call_1", "call_2")
    tell(kernel_started(1))
    teller.cell("c1", "call_0", dispatches=2, generation=1, set={"x": "int"}, shown=(TextPart(text=LARGE),))
    tell(ev.InputQueued(input_id="i2", kind="steer", parts=(TextPart(text="be quick"),)))
    tell(ev.CellOutput(cell="c1", stream="stdout", text="late", late=True))
    tell(ev.CellStarted(cell="c2", call_id="call_1", code="exit()"))
    tell(ev.CellOutput(cell="c2", stream="stdout", text="bye"))
    tell(ev.KernelLost(generation=1, reason="it exited"))
    tell(cell_ended("c2", "call_1", status="died", generation=1))
    tell(ev.CallRefused(call_id="call_2", name="other", code="unknown_tool", text="use repl"))
    teller.end()
    teller.claim("i2", "be quick", "steer")
    tell(ev.NoticeGiven(about="usage", text="The kernel is new."))
    teller.send()
    tell(kernel_started(2))
    teller.reply("", "call_0")  # the ids repeat
    image = ImagePart(media_type="image/png", data="AAAA")
    teller.cell("c3", "call_0", dispatches=1, generation=2, shown=(TextPart(text="1"), image))
    teller.end()
    teller.send()
    teller.reply("There are 3.")
    teller.end()
    tell(ev.TurnEnded(reason="completed"))


def _later_turns(teller: Teller) -> None:
    """A cancelled and a failed turn, and what happens between turns."""
    tell = teller.tell
    # between the turns: a note, a shorter surface
    tell(ev.NotesWritten(revision=1, text="3 tests"))
    tell(stand_in(teller.folded, 1, 4, "A cell counted the tests."))
    tell(ev.InputQueued(input_id="i3", kind="inform", parts=(TextPart(text="by the way"),)))
    # a cancelled turn: an empty prefix, then nothing
    tell(ev.TurnStarted())
    teller.say("i4", "and the slowest?")
    teller.send()
    teller.reply("", stop="end", usage=None, interrupted=True)
    teller.end("cancelled")
    tell(ev.TurnEnded(reason="cancelled"))
    # another model, a shorter form of a result
    last = next(node for node in reversed(teller.folded.state.surface.nodes) if node.closes is not None)
    short = Message(role="tool", parts=(TextPart(text="[image]"),), call_id=last.closes)
    tell(ev.SurfaceReplaced(start=last.seq, end=last.seq, sources=(last.seq,), message=short, policy="overflow"))
    tell(ev.HeaderChanged(header=HEADER.model_copy(update={"model": "scripted/b"})))
    tell(ev.TurnStarted())
    teller.say("i5", "again")
    teller.send()
    teller.end("overflow")
    tell(ev.TurnEnded(reason="error", detail="the request is too large"))
