"""The event of writes that break the rules of a turn."""

from __future__ import annotations

from typing import Literal

from prime.messages import Frozen


class ContractBroken(Frozen):
    """A write breaks rule number ``rule`` (from 1) of the turn: ``found`` says how. It was refused, or the rule is
    ``suspended`` from here on."""

    type: Literal["contract_broken"] = "contract_broken"
    rule: int
    path: str
    found: str
    suspended: bool
