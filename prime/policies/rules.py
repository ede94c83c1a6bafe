"""What each kind of text keeps: searches, diffs, logs and data. Pure; every rule marks lines of a :class:`Kept`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from prime.policies.base import FoldOptions
from prime.policies.keep import Kept, around, ends
from prime.policies.kinds import MATCH

_HUNK = re.compile(r"@@ ")
_FILE = re.compile(
    r"diff --git |--- |\+\+\+ |index |new file|deleted file|rename |similarity |Binary |old mode|new mode"
)

_HARMLESS = re.compile(r"\b(?:0|no) (?:errors?|failures?|failed|warnings?)\b", re.IGNORECASE | re.ASCII)
_ERROR = re.compile(
    r"\b(?:errors?|fail(?:ed|ures?|s)?|fatal|critical|exception|traceback|panic(?:ked)?|assert(?:ion)?\w*|abort(?:ed)?|"
    r"segfault|segmentation fault|undefined reference|cannot|denied|refused|not ok|killed)\b|"
    r"\w+(?:Error|Exception)\b|^E {3}|[✗✘×]",
    re.IGNORECASE | re.ASCII,
)
_WARNING = re.compile(r"\bwarn(?:ing)?s?\b|\bdeprecat", re.IGNORECASE | re.ASCII)
_SUMMARY = re.compile(
    r"\b\d+ (?:passed|failed|errors?|warnings?|skipped|tests?|failing|passing)\b|"
    r"^\s*(?:Tests?|Test Suites|Total|Summary|Finished|Done|BUILD|Ran \d+|real|user|sys)\b",
    re.ASCII,
)
_FRAME = re.compile(r"\s+\S|E {3}|> {3}|\S+:\d+: |at \S|Caused by")
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b|\d+", re.ASCII)

_ROW = re.compile(r"\s*\|.*\||.*[│┃║].*[│┃║]")
_RULE = re.compile(r"\s*[-=+|:─━┼┴┬ ]{3,}$")
_KEYED = re.compile(r"\s*[\"']?(?P<key>[\w./-]{1,40}(?: [\w./-]{1,30})?)[\"']? ?(?:=(?!=)|:(?= |$))", re.ASCII)
_HEADING = re.compile(r"\s*(?:#{1,6} |\[[^\]]{1,80}\]\s*$|```|~~~|={3,}|-{3,}\s*$)")


def search(kept: Kept, options: FoldOptions, target: str | None) -> None:
    """Keep of each file the first and the last matches, with the line that names it; of paths alone, of each folder."""
    groups: dict[str, list[int]] = defaultdict(list)
    headings: dict[str, int] = {}
    others: list[int] = []
    heading = ""
    for place, line in enumerate(kept.lines):
        found = MATCH.match(line)
        if found is not None:
            groups[found["path"] or heading].append(place)
        elif target == "tools.glob":
            groups[str(PurePosixPath(line).parent)].append(place)
        elif place + 1 < len(kept.lines) and (below := MATCH.match(kept.lines[place + 1])) and below["under"]:
            heading = line
            headings[line] = place
        else:
            others.append(place)
    kept.keep(ends(others, options.head, options.tail))
    room, left, files = options.search_total, 0, 0
    for name, places in groups.items():
        chosen = ends(places, min(options.search_per_file - 1, max(room - 1, 0)), min(1, room))
        room -= len(chosen)
        if not chosen:
            left, files = left + len(places), files + 1
            continue
        kept.keep(chosen)
        kept.keep([headings[name]] if name in headings else [])
        dropped = [place for place in places if place not in kept]
        if dropped:
            kept.note(dropped[-1], f"{len(dropped):,} more in {name}")
    if left:
        kept.close(f"[not shown: {left:,} more in {files:,} other places]")


def diff(kept: Kept, options: FoldOptions) -> None:
    """Keep what names files, and of each file the first, the last and the largest hunks, near what changed."""
    files: list[list[tuple[int, int]]] = [[]]
    start: int | None = None
    for place, line in enumerate(kept.lines):
        inside = start is not None and line[:1] in ("+", "-", " ", "\\", "")
        header = not inside or line.startswith(("diff --git ", "--- a/", "+++ b/"))
        if (header or _HUNK.match(line)) and start is not None:
            files[-1].append((start, place))
            start = None
        if _HUNK.match(line):
            start = place
        elif header:
            if _FILE.match(line) and files[-1]:
                files.append([])
            kept.keep([place])
    if start is not None:
        files[-1].append((start, len(kept.lines)))
    for hunks in files:
        _hunks(kept, hunks, options.diff_hunks)


def _hunks(kept: Kept, hunks: Sequence[tuple[int, int]], most: int) -> None:
    order = sorted(
        range(len(hunks)), key=lambda number: (number not in (0, len(hunks) - 1), hunks[number][0] - hunks[number][1])
    )
    chosen = set(order[:most])
    for number, (start, stop) in enumerate(hunks):
        if number in chosen:
            changed = [place for place in range(start + 1, stop) if kept.lines[place][:1] in ("+", "-")]
            kept.keep([start, *(near for near in around(changed, 2, 2) if start < near < stop)])
        else:
            kept.note(stop - 1, "a hunk")


def log(kept: Kept, options: FoldOptions) -> None:
    """Keep the first and last lines, errors with what is around them and their stack, warnings and summaries."""
    lines = kept.lines
    told = [_HARMLESS.sub("", line) for line in lines]
    failures = [place for place, line in enumerate(told) if _ERROR.search(line)]
    warnings = [place for place, line in enumerate(told) if _WARNING.search(line)]
    kept.keep(ends(range(len(lines)), 3, 6))
    for place in (*_distinct(lines, failures)[: options.log_errors], *failures[-1:]):
        kept.keep(range(place - 3, _end_of_stack(lines, place) + 3))
    kept.keep(ends(_distinct(lines, warnings), 5, 1))
    kept.keep(ends([place for place, line in enumerate(lines) if _SUMMARY.search(line)], 5, 3))
    hidden = [sum(place not in kept for place in places) for places in (failures, warnings)]
    if any(hidden):
        kept.close(f"[not shown: {hidden[0]:,} more lines with errors, {hidden[1]:,} with warnings]")


def _distinct(lines: Sequence[str], places: Iterable[int]) -> list[int]:
    """Return the places whose lines differ by more than numbers."""
    seen: set[str] = set()
    found = []
    for place in places:
        key = _NUMBERS.sub("#", lines[place][:300]).strip()[:120]
        if key not in seen:
            seen.add(key)
            found.append(place)
    return found


def _end_of_stack(lines: Sequence[str], place: int) -> int:
    """Return the place behind an error and the lines below it that belong to it."""
    stop = place + 1
    while stop < len(lines) and stop - place <= 40 and _FRAME.match(lines[stop]):
        stop += 1
    return stop


def data(kept: Kept, options: FoldOptions) -> None:
    """Keep the first and last lines, tables, and of lines with keys those whose key is new."""
    lines = kept.lines
    edge = set(ends(range(len(lines)), options.head, options.tail))
    kept.keep(edge)
    kept.keep(place for place, line in enumerate(lines) if _ROW.match(line) or (_RULE.match(line) and line.strip()))
    structured = [place for place, line in enumerate(lines) if _key(line) is not None]
    filled = sum(bool(line.strip()) for line in lines)
    most = len(lines) if len(structured) >= 0.8 * filled else options.block
    seen = {_key(lines[place]) for place in edge}
    taken = before = -1
    for place in structured:
        if place in edge:
            continue
        if place != before + 1:
            taken = 0
        before = place
        key = _key(lines[place])
        if taken < 3 or (key not in seen and taken < most):
            kept.keep([place])
            taken += 1
        seen.add(key)


def _key(line: str) -> str | None:
    if _HEADING.match(line):
        return line.strip()
    found = _KEYED.match(line[:120])
    return found["key"] if found else None
