from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prime.policies.base import FoldOptions
from prime.policies.fold import Folded, fold
from prime.policies.kinds import kind_of

CALL = "history.expand(seq=12, format=1)"


def view(text: str, **of: Any) -> Folded:
    found = fold(text, CALL, **of)
    assert found is not None
    assert len(found.text) < 0.55 * len(text)
    assert found.chars == len(text)
    assert f"`await {CALL}`" in found.text.splitlines()[0]
    return found


def numbered(text: str, times: int) -> str:
    return "\n".join(text.format(n=n, m=n * 7919 % 1000) for n in range(times))


PYTEST = (
    "============================= test session starts ==============================\n"
    "platform linux -- Python 3.11\nrootdir: /work\ncollected 1390 items\n\n"
    + numbered("tests/test_part{n}.py ..........                              [{n:3d}%]", 120)
    + "\n\n=================================== FAILURES ===================================\n"
    "____________________________ test_rates_are_exact ______________________________\n\n"
    "    def test_rates_are_exact():\n        table = load()\n>       assert table['eur'] == 1.07\n"
    "E       AssertionError: assert 1.08 == 1.07\nE        +  where 1.08 = load()\n\n"
    "tests/test_rates.py:31: AssertionError\n"
    "=========================== short test summary info ============================\n"
    "FAILED tests/test_rates.py::test_rates_are_exact - AssertionError: assert 1.08 == 1.07\n"
    "========================= 1 failed, 1389 passed in 3.21s =========================\n"
)
SERVICE = numbered("2026-01-02 10:00:{n:02d} INFO worker handled request {n} in {m} ms", 900)
CODE = "\n".join(f"def step_{n}(value: int) -> int:\n    if value > {n}:\n        return value\n" for n in range(200))
NOTES = "\n".join(
    f"Paragraph {n} tells of the harbour, its {n * 37 % 90} boats and the weather there." for n in range(200)
)


@pytest.mark.parametrize(
    ("text", "target", "kind"),
    [
        (PYTEST, None, "log"),
        (SERVICE, None, "log"),
        (numbered("   Compiling part-{n} v0.{m}.1", 100), None, "log"),
        (numbered('10.0.0.{m} - - [02/Jan/2026:10:00:00] "GET /{n} HTTP/1.1" 200 {m}', 100), None, "log"),
        (numbered("src/a.py:{n}:    value = {m}", 100), None, "search"),
        (numbered("src/part_{n}.py", 100), "tools.glob", "search"),
        ("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-a\n+b\n", None, "diff"),
        ("Index: x\n--- x\n+++ x\n@@ -1 +1 @@\n-a\n+b\n", None, "diff"),
        (json.dumps([1, 2, 3]), None, "json"),
        ('{"a": 1}\n{"a": 2}\n{"a": 3}\n', None, "json"),
        (CODE, None, "code"),
        (CODE, "tools.read", "code"),
        (numbered("12: key{n} = {m}", 20), "tools.read", "data"),
        (SERVICE, "tools.read", "data"),  # a log in a file is a document
        (NOTES, None, "data"),
        (numbered("{n},{m},name", 100), None, "data"),
        ("今日は天気がいい。\n" * 50, None, "data"),
    ],
)
def test_a_text_is_taken_for_what_it_is(text: str, target: str | None, kind: str) -> None:
    assert kind_of(text, text.splitlines(), target, {}) == kind


def test_a_failing_test_run_keeps_the_failure_whole() -> None:
    found = view(PYTEST)
    start = PYTEST.index("    def test_rates_are_exact")
    assert PYTEST[start:].strip() in found.text
    assert len(found.text) < 0.15 * len(PYTEST)


def test_an_error_in_the_middle_of_a_log_is_kept_with_its_stack_and_surroundings() -> None:
    lines = SERVICE.splitlines()
    lines[450:450] = ["2026-01-02 10:00:00 ERROR request 450 failed: upstream", "  at handler.go:31", "  at core.go:99"]
    found = view("\n".join(lines))
    assert "\n".join(lines[447:456]) in found.text
    assert lines[0] in found.text
    assert lines[-1] in found.text


def test_errors_that_differ_in_numbers_alone_are_one_and_the_rest_is_counted() -> None:
    lines = SERVICE.splitlines()
    for place in range(100, 800, 10):
        lines[place] = f"2026-01-02 10:00:00 ERROR disk {place} is full"
    found = view("\n".join(lines))
    shown = len(re.findall("is full", found.text))
    assert shown <= 4
    assert f"[not shown: {70 - shown} more lines with errors, 0 with warnings]" in found.text


@pytest.mark.parametrize("words", ["0 errors, 0 warnings", "no failures"])
def test_what_says_that_all_is_well_is_no_error(words: str) -> None:
    lines = SERVICE.splitlines()
    lines[100:800:5] = [f"2026-01-02 10:00:00 INFO part {n}: {words}" for n in range(140)]
    assert "with errors" not in view("\n".join(lines)).text


def test_a_search_keeps_the_ends_of_each_file_and_counts_the_rest() -> None:
    text = "\n".join(f"src/m{file}.py:{line}: x = {line}" for file in range(4) for line in range(40))
    found = view(text)
    assert found.kept == 20
    for file in range(4):
        assert f"src/m{file}.py:0: x" in found.text
        assert f"src/m{file}.py:39: x" in found.text
        assert f"35 more in src/m{file}.py" in found.text


