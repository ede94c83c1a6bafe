"""Rules about calls: what they say, what they match, and which of them decides."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prime.gate import EFFECTS, Act, Decision, Effect, Rules, decide, host_rule, narrowing, parsed


def rules(*lines: str, default: Effect = "allow", network: bool = True) -> Rules:
    """Rules of the person, and behind a ``project:`` those of a project."""
    made = [
        narrowing(parsed(line.removeprefix("project:"))) if line.startswith("project:") else parsed(line)
        for line in lines
    ]
    return Rules(tuple(made), default, network)


def effect(act: Act, *lines: str, **options: object) -> str | None:
    decision = decide(rules(*lines, **options), act)  # type: ignore[arg-type]
    return decision.effect if decision is not None else None


def act(target: str = "tools.write", effects: bool = True, **fields: tuple[str, ...]) -> Act:
    return Act(target, effects, cwd="/work", **fields)  # type: ignore[arg-type]


READ = act("tools.read", effects=False, paths=("/work/a",))


@pytest.mark.parametrize(
    "line",
    [
        "deny jobs.*",
        "ask tools.bash command=*git push*",
        "allow tools.fetch host=docs.python.org",
        "deny * path=~/a b command=x y=1 host=*.example",
    ],
)
def test_a_rule_says_itself(line: str) -> None:
    assert str(parsed(line)) == line


def test_values_may_hold_spaces_and_equal_signs() -> None:
    rule = parsed("deny tools.bash command=FOO=1 git push path=my files")
    assert (rule.command, rule.path) == ("FOO=1 git push", "my files")


@pytest.mark.parametrize(
    "line", ["", "deny", "forbid x", "deny x y", "deny x paths=y", "deny x path=", "deny x path= host=a"]
)
def test_what_is_no_rule_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="rule"):
        parsed(line)


def test_without_rules_everything_may_begin_and_effects_are_noted() -> None:
    assert decide(rules(), act()) == Decision("allow", "default")
    assert decide(rules(), act("tools.fetch", effects=False, hosts=("a",))) == Decision("allow", "default")
    assert decide(rules(), READ) is None


def test_the_default_is_for_effects_and_the_network_alone() -> None:
    for default in EFFECTS:
        assert effect(act(), default=default) == default
        assert effect(act("tools.fetch", effects=False, hosts=("a",)), default=default) == default
        assert effect(READ, default=default) is None


def test_the_first_rule_that_matches_decides() -> None:
    lines = ("allow tools.write path=src", "ask tools.*", "deny *")
    assert effect(act(paths=("/work/src/a",)), *lines) == "allow"
    assert effect(act(paths=("/work/b",)), *lines) == "ask"
    assert effect(act("jobs.start"), *lines) == "deny"
    assert decide(rules(*lines), act("jobs.start")) == Decision("deny", "deny *")


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("secrets", "/work/secrets", True),
        ("secrets", "/work/secrets/deep/a", True),
        ("secrets", "/work/secrets.txt", False),
        ("secrets/", "/work/secrets/a", True),
        ("*.env", "/work/a/b.env", True),
        ("/etc", "/etc/passwd", True),
        ("~/.ssh", os.path.expanduser("~/.ssh/id"), True),
        ("a?", "/work/ab", True),
        ("[ab]", "/work/a", True),
    ],
)
def test_paths(pattern: str, path: str, expected: bool) -> None:
    assert (effect(act(paths=(path,)), f"deny * path={pattern}") == "deny") is expected


def test_the_folder_itself_is_no_pattern() -> None:
    odd = Act("tools.write", True, cwd="/w[1]*", paths=("/w[1]*/a",))
    assert effect(odd, "deny * path=a") == "deny"
    assert effect(Act("tools.write", True, cwd="/w[1]*", paths=("/w1x/a",)), "deny * path=a") == "allow"


def test_to_allow_all_has_to_match_and_to_deny_any() -> None:
    two = act(paths=("/work/src/a", "/etc/b"))
    assert effect(two, "allow * path=src", default="ask") == "ask"
    assert effect(two, "deny * path=src") == "deny"
    assert effect(act(), "allow * path=src", default="ask") == "ask"  # one that names no path is not within it
    assert effect(act(), "deny * path=src") == "allow"


@pytest.mark.parametrize("more", ["; rm x", "&& rm x", "| sh", "\nrm x", "$(rm x)", "`rm x`", "> ~/.bashrc", "& rm x"])
def test_an_allowed_command_is_no_more_than_it_looks(more: str) -> None:
    def allowed(command: str, rule: str) -> bool:
        return effect(act("tools.bash", commands=(command,)), rule, default="deny") == "allow"

    assert allowed("git status -s", "allow tools.bash command=git status*")
    assert not allowed(f"git status {more}", "allow tools.bash command=git status*")
    exact = f"git status {more}"
    if "\n" not in exact:
        assert allowed(exact, f"allow tools.bash command={exact}")


@pytest.mark.parametrize(
    "command", ["git push", "cd a && git push -f", "true;git push", "x=$(git push)", "a\ngit push b"]
)
def test_a_denied_command_is_found_among_others(command: str) -> None:
    assert effect(act("tools.bash", commands=(command,)), "deny tools.bash command=git push*") == "deny"


def test_hosts() -> None:
    fetch = act("tools.fetch", effects=False, hosts=("docs.example.org",))
    assert effect(fetch, "deny tools.fetch host=*.EXAMPLE.org") == "deny"
    assert effect(fetch, "deny tools.fetch host=example.org") == "allow"


def test_a_project_can_only_make_it_stricter() -> None:
    assert effect(act(), "allow tools.write", "project:deny tools.write") == "deny"
    assert effect(act(), "deny tools.write", "project:ask tools.write") == "deny"
    assert effect(READ, "project:ask tools.read") == "ask"


_LINES = st.builds(
    "{} {}{}".format,
    st.sampled_from(EFFECTS),
    st.sampled_from(["*", "tools.*", "tools.write"]),
    st.sampled_from(["", " path=src", " command=git*", " host=a"]),
)
_ACTS = st.builds(
    act,
    st.sampled_from(["tools.write", "tools.read", "jobs.start"]),
    st.booleans(),
    paths=st.sampled_from([(), ("/work/src/a",), ("/x", "/work/src")]),
    commands=st.sampled_from([(), ("git a",)]),
    hosts=st.sampled_from([(), ("a",), ("b",)]),
)


@given(st.lists(_LINES, max_size=4), st.lists(_LINES, max_size=3), _ACTS, st.sampled_from(EFFECTS), st.booleans())
def test_whatever_a_project_says_nothing_gets_milder(
    own: list[str], project: list[str], of: Act, default: Effect, network: bool
) -> None:
    alone = effect(of, *own, default=default, network=network)
    both = effect(of, *own, *(f"project:{line}" for line in project), default=default, network=network)
    assert EFFECTS.index(both or "allow") >= EFFECTS.index(alone or "allow")  # type: ignore[arg-type]


def test_without_a_network_only_named_hosts_are_reached() -> None:
    fetch = act("tools.fetch", effects=False, hosts=("docs.example.org",))
    assert decide(rules("allow *", network=False), fetch) == Decision("deny", "sandbox without network")
    assert effect(fetch, "allow tools.fetch host=docs.*", network=False) == "allow"
    assert effect(act(), network=False) == "allow"


def test_the_rule_for_a_host_alone() -> None:
    def found(*lines: str, **options: bool) -> str | None:
        rule = host_rule(rules(*lines, **options), "tools.fetch", "a.org")  # type: ignore[arg-type]
        return str(rule) if rule is not None else None

    assert found("deny tools.bash host=a.org", "deny *", "allow tools.fetch host=b.org") is None
    assert found("allow tools.fetch host=*.org") == "allow tools.fetch host=*.org"
    assert found("allow tools.fetch host=a.org", "project:deny * host=a*") == "deny * host=a*"
    assert found(network=False) == "deny tools.fetch host=a.org"
    assert found("allow * host=a.org", network=False) == "allow * host=a.org"
