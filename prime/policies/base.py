"""What a context policy sees and what it may ask for. Values only: the same policy runs live and over a recording.

Sizes of text are code points; sizes for a model are tokens as :mod:`prime.tokens` estimates them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from prime import events as ev
from prime.messages import Message
from prime.side import Side
from prime.surface import Node
from prime.tokens import estimate_message

#: How a session is kept within its window; see :func:`prime.policies.plan.plan`.
Policy = Literal["transcript", "fold", "slice", "window", "auto", "stream"]
#: What a policy may ask for. It is appended as it is.
Operation = ev.SurfaceReplaced | ev.NoticeGiven


@dataclass(frozen=True, slots=True)
class Item:
    """A node of the surface with what a policy may know of it.

    Attributes:
        node: its place in the log, and the calls it asks for or answers.
        origin: seq of the entry that it is a form of: its own, but for a result that stands in a shorter form.
        turn, step: those of the original, None for what stands in for several entries.
        event: the event at the node's seq.
        message: what the request says for it, None for nothing.
        tokens: size of that message, as estimated.
    """

    node: Node
    origin: int
    turn: int | None
    step: int | None
    event: Any
    message: Message | None
    tokens: float

    @property
    def seq(self) -> int:
        """Its place in the log."""
        return self.node.seq

    @property
    def standing_in(self) -> bool:
        """Whether it stands in for a range of entries."""
        return isinstance(self.event, ev.SurfaceReplaced) and self.event.message.role == "user"


@dataclass(frozen=True, slots=True)
class View:
    """What a policy sees before a request.

    Attributes:
        items: the surface, in order.
        next_seq: seq that the next entry of the log gets.
        sent: seq of the newest step_started, -1 before the first: what is later was never sent.
        turn: number of the open turn; every earlier one is completed.
        step: number of the coming step in the open turn, from 1.
        used: tokens of a request sent now.
        window: tokens that the model can take, None when unknown.
        measure: tokens of a message, by the same measure as those of the items.
        scale: what the model counts for each token so measured.
        model: full name of the model, for settings of its own.
        asked: whether ``context.new()`` asked for a new window.
        refused: whether the provider refused the last request for its size.
        names: names alive in the kernel, with their types.
        running: one line for each job or child that runs.
        side: the newest side call, and what came of it.
    """

    items: Sequence[Item]
    next_seq: int
    sent: int
    turn: int
    step: int
    used: int
    window: int | None
    measure: Callable[[Message], float] = estimate_message
    scale: float = 1.0
    model: str = ""
    asked: bool = False
    refused: bool = False
    names: Sequence[tuple[str, str]] = ()
    running: Sequence[str] = ()
    side: Side = field(default_factory=Side)


@dataclass(frozen=True, slots=True)
class Output:
    """The whole output of a cell, as ``history.expand`` gives it back.

    Attributes:
        text: every piece, joined.
        target, arguments: the call whose value the text is in the tool's own form, None when it is anything else.
        called: targets of the calls of the cell, each once.
        recalled: texts that calls of ``history`` gave to the cell.
    """

    text: str
    target: str | None = None
    arguments: Mapping[str, Any] | None = None
    called: tuple[str, ...] = ()
    recalled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Read:
    """A successful ``tools.read`` of text. It says what was read then, never what the file holds now.

    Attributes:
        seq: where its value stands in the log.
        path: the file as the tool names it.
        window: the other arguments as JSON, ``default`` when there are none.
        lines: how many lines it gave.
        fingerprint: the start of the SHA-256 of the text that it gave, in hex.
    """

    seq: int
    turn: int
    step: int
    path: str
    window: str
    lines: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """Words of a person."""

    seq: int
    turn: int
    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """The session's note; ``seq`` and ``turn`` say how old it is (``turn`` is None when written between turns)."""

    seq: int
    turn: int | None
    revision: int
    text: str


class Entries(Protocol):
    """:meth:`prime.log.Log.entries`, or the same over any stored log."""

    def __call__(
        self, start: int = 0, end: int | None = None, *, types: Sequence[str] | None = None
    ) -> Iterator[ev.Entry]: ...


