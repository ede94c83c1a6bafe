"""What kind of text a cell has shown: the router of the fold. Pure; character classes are ASCII."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Kind = Literal["code", "search", "diff", "json", "log", "data"]

#: Code points within which a diff shows itself.
_DIFF_HEAD = 4_000
#: Shares of the lines that are not blank from which a text is code, a search or a log, and the fewest lines of each.
_CODE, _CODE_LINES, _SEARCH, _LOG, _LINES = 0.15, 8, 0.6, 0.3, 4

_SOURCE = re.compile(
    r"\.(?:pyi?|[jt]sx?|mjs|[ch](?:pp)?|cc|cs|java|kt|go|rs|rb|php|swift|scala|(?:ba|z)?sh|sql|lua|pl|r|jl|exs?|hs|ml|s?css|"
    r"vue|svelte)$",
    re.IGNORECASE,
)
_PREFIX = re.compile(r"^ {0,6}\d{1,7}[:|\t] ?")
_DIFF_GIT = re.compile(r"^diff --git ", re.MULTILINE)
_DIFF_TRIO = (
    re.compile(r"^--- ", re.MULTILINE),
    re.compile(r"^\+\+\+ ", re.MULTILINE),
    re.compile(r"^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@", re.MULTILINE),
)
_CODE_LINE = re.compile(
    r"\s*(?:(?:async )?def \w+\(|class \w+[:({]|from [\w.]+ import |import [\w.{*]+|return\b[^.]*$|elif .*:$|else:$|"
    r"(?:if|for|while|with|try|except|match|case)\b.*:$|@\w+|(?:export |public |private |protected |static |async )*"
    r"(?:function|const|let|var|fn|func|impl|struct|enum|interface|type) \w+.*[{=(;]|#include\b|package \w+;?$|"
    r"(?:if|for|while|switch|else|do)\b.*\{$|[})\]]+[;,]?$|.*[;{]$)",
    re.ASCII,
)
#: ``path:line:`` and, indented below its path, ``line: ``.
MATCH = re.compile(r"(?P<path>[^\s:][^:\n]{0,300}):(?P<line>\d+)[:-]|  (?P<under>\d+): ", re.ASCII)
_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)\b"
_LOG_LINE = re.compile(
    "|".join(
        (
            r"\s*\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d",  # times
            r"\s*\[?\d\d:\d\d:\d\d",
            r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d",
            r"\d+\.\d+\.\d+\.\d+ \S+ \S+ \[",  # requests to a server
            rf"\s*{_LEVEL}",
            rf".{{0,80}}\b{_LEVEL}[\]:| ]",
            r"\s*\[? ?\d{1,3}%\]?|\[\d+/\d+\]",  # builds and installations
            r"(?:npm|yarn|pnpm) (?:ERR|WARN|error|warn)|make(?:\[\d+\])?: ",
            r"\s*(?:Compiling|Downloading|Downloaded|Installing|Collecting|Building|Checking|Fetching|Unpacking)\b",
            r"\s*(?:Resolving|Requirement already satisfied)\b|(?:error|warning)(?:\[\w+\])?: |\s*--> \S+:\d+",
            r"\s*(?:ok|not ok) \d+|\s*[✓✔✗✘×] |\s*(?:PASS|FAIL|SKIP|PASSED|FAILED)\b",  # tests
            r"\S+::\S+ (?:PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b|\S+\.py [.sxXFE]+\s*(?:\[ *\d+%\])?$",
            r"E {3}|=+ .* =+$|-+ .* -+$|_{3,} .* _{3,}$",
            r"Traceback \(most recent call last\)|\s*File \"[^\"]+\", line \d+|\s*at \S+ ?\(.*:\d+(?::\d+)?\)$",
        )
    ),
    re.ASCII,
)
#: Where most of a text's lines are looked at; a sample tells the kind of a longer one as well.
_SAMPLE = 4_000


def kind_of(text: str, lines: Sequence[str], target: str | None, arguments: Mapping[str, Any]) -> Kind:
    """Return the kind of ``text``, whose lines are ``lines``. ``target`` is the call whose own form it is, None for
    anything else; ``arguments`` are that call's."""
    if target in ("tools.grep", "tools.glob"):
        return "search"
    head = text[:_DIFF_HEAD]
    if _DIFF_GIT.search(head) or all(part.search(head) for part in _DIFF_TRIO):
        return "diff"
    if parsed(text, lines) is not None:
        return "json"
    if len(lines) < _LINES:
        return "data"
    looked = [_PREFIX.sub("", line) for line in lines[:: max(len(lines) // _SAMPLE, 1)] if line.strip()]
    if target in ("tools.read", "tools.fetch"):
        source = _SOURCE.search(str(arguments.get("path", ""))) is not None
        return "code" if source or _is_code(looked) else "data"
    log = _share(_LOG_LINE, looked)
    if log < _LOG and _is_code(looked):
        return "code"
    # of the raw lines: what looks like the number of a line is a part of the match here
    if _share(MATCH, [line for line in lines[:_SAMPLE] if line.strip()]) >= _SEARCH and log < _LOG:
        return "search"
    return "log" if log >= _LOG else "data"


def parsed(text: str, lines: Sequence[str]) -> Any:
    """Return the JSON value that the whole text is, lines of JSON as a list; None when it is none."""
    start = text.lstrip()[:1]
    if start not in ("[", "{"):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        filled = [line for line in lines if line.strip()]
    if len(filled) < 3 or filled[-1].strip()[-1] not in "]}":
        return None
    try:
        return [json.loads(line) for line in filled]
    except (ValueError, RecursionError):
        return None


def _is_code(lines: Sequence[str]) -> bool:
    return len(lines) >= _CODE_LINES and _share(_CODE_LINE, lines) >= _CODE


def _share(pattern: re.Pattern[str], lines: Sequence[str]) -> float:
    return sum(pattern.match(line[:400]) is not None for line in lines) / len(lines) if lines else 0.0
