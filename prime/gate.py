"""Rules about host calls: which may begin, which only when somebody says so, and which may not. Pure.

A rule is one line: an effect, a pattern of calls, and what else has to be so::

    deny jobs.*
    ask tools.bash command=*git push*
    allow tools.fetch host=docs.python.org
    deny tools.write path=secrets

In patterns ``*`` stands for anything, also for slashes; a path also stands for everything below it. The first rule
that matches decides. Those of a project come after that and can only make it stricter.
"""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

Effect = Literal["allow", "ask", "deny"]

#: From the mildest to the strictest.
EFFECTS: tuple[Effect, ...] = ("allow", "ask", "deny")

_FIELD = re.compile(r"\s(path|command|host)=")

#: What may make one command of a shell into several, or have it do more than it says.
_CONTROL = re.compile(r"[;&|<>\n`]|\$\(")

#: What a call is judged by when no rule matches it.
DEFAULT, NO_NETWORK = "default", "sandbox without network"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. ``narrows``: it comes from a project and can only make a decision stricter."""

    effect: Effect
    call: str
    path: str | None = None
    command: str | None = None
    host: str | None = None
    narrows: bool = False

    def __str__(self) -> str:
        fields = (f" {name}={value}" for name in ("path", "command", "host") if (value := getattr(self, name)))
        return f"{self.effect} {self.call}{''.join(fields)}"


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of a session, those of the person first.

    Attributes:
        default: the effect for calls with effects, or to the network, that no rule matches.
        network: whether calls may reach hosts that no rule allows by name.
    """

    rules: tuple[Rule, ...] = ()
    default: Effect = "allow"
    network: bool = True


#: As if there were none.
OPEN = Rules()


@dataclass(frozen=True, slots=True)
class Act:
    """What a call is about to do.

    Attributes:
        effects: whether it changes the world.
        cwd: the folder that patterns of paths begin at.
        paths: what it touches, absolute, each by every name that it has (with links, and followed).
        commands, hosts: what it runs, and whom it asks.
    """

    target: str
    effects: bool
    cwd: str = "/"
    paths: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """An effect, and the rule that it comes from, in words."""

    effect: Effect
    rule: str


def parsed(text: str) -> Rule:
    """Return the rule that a line says.

    Raises:
        ValueError: one line that says what is wrong.
    """
    words = text.split(maxsplit=2)
    if len(words) < 2 or words[0] not in EFFECTS:
        raise ValueError(f"{text!r} is no rule; write one like `deny tools.bash command=*git push*`")
    named, *fields = _FIELD.split(f" {words[2]}" if len(words) == 3 else "")
    if named.strip():
        raise ValueError(f"{named.strip()!r} in the rule {text!r} is not path=, command= or host=")
    given = {name: value.strip() for name, value in zip(fields[::2], fields[1::2], strict=True)}
    if empty := [name for name, value in given.items() if not value]:
        raise ValueError(f"{empty[0]}= in the rule {text!r} is empty")
    return Rule(effect=words[0], call=words[1], **given)  # type: ignore[arg-type]


def decide(rules: Rules, act: Act) -> Decision | None:
    """Return what is to become of a call; None when nobody has said anything about it and it needs no leave."""
    own = next((rule for rule in rules.rules if not rule.narrows and _matches(rule, act)), None)
    decided = Decision(own.effect, str(own)) if own is not None else None
    if act.hosts and not rules.network and (own is None or own.host is None):
        decided = Decision("deny", NO_NETWORK)
    elif decided is None and (act.effects or act.hosts):
        decided = Decision(rules.default, DEFAULT)
    narrower = next((rule for rule in rules.rules if rule.narrows and _matches(rule, act)), None)
    if narrower is not None and (decided is None or _stricter(narrower.effect, decided.effect)):
        decided = Decision(narrower.effect, str(narrower))
    return decided


def host_rule(rules: Rules, target: str, host: str) -> Rule | None:
    """Return the rule by which a call of ``target`` may reach ``host`` or not, among those that name hosts; None when
    nobody has said anything."""
    act = Act(target, effects=False, hosts=(host,))
    named = [rule for rule in rules.rules if rule.host is not None and _matches(rule, act)]
    own = next((rule for rule in named if not rule.narrows), None)
    if own is None and not rules.network:
        own = Rule("deny", target, host=host)
    narrower = next((rule for rule in named if rule.narrows), None)
    if narrower is not None and (own is None or _stricter(narrower.effect, own.effect)):
        return narrower
    return own


def stricter(one: Effect, other: Effect) -> Effect:
    """Return the stricter of two effects."""
    return other if _stricter(other, one) else one


def narrowing(rule: Rule) -> Rule:
    """Return the rule as one of a project."""
    return replace(rule, narrows=True)


def _stricter(one: Effect, other: Effect) -> bool:
    return EFFECTS.index(one) > EFFECTS.index(other)


def _matches(rule: Rule, act: Act) -> bool:
    """Tell whether a rule speaks of a call: to allow it, of all that it does; to refuse it, of any of that."""
    if not fnmatchcase(act.target, rule.call):
        return False
    matched: list[list[bool]] = []
    if rule.path is not None:
        pattern = os.path.join(glob.escape(act.cwd), os.path.expanduser(rule.path)).rstrip("/")
        matched.append([_within(path, pattern) for path in act.paths])
    if rule.command is not None:
        matched.append([_runs(command, rule) for command in act.commands])
    if rule.host is not None:
        matched.append([fnmatchcase(host, rule.host.lower()) for host in act.hosts])
    every = all if rule.effect == "allow" else any
    return all(found and every(found) for found in matched)


def _within(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}/*")


def _runs(command: str, rule: Rule) -> bool:
    pattern = rule.command or ""
    if rule.effect == "allow":  # of one that is more than it looks, the pattern has not seen all
        return command == pattern or (fnmatchcase(command, pattern) and not _CONTROL.search(command))
    return any(fnmatchcase(piece.strip(), pattern) for piece in (command, *_CONTROL.split(command)))
