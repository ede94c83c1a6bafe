"""Every event of a session's log, and the entry that carries it.

An event is a frozen value in the past tense. Every asynchronous act is a pair (started/ended) with one id. Nearly
every setting is "the last event of its kind wins". What a model sees is projected from the five *surface* events only
(see ``surface.py``): UserSaid, NoticeGiven, ModelReplied, CellEnded, CallRefused, and SurfaceReplaced, which stands in
for a range of them. What happens beside the conversation has modules of its own, whose events are offered here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from prime import agent_events, contract_events, gate_events, job_events, kernel_events
from prime.agent_events import ActivationSettled as ActivationSettled
from prime.agent_events import ChildSettled as ChildSettled
from prime.agent_events import ChildSpawned as ChildSpawned
from prime.agent_events import ChildWoken as ChildWoken
from prime.agent_events import QueryAsked as QueryAsked
from prime.agent_events import QueryEnded as QueryEnded
from prime.contract_events import ContractBroken as ContractBroken
from prime.gate_events import ApprovalGiven as ApprovalGiven
from prime.gate_events import ApprovalRequested as ApprovalRequested
from prime.gate_events import DispatchRefused as DispatchRefused
from prime.job_events import JobEnd as JobEnd
from prime.job_events import JobEnded as JobEnded
from prime.job_events import JobStarted as JobStarted
from prime.kernel_events import KernelLost as KernelLost
from prime.kernel_events import KernelStarted as KernelStarted
from prime.kernel_events import NamespaceRestored as NamespaceRestored
from prime.kernel_events import SnapshotSaved as SnapshotSaved
from prime.kernel_events import SnapshotSkipped as SnapshotSkipped
from prime.messages import Frozen, Header, ImagePart, Json, Message, Part, ShownPart, StopReason, Usage

#: Version of the log's format. Bumped only when an older reader could misread a newer log.
FORMAT = 1

InputKind = Literal["ask", "steer", "inform", "notice"]
CellStatus = Literal["ok", "error", "interrupted", "timeout", "killed", "died", "refused"]
TurnReason = Literal[
    "completed",  # nothing is owed any more
    "cancelled",  # by the caller
    "error",  # a request failed for good, or something of ours broke
    "max_steps",
    "max_tokens",  # a reply was cut by the token limit
    "max_cost",
    "budget",  # of the whole family of agents
    "max_seconds",
    "repeated_failure",  # the same failing cell again and again
    "empty_replies",
    "interrupted",  # the process died; written by the repair
]


class SessionCreated(Frozen):
    """Always entry 0. ``cwd`` is absolute; ``version`` is that of the package that wrote it; ``parent`` is the session
    whose agent has made this one for a child."""

    type: Literal["session_created"] = "session_created"
    session: str
    cwd: str
    version: str
    parent: str | None = None


class SessionForked(Frozen):
    """Ends an inherited prefix: entries before it belong to ``parent``; its inbox and its kernel are not inherited.
    ``child``: the agent of ``parent`` has made this session for a child."""

    type: Literal["session_forked"] = "session_forked"
    session: str
    parent: str
    version: str
    child: bool = False


class SessionResumed(Frozen):
    """A process opened the session again."""

    type: Literal["session_resumed"] = "session_resumed"
    version: str


class SessionClosed(Frozen):
    """The owning process let go of the session in good order."""

    type: Literal["session_closed"] = "session_closed"


class InputQueued(Frozen):
    """Somebody said something to the agent. ``ask`` starts a turn, ``steer`` joins the next step, ``inform`` waits for
    whichever comes first and wakes nobody.

    A ``notice`` is said by the host. ``source`` names what it is about, such as ``jobs.3``; ``wake`` tells whether it
    may start a turn (see :class:`prime.inbox.Inbox`).
    """

    type: Literal["input_queued"] = "input_queued"
    input_id: str
    kind: InputKind
    parts: tuple[ShownPart, ...]
    source: str | None = None
    wake: bool = True


class InputClaimed(Frozen):
    """The open turn took this input. Its words follow in the same commit: a UserSaid, or a NoticeGiven for a notice."""

    type: Literal["input_claimed"] = "input_claimed"
    input_id: str


class InputWithdrawn(Frozen):
    """An input left the inbox without being run."""

    type: Literal["input_withdrawn"] = "input_withdrawn"
    input_id: str


class TurnStarted(Frozen):
    """A turn: from claiming an input to nothing owed."""

    type: Literal["turn_started"] = "turn_started"


class TurnEnded(Frozen):
    """The turn is over; ``detail`` is one line for a person, empty when there is nothing to add."""

    type: Literal["turn_ended"] = "turn_ended"
    reason: TurnReason
    detail: str = ""


class StepStarted(Frozen):
    """A model request goes out. ``request`` is the digest of what is sent (``projection.digest``), ``messages`` the
    number of its messages."""

    type: Literal["step_started"] = "step_started"
    request: str
    messages: int


class StepEnded(Frozen):
    """The reply and the cells it asked for are done, or ``failed`` (no reply; ``overflow`` when for its size)."""

    type: Literal["step_ended"] = "step_ended"
    outcome: Literal["done", "cancelled", "failed", "overflow", "interrupted"]


class HeaderChanged(Frozen):
    """What every following request starts with."""

    type: Literal["header_changed"] = "header_changed"
    header: Header


class UserSaid(Frozen):
    """An input as the model sees it."""

    type: Literal["user_said"] = "user_said"
    input_id: str
    kind: InputKind
    parts: tuple[ShownPart, ...]


class NoticeGiven(Frozen):
    """Words of the host to the model, in the user's role and marked as generated. ``about`` is a stable word, or the
    source of the notice ``input_id`` that was claimed."""

    type: Literal["notice_given"] = "notice_given"
    about: str
    text: str
    input_id: str | None = None


class ModelReplied(Frozen):
    """A reply, whole, or the visible prefix of one that was ``interrupted`` (which asks for no calls)."""

    type: Literal["model_replied"] = "model_replied"
    parts: tuple[Part, ...]
    stop: StopReason
    model: str
    usage: Usage | None
    interrupted: bool = False


class RequestFailed(Frozen):
    """An attempt at the request of the step, or of a ``query``, failed. ``attempt`` counts from 1; ``code`` is ours."""

    type: Literal["request_failed"] = "request_failed"
    attempt: int
    code: str
    message: str
    status: int | None
    query: int | None = None


class RetryScheduled(Frozen):
    """The same request goes out again after ``delay_s`` seconds, as attempt ``attempt``."""

    type: Literal["retry_scheduled"] = "retry_scheduled"
    attempt: int
    delay_s: float
    query: int | None = None


class CellStarted(Frozen):
    """A cell goes to the kernel. ``cell`` is its lease; ``call_id`` the model's call, None for a cell run by hand."""

    type: Literal["cell_started"] = "cell_started"
    cell: str
    call_id: str | None
    code: str