class Originals(Protocol):
    """What the log holds behind the surface. Each question costs as much as its answer, not as the log."""

    def output(self, seq: int) -> Output:
        """Return the whole output of the cell whose result is entry ``seq``."""
        ...

    def reads(self, start: int, end: int) -> Sequence[Read]:
        """Return the reads of text in the entries ``start <= seq < end``, in order."""
        ...

    def read_before(self, read: Read) -> Read | None:
        """Return the newest read of the same window of the same file in an earlier turn."""
        ...

    def prompts(self, before: int, most: int) -> Sequence[Prompt]:
        """Return the newest inputs of persons earlier than entry ``before``, oldest first."""
        ...

    def entries(self, seqs: Sequence[int]) -> Sequence[ev.Entry]:
        """Return the entries at these places."""
        ...

    def note(self) -> Note | None:
        """Return the session's note, None before it was written."""
        ...

    def backed_off(self, scope: str) -> bool:
        """Tell whether results of this scope are left alone, since what was folded there was mostly asked back."""
        ...


@dataclass(frozen=True, slots=True)
class FoldOptions:
    """From where a result is condensed, and what is kept of it. Sizes are code points.

    Attributes:
        data_from, log_from, json_from, search_chars_from: size of a text of that kind.
        search_from, diff_from, json_items_from: its lines, or items.
        head, tail: first and last lines that stay.
        block: lines with new keys that stay of one block of them.
        search_per_file, search_total: matches that stay.
        diff_hunks: hunks of a file that stay.
        log_errors: different errors that stay, besides the last.
        json_items: items that stay.
        max_keep_ratio: share of the original from which a view is not worth it.
        most: a longer text is looked at in two parts, its beginning and its end.
    """

    data_from: int = 6_000
    log_from: int = 512
    json_from: int = 6_000
    search_chars_from: int = 10_000
    search_from: int = 120
    diff_from: int = 50
    json_items_from: int = 5
    head: int = 10
    tail: int = 4
    block: int = 12
    search_per_file: int = 5
    search_total: int = 60
    diff_hunks: int = 10
    log_errors: int = 10
    json_items: int = 15
    max_keep_ratio: float = 0.55
    most: int = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TapeOptions:
    """How completed turns are sealed.

    Attributes:
        keep_recent_turns: completed turns that stay as they are.
        entry_max_chars: most characters of an entry, 256 or more; None for no limit.
        profile: ``v4`` leaves the person's words at their place and keeps every reply whole; ``v3`` takes excerpts of
            both into the entry, so that floods in a person's words are bounded too.
        locators: ``long`` prints the call that returns a result on the line of each, ``short`` in the header only.
    """

    keep_recent_turns: int = 0
    entry_max_chars: int | None = None
    profile: Literal["v4", "v3"] = "v4"
    locators: Literal["long", "short"] = "long"


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a turn of the policy ``stream`` is told what it rests on. Steps count from 1 within the turn.

    Attributes:
        pin_steps: files that were read in so many first steps are pinned.
        extract_step: the step before which the rules are asked for.
        enforce_step: the step from which writes are held against the rules.
        bounce_budget: writes that one rule may refuse before it is suspended.
        side_effort: reasoning effort of the side call; None asks for none.
    """

    pin_steps: int = 2
    extract_step: int = 3
    enforce_step: int = 8
    bounce_budget: int = 1
    side_effort: str | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """A policy and its figures.

    Attributes:
        policy: which one.
        pressure: share of the model's window from which the policy makes room.
        pressure_of: the same for single models, by full name.
        retain: tokens of the newest messages that stay when the window is switched; a quarter of a smaller window.
        lead: tokens before the threshold at which the model is reminded of its note; an eighth of a smaller window.
        fold: from where results are condensed, and what stays of them.
        tape: how completed turns are sealed.
        stream: what a turn of the policy ``stream`` is told.
    """

    policy: Policy = "auto"
    pressure: float = 0.8
    pressure_of: Mapping[str, float] = field(default_factory=dict)
    retain: int = 16_000
    lead: int = 16_384
    fold: FoldOptions = FoldOptions()
    tape: TapeOptions = TapeOptions()
    stream: StreamOptions = StreamOptions()

    def threshold(self, view: View) -> int | None:
        """Return the tokens from which the policy makes room, None when the window is unknown."""
        if view.window is None:
            return None
        return int(view.window * self.pressure_of.get(view.model, self.pressure))
