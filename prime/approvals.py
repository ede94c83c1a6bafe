"""What stands before a host call: the rules in force, and whoever is asked when they say so."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prime.errors import ToolFailed
from prime.gate import DEFAULT, OPEN, Act, Decision, Rules, decide
from prime.tools.base import Tool
from prime.tools.network import host_of
from prime.tools.workspace import Workspace

#: Names of arguments, of whatever tool, that say what it touches, runs and asks.
_PATHS = frozenset({"path", "paths", "file", "files", "cwd", "folder", "root"})
_COMMANDS = frozenset({"command", "commands"})
_HOSTS = frozenset({"url", "urls"})
#: The paths in a patch, with whatever blanks it allows around them.
_PATCH = "patch"
_PATCHED = re.compile(
    r"^[^\S\n]*\*\*\* (?:Add File|Update File|Delete File|Move to):[^\S\n]*(.+?)[^\S\n]*$", re.MULTILINE
)

_FREE = Decision("allow", DEFAULT)


@dataclass(frozen=True, slots=True)
class Approval:
    """A question: may this call begin? ``rule`` is why it is asked."""

    id: str
    target: str
    arguments: Mapping[str, Any]
    rule: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of ``by``. ``always``: for every call of that target that the same rule asks about, as long as this
    process has the session open."""

    allowed: bool
    by: str
    always: bool = False


Approver = Callable[[Approval], Awaitable[Verdict]]


class Gate:
    """Decides about the calls of one session."""

    def __init__(self, rules: Rules = OPEN, approve: Approver | None = None) -> None:
        """``approve`` answers the questions; without it they are answered with no."""
        self._rules = rules
        self._approve = approve
        self._always: set[tuple[str, str]] = set()

    def decide(self, tool: Tool, arguments: Mapping[str, Any], workspace: Workspace) -> Decision | None:
        """Return what is to become of a call; None when it needs no leave."""
        if not self._rules.rules and self._rules.default == "allow" and self._rules.network:
            return _FREE if tool.effects or not _HOSTS.isdisjoint(arguments) else None
        decision = decide(self._rules, _act(tool, arguments, workspace))
        if decision is None or decision.effect != "ask":
            return decision
        if (tool.target, decision.rule) in self._always:
            return Decision("allow", decision.rule)
        if self._approve is None:
            return Decision("deny", decision.rule)
        try:
            tool.validate({**arguments})
        except ToolFailed:
            return Decision("allow", decision.rule)  # it fails before it does anything: nothing to ask about
        return decision

    async def ask(self, approval: Approval) -> Verdict:
        """Have somebody answer a question. One that cannot be asked is answered with no."""
        assert self._approve is not None
        try:
            return await self._approve(approval)
        except Exception as error:  # somebody else's program: when it fails, that is no leave
            return Verdict(allowed=False, by=f"nobody: asking failed with {type(error).__name__}: {error}")

    def remember(self, approval: Approval) -> None:
        """Take notice that such calls are allowed from now on."""
        self._always.add((approval.target, approval.rule))

    def refusal(self, target: str, decision: Decision) -> str:
        """Return what the program is told about a call that may not begin."""
        if decision.rule.startswith("ask ") or (decision.rule == DEFAULT and self._rules.default == "ask"):
            return f"{target} needs an approval ({decision.rule}), and nobody can give one here; it did not begin"
        return f"{target} is not allowed here ({decision.rule}); it did not begin"


def _act(tool: Tool, arguments: Mapping[str, Any], workspace: Workspace) -> Act:
    paths = [*_texts(arguments, _PATHS)]
    patch = arguments.get(_PATCH)
    if isinstance(patch, str):
        paths += _PATCHED.findall(patch)
    return Act(
        target=tool.target,
        effects=tool.effects,
        cwd=str(workspace.cwd),
        paths=tuple(name for path in paths for name in _names(path, workspace)),
        commands=tuple(_texts(arguments, _COMMANDS)),
        hosts=tuple(map(host_of, _texts(arguments, _HOSTS))),
    )


def _texts(arguments: Mapping[str, Any], names: frozenset[str]) -> Iterator[str]:
    for name in names & arguments.keys():
        value = arguments[name]
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, str):
                yield item


def _names(path: str, workspace: Workspace) -> Iterator[str]:
    """Yield the path as it is called, and what is there when every link is followed."""
    called = os.path.normpath(os.path.join(workspace.cwd, os.path.expanduser(path)))
    yield called
    try:
        real = os.path.realpath(called)
    except (OSError, ValueError):  # it changes this very moment, or no file can have that name
        return
    if real != called:
        yield real
