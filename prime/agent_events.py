"""The events of ``agents``: requests beside the conversation, and agents that work for this one."""

from __future__ import annotations

from typing import Literal

from prime.messages import Frozen, Header, Reply


class QueryAsked(Frozen):
    """A request with one prompt goes out beside the conversation, for a cell or for the host itself.

    Attributes:
        query: number of this entry; the other entries about the query name it.
        request: digest of what is sent (``projection.digest``).
        about: what the host asks for, a stable word; None for a cell's.
    """

    type: Literal["query_asked"] = "query_asked"
    query: int
    header: Header
    prompt: str
    request: str
    about: str | None = None


class QueryError(Frozen):
    """How a query failed."""

    code: str
    message: str


class QueryEnded(Frozen):
    """A query has its ``reply``, or its ``error``. Its usage counts as that of ``model``, the name in its header."""

    type: Literal["query_ended"] = "query_ended"
    query: int
    model: str
    reply: Reply | None = None
    error: QueryError | None = None


#: How an activation ended: it said its last words, failed, was stopped, or came to a limit: of the family's tokens and
#: money, or of a turn.
Outcome = Literal["completed", "failed", "cancelled", "budget", "limit"]


class Settlement(Frozen):
    """What came of an activation of a child: of its work from the words that woke it until nothing was left to do.

    Attributes:
        activation: counts up from 1 for each child.
        reason: how its last turn ended, or ``lost`` when its log could not be opened.
        detail: one line about a reason other than ``completed``.
        text: the last words of its model, empty when it said none.
    """

    activation: int
    outcome: Outcome
    reason: str
    detail: str
    text: str


class ActivationSettled(Frozen):
    """In the log of a child: nothing is left to do. Its parent is told once, by this entry's settlement."""

    type: Literal["activation_settled"] = "activation_settled"
    settlement: Settlement


class ChildSpawned(Frozen):
    """In the log of a parent: a child is admitted. Everything that its start needs is here.

    Attributes:
        agent_id: its session: that of the parent, a point, and a number from 1.
        fork: the entry of this log up to which it sees the conversation, None for none of it.
        model: full name, None for the parent's.
        tools: targets that it may call beside those without effects outside, None for all that its parent may.
    """

    type: Literal["child_spawned"] = "child_spawned"
    agent_id: str
    name: str
    prompt: str
    fork: int | None = None
    model: str | None = None
    tools: tuple[str, ...] | None = None


class ChildWoken(Frozen):
    """In the log of a parent: a child that had settled is at work again."""

    type: Literal["child_woken"] = "child_woken"
    agent_id: str


class ChildSettled(Frozen):
    """In the log of a parent: a child has settled. The notice of it is queued in the same commit."""

    type: Literal["child_settled"] = "child_settled"
    agent_id: str
    settlement: Settlement