def test_the_tools_own_form_of_a_search_keeps_the_files_with_their_matches() -> None:
    text = "".join(f"src/m{file}.py\n" + numbered("  {n}: x = {m}", 50) + "\n" for file in range(30))
    shown = view(text, target="tools.grep").text
    assert "src/m0.py\n  0: x = 0\n" in shown
    assert "src/m29.py" not in shown
    assert re.search(r"\[not shown: ([\d,]+) more in 18 other places\]", shown)


def test_json_keeps_the_rest_of_the_object_errors_and_the_ends() -> None:
    items = [{"id": n, "state": "ok"} for n in range(300)]
    items[77]["state"] = "error: disk full"
    shown = view(json.dumps({"total": 300, "items": items, "next": None})).text
    assert '{"total": 300, "next": null}' in shown
    assert "error: disk full" in shown
    assert '"id": 0' in shown
    assert '"id": 299' in shown
    assert "items 79-298 with id, state" in shown


def test_equal_items_are_shown_once() -> None:
    shown = view(json.dumps([{"state": "ok", "text": "x" * 20}] * 300 + [{"state": "other"}] * 5)).text
    assert shown.count('"ok"') == 1
    assert shown.count('"other"') == 1


def test_a_diff_keeps_the_headers_and_what_changed() -> None:
    hunks = "".join(
        f"@@ -{n * 90},80 +{n * 90},80 @@\n" + " same\n" * 40 + f"-old {n}\n+new {n}\n" + " same\n" * 40
        for n in range(15)
    )
    found = view("".join(f"diff --git a/f{n} b/f{n}\n--- a/f{n}\n+++ b/f{n}\n{hunks}" for n in range(2)))
    for n in range(2):
        assert f"+++ b/f{n}" in found.text
    assert found.text.count("-old 0\n+new 0") == 2
    assert found.text.count("-old 14\n+new 14") == 2
    assert found.text.count("+new") == 20  # ten hunks of each file


def test_of_a_repeated_key_a_few_lines_stay() -> None:
    found = view(numbered("value: {n:04d} xx", 900))
    assert found.kept == 17
    assert len(found.text) < 500


def test_rules_keep_every_line_with_a_key_of_its_own() -> None:
    head, tail = NOTES[:7_000], NOTES[-7_000:]
    rules = numbered("R{n} path: files go below dir{n}", 12)
    shown = view(f"{head}\n{rules}\n{tail}").text
    assert rules in shown


def test_tables_in_a_document_stay() -> None:
    table = "| name | value |\n|---|---|\n" + numbered("| n{n} | {m} |", 30)
    assert table in view(f"{NOTES}\n{table}\n{NOTES}").text


def test_one_long_line_keeps_its_head_and_its_tail() -> None:
    found = view("a" * 9_000 + "b")
    assert "a" * 700 + " [... " in found.text
    assert found.text.endswith("a" * 299 + "b")


def test_a_text_too_long_to_be_looked_at_keeps_both_ends() -> None:
    text = numbered("2026-01-02 10:00:00 INFO request {n} took {m} ms", 20_000)
    found = view(text, options=FoldOptions(most=100_000))
    assert "request 0 " in found.text
    assert "request 19999 " in found.text
    assert re.search(r"\[\.\.\. [\d,]+ characters of the middle were not looked at \.\.\.\]", found.text)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (CODE, None),
        (CODE, "tools.read"),
        (SERVICE, "history.expand"),
        (NOTES[:5_999], None),
        (SERVICE[:500], None),
        (numbered("R{n} path: every rule has a key of its own {m}", 150), None),
        ("", None),
    ],
)
def test_what_stays_as_it_is(text: str, target: str | None) -> None:
    assert fold(text, CALL, target=target) is None


def test_the_kept_lines_are_counted_and_the_gaps_name_the_others() -> None:
    lines = SERVICE.splitlines()
    found = view(SERVICE)
    shown = [line for line in found.text.splitlines()[1:] if not line.startswith("[")]
    assert len(shown) == found.kept
    missing: set[int] = set()
    for first, last in re.findall(r"\[\.\.\. lines (\d+)-(\d+), ", found.text):
        missing.update(range(int(first), int(last) + 1))
    assert [line for number, line in enumerate(lines, 1) if number not in missing] == shown


WORDS = [
    "INFO ok",
    "ERROR broken",
    "key: value",
    "| a | b |",
    "src/a.py:12: x",
    "return x;",
    "",
    "    at f (x.js:1:2)",
    "今日",
    "x" * 1_600,
]


@given(
    st.lists(st.sampled_from(WORDS), max_size=300),
    st.integers(0, 3),
    st.sampled_from([None, "tools.read", "tools.grep"]),
)
def test_a_view_is_small_made_of_the_text_and_the_same_every_time(
    lines: list[str], repeat: int, target: str | None
) -> None:
    text = "\n".join(lines * (1 + repeat * 10))
    found = fold(text, CALL, target=target)
    assert found == fold(text, CALL, target=target)
    if found is None:
        return
    assert len(found.text) < 0.55 * len(text)
    assert found.lines == len(text.splitlines())
    assert found.kept <= found.lines
    for line in found.text.splitlines()[1:]:
        assert line in WORDS or line.startswith("[") or " characters ...] " in line


@pytest.mark.parametrize(
    "text",
    [
        "a:" * 100_000,
        (" " * 5_000 + "\n") * 100,
        ("{" * 300 + "\n") * 1_000,
        "[" * 100_000,
        '{"a":' * 50_000,
        "=" * 100_000 + "\n" * 10,
    ],
)
def test_hostile_text_is_handled(text: str) -> None:
    fold(text, CALL)


def test_random_bytes_as_text_are_handled() -> None:
    chosen = random.Random(7)
    fold("".join(chr(chosen.randrange(1, 0xD800)) for _ in range(50_000)), CALL)
