"""Rules that a model found in texts, and the checks of a file's content that some of them come with. Pure.

A model writes the checks, so none is trusted: one that cannot be understood is left out and its words stay, and the
patterns of one run under a time limit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import bracex
import regex
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from wcmatch import glob as wildcards

from prime.messages import Frozen, plain

#: Rules that are taken from one answer, and characters of the words of each.
MAX_RULES, RULE_CHARS = 24, 400
#: Characters of a pattern, a text or a field name in a check: longer ones are mistakes.
_CHECK_CHARS = 300
#: Characters of the file that a message quotes.
_QUOTED = 80
#: Names that the braces of one glob may stand for.
_EXPANSIONS = 64


def _compiles(pattern: str) -> str:
    try:
        regex.compile(pattern)
    except regex.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return pattern


def _translates(pattern: str) -> str:
    try:
        _globs(pattern)
    except bracex.ExpansionLimitException:
        raise ValueError(f"the braces stand for over {_EXPANSIONS} names") from None
    return pattern


def _globs(pattern: str) -> list[str]:
    # as regular expressions, because the time that wcmatch itself takes over a pattern has no limit
    names = bracex.expand(pattern, limit=_EXPANSIONS)
    return list(wildcards.translate(names, flags=wildcards.GLOBSTAR | wildcards.DOTGLOB)[0])


Short = Annotated[str, Field(min_length=1, max_length=_CHECK_CHARS)]
Pattern = Annotated[Short, AfterValidator(_compiles)]
Glob = Annotated[Short, AfterValidator(_translates)]


class FileName(Frozen):
    """The file's name, without folders, holds a match of the pattern."""

    kind: Literal["file_name"]
    glob: Glob = "*"
    pattern: Pattern


class MustContain(Frozen):
    """The file holds the text."""

    kind: Literal["must_contain"]
    glob: Glob = "*"
    text: Short


class MustNotContain(Frozen):
    """The file does not hold the text."""

    kind: Literal["must_not_contain"]
    glob: Glob = "*"
    text: Short


class MaxLineLength(Frozen):
    """No line has more characters."""

    kind: Literal["max_line_length"]
    glob: Glob = "*"
    max: int = Field(ge=1)


class LineMatches(Frozen):
    """Any line, or every line that is not blank, holds a match of the pattern."""

    kind: Literal["line_matches"]
    glob: Glob = "*"
    pattern: Pattern
    lines: Literal["any", "every"]


class FieldEnum(Frozen):
    """Wherever the file gives the field (``field: value``, ``field = value``, ``"field": "value"``), it has one of the
    values."""

    kind: Literal["field_enum"]
    glob: Glob = "*"
    field: Short
    values: tuple[Short, ...] = Field(min_length=1)


Predicate = FileName | MustContain | MustNotContain | MaxLineLength | LineMatches | FieldEnum
_predicates: TypeAdapter[Predicate] = TypeAdapter(Annotated[Predicate, Field(discriminator="kind")])


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule in words; ``check`` is None when it can only be read."""

    text: str
    check: Predicate | None = None


def parse(answer: str) -> tuple[Rule, ...]:
    """Return the rules of an answer: JSON objects ``{"rule": ..., "check": {...}}``, one a line or in a list.

    A line that is anything else is a rule in words, and so is a rule whose check is not one.
    """
    rules = [rule for item in _items(answer) if (rule := _rule(item)) is not None]
    return tuple(rules[:MAX_RULES])


def _items(answer: str) -> Iterator[Any]:
    lines = [line.strip() for line in answer.strip().split("\n") if not line.strip().startswith("```")]
    whole = _json("\n".join(lines))
    if isinstance(whole, dict) and isinstance(whole.get("rules"), list):
        whole = whole["rules"]
    if isinstance(whole, list):
        yield from whole
    elif isinstance(whole, dict):
        yield whole
    else:
        for line in lines:
            found = _json(line.rstrip(","))
            yield line if found is None else found


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _rule(item: Any) -> Rule | None:
    text = item.get("rule") if isinstance(item, dict) else item
    if not isinstance(text, str) or not any(map(str.isalnum, text)):
        return None
    text = " ".join(plain(text).split())
    text = text if len(text) <= RULE_CHARS else text[: RULE_CHARS - 1] + "…"
    check = item.get("check") if isinstance(item, dict) else None
    if check is None:
        return Rule(text)
    try:
        return Rule(text, _predicates.validate_json(json.dumps(check)))
    except ValidationError:
        return Rule(text)


def broken(check: Predicate, path: str, text: str, seconds: float) -> str | None:
    """Return how the content ``text`` of the file ``path`` breaks a check, None when it does not.

    The glob of the check is held against the whole path and against the file's name.

    Raises:
        TimeoutError: it took longer than ``seconds``.
    """
    deadline = time.monotonic() + seconds
    name = path.rpartition("/")[2]
    patterns = _globs(check.glob)
    if not any(_found(pattern, where, deadline) for pattern in patterns for where in (path, name)):
        return None
    match check:
        case FileName():
            found = _found(check.pattern, name, deadline)
            return None if found else f"the name {name!r} does not match {check.pattern!r}"
        case MustContain():
            return None if check.text in text else f"it does not contain {check.text!r}"
        case MustNotContain():
            return f"it contains {check.text!r}" if check.text in text else None
        case MaxLineLength():
            return _too_long(check, text)
        case LineMatches():
            return _unlike(check, text, deadline)
        case FieldEnum():
            return _foreign(check, text, deadline)


def _found(pattern: str, text: str, deadline: float) -> bool:
    return regex.search(pattern, text, timeout=_left(deadline)) is not None


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _too_long(check: MaxLineLength, text: str) -> str | None:
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > check.max:
            return f"line {number} has {len(line):,} characters, {check.max:,} are allowed"
    return None


def _unlike(check: LineMatches, text: str, deadline: float) -> str | None:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        found = _found(check.pattern, line, deadline)
        if found and check.lines == "any":
            return None
        if not found and check.lines == "every":
            return f"line {number} does not match {check.pattern!r}: {line[:_QUOTED]!r}"
    return f"no line matches {check.pattern!r}" if check.lines == "any" else None


def _foreign(check: FieldEnum, text: str, deadline: float) -> str | None:
    name = regex.escape(check.field)
    given = rf"""(?m)(?:^|[{{,])[ \t*-]*["']?{name}["']?[ \t]*[:=][ \t]*("[^"\n]*"|'[^'\n]*'|[^,;}}\n]*)"""
    for match in regex.finditer(given, text, timeout=_left(deadline)):
        value = match[1].strip().strip("\"'")
        if value not in check.values:
            return f"{check.field} is {value[:_QUOTED]!r}, allowed are {', '.join(check.values)}"
    return None
