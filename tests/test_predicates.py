"""Rules as a model writes them, and the checks of a file's content."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from prime.predicates import MAX_RULES, RULE_CHARS, Rule, broken, parse

SECONDS = 5.0


def check(kind: str, **fields: Any) -> Any:
    (rule,) = parse(json.dumps({"rule": "r", "check": {"kind": kind, **fields}}))
    assert rule.check is not None
    return rule.check


def test_rules_come_one_a_line_in_a_list_or_in_an_object() -> None:
    items = [{"rule": "one"}, {"rule": "two", "check": {"kind": "must_contain", "text": "x"}}]
    lines = "\n".join(map(json.dumps, items))
    forms = (lines, f"```json\n{lines}\n```", json.dumps(items, indent=1), json.dumps({"rules": items}))
    for form in (*forms, lines.replace("\n", ",\n")):
        assert [rule.text for rule in parse(form)] == ["one", "two"]
        assert parse(form)[1].check == check("must_contain", text="x")


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "no_such_kind"},
        {"kind": "must_contain"},
        {"kind": "must_contain", "text": ""},
        {"kind": "must_contain", "text": "x", "unless": "y"},
        {"kind": "must_contain", "text": "x" * 301},
        {"kind": "must_contain", "text": "x", "glob": "{1..100000}"},
        {"kind": "max_line_length", "max": "80"},
        {"kind": "file_name", "pattern": "("},
        {"kind": "line_matches", "pattern": "x", "lines": "some"},
        {"kind": "field_enum", "field": "x", "values": []},
        "must contain x",
        ["x"],
    ],
)
def test_a_check_that_is_none_leaves_the_words(wrong: Any) -> None:
    assert parse(json.dumps({"rule": "keep to it", "check": wrong})) == (Rule("keep to it"),)


def test_what_is_no_json_is_a_rule_in_words() -> None:
    assert parse('- Names are lower case.\n\n{"rule": "cut of') == (
        Rule("- Names are lower case."),
        Rule('{"rule": "cut of'),
    )
    assert parse("...\n[]\n{}") == ()
    assert parse('{"rule": 3}\n[1]\nnull') == (Rule("null"),)


def test_rules_are_bounded() -> None:
    rules = parse("\n".join(["word " * 200] * 100))
    assert len(rules) == MAX_RULES
    assert {len(rule.text) for rule in rules} == {RULE_CHARS}


@pytest.mark.parametrize(
    ("kind", "fields", "path", "kept", "wrong"),
    [
        ("must_contain", {"text": "ab"}, "x", "cabd", "a b"),
        ("must_not_contain", {"text": "ab"}, "x", "a b", "cabd"),
        ("max_line_length", {"max": 2}, "x", "ab\ncd\n", "ab\ncde"),
        ("line_matches", {"pattern": "^a", "lines": "any"}, "x", "b\nab", "b\ncab"),
        ("line_matches", {"pattern": "^a", "lines": "every"}, "x", "ab\n\nac\n", "ab\nb"),
        ("field_enum", {"field": "s", "values": ["on", "off"]}, "x", "s: on\ns = 'off'\n", "s: on\n  s: maybe"),
        ("field_enum", {"field": "s", "values": ["on"]}, "x", '{"s": "on", "t": "no"}', '{"t": 1, "s": "no"}'),
        ("field_enum", {"field": "s", "values": ["on"]}, "x", "other: no\nms: no", "- s: no"),
    ],
)
def test_contents_are_checked(kind: str, fields: dict[str, Any], path: str, kept: str, wrong: str) -> None:
    rule = check(kind, **fields)
    assert broken(rule, path, kept, SECONDS) is None
    assert broken(rule, path, wrong, SECONDS)


def test_a_name_is_checked_without_its_folders() -> None:
    rule = check("file_name", pattern="^[a-z]+\\.md$")
    assert broken(rule, "UP/low.md", "", SECONDS) is None
    assert broken(rule, "low/UP.md", "", SECONDS) == "the name 'UP.md' does not match '^[a-z]+\\\\.md$'"


@pytest.mark.parametrize(
    ("glob", "path", "meant"),
    [
        ("*", "a/b.md", True),
        ("*.md", "a/b.md", True),
        ("a/*.md", "a/b.md", True),
        ("a/*.md", "a/c/b.md", False),
        ("a/**/*.md", "a/c/d/b.md", True),
        ("**/*.{md,txt}", "b.txt", True),
        ("*.py", "a/b.md", False),
        (".*", ".env", True),
    ],
)
def test_a_glob_is_held_against_path_and_name(glob: str, path: str, meant: bool) -> None:
    rule = check("must_contain", text="x", glob=glob)
    assert (broken(rule, path, "", SECONDS) is not None) is meant


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "line_matches", "pattern": "(a|aa)+$", "lines": "any"},
        {"kind": "file_name", "pattern": "(a|aa)+$"},
    ],
)
def test_a_pattern_that_explodes_is_stopped(fields: dict[str, Any]) -> None:
    text = "a" * 5_000 + "b"
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        broken(check(**fields), text, text, 0.1)
    assert time.monotonic() - begun < 5  # without a limit it would be longer than anybody lives