class CellOutput(Frozen):
    """A piece of a cell's output, whole and in order. ``late``: produced by work that an older cell left behind.
    ``svg`` is the source of the image, where it was one.
    ``target`` and ``arguments`` are those of the call whose untouched value the text shows, in its tool's own form.
    """

    type: Literal["cell_output"] = "cell_output"
    cell: str
    stream: Literal["stdout", "stderr", "display", "result"]
    text: str
    image: ImagePart | None = None
    late: bool = False
    target: str | None = None
    arguments: Json = None
    svg: str | None = None


class CellError(Frozen):
    """The error that ended a cell."""

    name: str
    message: str
    traceback: str


class CellEnded(Frozen):
    """The result of a cell.

    Attributes:
        generation: the kernel process that ran it, None when it reached none.
        shown: what the model sees, bounded: the output between the words ``before`` and ``after`` it.
        error: the error that ended it.
        set: names bound by the cell, to their types.
        removed: names that are gone.
        calls: host calls made.
        dropped: bytes of output beyond the kernel's limit, recorded nowhere.
        duration_s: seconds from submission to the end.
    """

    type: Literal["cell_ended"] = "cell_ended"
    cell: str
    call_id: str | None
    status: CellStatus
    generation: int | None
    shown: tuple[ShownPart, ...]
    error: CellError | None
    set: Json
    removed: tuple[str, ...]
    calls: int
    dropped: int
    duration_s: float
    before: str = ""
    after: str = ""


class CallRefused(Frozen):
    """A call of the model that ran nothing: ``unknown_tool``, ``bad_arguments``, ``not_started``."""

    type: Literal["call_refused"] = "call_refused"
    call_id: str
    name: str
    code: Literal["unknown_tool", "bad_arguments", "not_started"]
    text: str


class DispatchStarted(Frozen):
    """A host call of a cell begins. ``call`` counts up within the cell. ``gate`` is the rule by which it may, None for
    a call without effects that no rule speaks of."""

    type: Literal["dispatch_started"] = "dispatch_started"
    cell: str
    call: int
    target: str
    arguments: Json
    gate: str | None = None


class DispatchError(Frozen):
    """How a host call failed."""

    code: str
    message: str


class DispatchEnded(Frozen):
    """A host call is over: its canonical ``value``, or its ``error``."""

    type: Literal["dispatch_ended"] = "dispatch_ended"
    cell: str
    call: int
    value: Json
    error: DispatchError | None
    duration_s: float


class SurfaceReplaced(Frozen):
    """``message`` takes the place of the surface nodes from ``start`` to ``end`` (seqs, inclusive, by position).

    ``sources`` cites at least every seq that it shadows, the original of a result first; ``policy`` says who did it,
    and ``scope`` which of the things that a policy keeps apart it concerns.
    """

    type: Literal["surface_replaced"] = "surface_replaced"
    start: int
    end: int
    sources: tuple[int, ...]
    message: Message
    policy: str
    scope: str | None = None


class NotesWritten(Frozen):
    """The session's one note, replaced whole. ``revision`` counts up from 1."""

    type: Literal["notes_written"] = "notes_written"
    revision: int
    text: str


class Ignored(Frozen):
    """Stands for an entry of a type this version does not know and that its writer marked as ignorable."""

    type: Literal["ignored"] = "ignored"
    name: str


_MODULES = tuple(each.__name__ for each in (agent_events, contract_events, gate_events, job_events, kernel_events))
#: Every type that may be stored, by name.
TYPES: dict[str, type[Frozen]] = {
    kind.model_fields["type"].default: kind
    for kind in Frozen.__subclasses__()
    if kind.__module__ in (__name__, *_MODULES) and "type" in kind.model_fields and kind is not Ignored
}


@dataclass(frozen=True, slots=True)
class Entry:
    """An event in the log. ``seq`` is contiguous from 0; ``at`` is milliseconds since the epoch; ``turn`` and ``step``
    are the brackets open when it happened, counted from 1."""

    session: str
    seq: int
    at: int
    turn: int | None
    step: int | None
    event: Any

    def as_json(self) -> dict[str, Any]:
        """Return the envelope with the event's fields beside it, as plain JSON values."""
        envelope = {"session": self.session, "seq": self.seq, "at": self.at, "turn": self.turn, "step": self.step}
        fields: dict[str, Any] = self.event.model_dump(mode="json")
        return {**envelope, **fields}
