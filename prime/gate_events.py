"""The events of what stands before a host call."""

from __future__ import annotations

from typing import Literal

from prime.messages import Frozen, Json


class ApprovalRequested(Frozen):
    """Somebody is asked whether a host call may begin. It has not begun."""

    type: Literal["approval_requested"] = "approval_requested"
    approval_id: str
    cell: str
    call: int
    target: str
    arguments: Json
    rule: str


class ApprovalGiven(Frozen):
    """The answer.

    Attributes:
        outcome: ``withdrawn``: nobody waits for it any more, and the call did not begin.
        scope: ``session``: calls like this one are not asked about again while this process has the session open.
        by: who answered, a stable word such as ``person``.
    """

    type: Literal["approval_given"] = "approval_given"
    approval_id: str
    outcome: Literal["allowed", "denied", "withdrawn"]
    scope: Literal["once", "session"]
    by: str


class DispatchRefused(Frozen):
    """A host call that was not allowed to begin. ``rule`` decided it, ``reason`` is what the program is told."""

    type: Literal["dispatch_refused"] = "dispatch_refused"
    cell: str
    call: int
    target: str
    arguments: Json
    rule: str
    reason: str
