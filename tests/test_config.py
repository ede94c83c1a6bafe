"""The configuration: which source wins, what a project may not do, and what reaches the guest."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pytest

from prime import guest
from prime.config import KEY_VARIABLES, PROJECT_FILE, SETTINGS, Config, load
from prime.errors import ConfigError
from prime.messages import Usage


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own file, which does not exist yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "config" / "prime-repl"
    folder.mkdir(parents=True)
    return folder / "config.toml"


@pytest.fixture
def project(tmp_path: Path, user: Path) -> Path:
    """The project's file, which does not exist yet."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder / PROJECT_FILE


def test_the_defaults_are_those_of_the_model(project: Path) -> None:
    assert load(project.parent, environment={}) == Config(guest_environment=guest.NON_INTERACTIVE)


def test_each_source_wins_over_the_ones_below(user: Path, project: Path) -> None:
    def steps(given: dict[str, int] | None = None, environment: dict[str, str] | None = None) -> int:
        return load(project.parent, given, environment or {}).max_steps

    assert steps() == 50
    user.write_text("max_steps = 40")
    assert steps() == 40
    project.write_text("max_steps = 30")
    assert steps() == 30
    assert steps(environment={"PRIME_REPL_MAX_STEPS": "45"}) == 45
    assert steps({"max_steps": 60}, {"PRIME_REPL_MAX_STEPS": "45"}) == 60
    assert steps({"max_steps": None}, {"PRIME_REPL_MAX_STEPS": "45"}) == 45  # type: ignore[dict-item]
    assert steps(environment={"PRIME_REPL_MAX_STEPS": ""}) == 30


@pytest.mark.parametrize("source", ["user", "project", "variable", "given"])
def test_an_unknown_key_is_an_error_that_names_its_source_and_the_nearest(
    source: str, user: Path, project: Path
) -> None:
    given, environment = {}, {}
    if source == "user":
        user.write_text("max_stepps = 3")
    elif source == "project":
        project.write_text("max_stepps = 3")
    elif source == "variable":
        environment["PRIME_REPL_MAX_STEPPS"] = "3"
    else:
        given["max_stepps"] = 3
    with pytest.raises(ConfigError, match="did you mean 'max_steps'") as caught:
        load(project.parent, given, environment)
    names = {"user": str(user), "project": str(project), "variable": "PRIME_REPL_MAX_STEPPS", "given": "max_stepps"}
    assert names[source] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("source", ["user", "project", "variable", "given"])
def test_a_wrong_value_is_an_error_that_names_its_source(source: str, user: Path, project: Path) -> None:
    given, environment = {}, {}
    if source == "user":
        user.write_text("max_steps = 0")
    elif source == "project":
        project.write_text("max_steps = 0")
    elif source == "variable":
        environment["PRIME_REPL_MAX_STEPS"] = "0"
    else:
        given["max_steps"] = 0
    with pytest.raises(ConfigError, match="greater than 0") as caught:
        load(project.parent, given, environment)
    names = {"user": f"{user}: max_steps", "project": f"{project}: max_steps", "variable": "PRIME_REPL_MAX_STEPS"}
    assert names.get(source, "max_steps") in str(caught.value)


def test_a_file_that_is_not_toml_is_named(user: Path, project: Path) -> None:
    user.write_text("max_steps 3")
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        load(project.parent, environment={})
    assert str(user) in str(caught.value)


@pytest.mark.parametrize("limit", ["max_steps", "max_seconds", "budget", "max_tokens", "cell_timeout_s"])
def test_a_project_lowers_limits_and_never_raises_one(limit: str, user: Path, project: Path) -> None:
    user.write_text(f"{limit} = 20")
    project.write_text(f"{limit} = 10")
    assert getattr(load(project.parent, environment={}), limit) == 10
    project.write_text(f"{limit} = 30")
    assert getattr(load(project.parent, environment={}), limit) == 20


def test_a_project_cannot_raise_a_default_either(project: Path) -> None:
    project.write_text("max_steps = 1000\ncell_timeout_s = 1e9")
    config = load(project.parent, environment={})
    assert (config.max_steps, config.cell_timeout_s) == (50, 600.0)


@pytest.mark.parametrize(
    "key",
    sorted(
        set(SETTINGS)
        - {"model", "max_steps", "max_seconds", "budget", "max_tokens"}
        - {"temperature", "effort", "cell_timeout_s", "context_policy", "context_pressure", "gate", "gate_default"}
    ),
)
def test_a_project_may_not_set_what_is_private(key: str, project: Path) -> None:
    project.write_text(f'{key} = "x"')
    with pytest.raises(ConfigError, match="a project may not set"):
        load(project.parent, environment={})


@pytest.mark.parametrize("model", ["scripted/x.py", "replay/last", "local/m", "compatible/m"])
def test_a_project_may_not_choose_a_model_that_runs_or_sends_somewhere(model: str, project: Path) -> None:
    project.write_text(f'model = "{model}"')
    with pytest.raises(ConfigError, match="a project may not choose"):
        load(project.parent, environment={})
    project.write_text('model = "openai/gpt-5"')
    assert load(project.parent, environment={}).model == "openai/gpt-5"


def test_rules_about_calls_add_up_and_a_project_only_narrows(user: Path, project: Path) -> None:
    user.write_text('gate = ["allow tools.write path=src"]\ngate_default = "ask"')
    project.write_text('gate = ["deny tools.bash"]\ngate_default = "allow"')
    environment = {"PRIME_REPL_GATE": "ask tools.read; deny jobs.*"}
    config = load(project.parent, {"gate": ["deny tools.fetch"]}, environment)
    assert [(str(rule), rule.narrows) for rule in config.gate] == [
        ("deny tools.fetch", False),
        ("ask tools.read", False),
        ("deny jobs.*", False),
        ("allow tools.write path=src", False),
        ("deny tools.bash", True),
    ]
    assert config.gate_default == "ask"
    project.write_text('gate_default = "deny"')
    assert load(project.parent, environment={}).gate_default == "deny"
    project.write_text('gate = ["allow tools.bash"]')
    with pytest.raises(ConfigError, match=r"may not have the rule `allow tools\.bash`"):
        load(project.parent, environment={})
    project.write_text('gate = ["tools.bash"]')
    with pytest.raises(ConfigError, match=r"is no rule; write one like"):
        load(project.parent, environment={})


def test_places_of_the_sandbox_are_real_paths(user: Path, project: Path) -> None:
    config = load(project.parent, None, {"PRIME_REPL_SANDBOX_READ": "~/.gitconfig:/usr/../etc"})
    assert config.sandbox_read == (Path.home().resolve() / ".gitconfig", Path("/etc"))


def test_keys_are_read_and_never_shown(project: Path) -> None:
    environment = {name: f"secret-{name}" for name in KEY_VARIABLES}
    config = load(project.parent, environment=environment)
    assert dict(config.keys) == environment
    assert "secret" not in repr(config)
    assert dict(config.guest_environment) == dict(guest.NON_INTERACTIVE)


@pytest.mark.parametrize("private", ["keys", "guest_environment"])
def test_keys_and_environment_cannot_be_given_as_settings(private: str, user: Path, project: Path) -> None:
    user.write_text(f"{private} = 1")
    with pytest.raises(ConfigError, match="there is no setting"):
        load(project.parent, environment={})
    user.write_text("")
    with pytest.raises(ConfigError, match="there is no setting"):
        load(project.parent, {private: {}}, {})
    with pytest.raises(ConfigError, match="is no setting"):
        load(project.parent, None, {f"PRIME_REPL_{private.upper()}": "x"})


def test_the_guest_gets_allowed_variables_only(project: Path) -> None:
    environment = {"PATH": "/bin", "LANG": "C", "CANARY_TOKEN": "secret", "OPENAI_API_KEY": "secret", "MINE": "x"}
    config = load(project.parent, {"pass_environment": "MINE, MISSING"}, environment)
    passed = {"PATH": "/bin", "LANG": "C", "MINE": "x"}
    assert dict(config.guest_environment) == {**guest.NON_INTERACTIVE, **passed}
    assert set(guest.PASSED).isdisjoint(KEY_VARIABLES)


def test_a_configuration_does_not_change(project: Path) -> None:
    config = load(project.parent, environment={"PATH": "/bin", "OPENAI_API_KEY": "k"})
    with pytest.raises(TypeError):
        config.guest_environment["PATH"] = "/else"  # type: ignore[index]
    with pytest.raises(TypeError):
        config.keys["X"] = "y"  # type: ignore[index]


@pytest.mark.parametrize(
    "key", ["pin_first_turn", "pinUserChars", "history_high_water_chars", "inTurnSeal", "tape", "pinSteps", "mode"]
)
def test_a_retired_setting_says_what_there_is_instead(key: str, user: Path, project: Path) -> None:
    user.write_text(f"{key} = 1")
    with pytest.raises(ConfigError, match=rf"there is no setting '{key}' any more; \w+"):
        load(project.parent, environment={})


def test_a_misspelt_setting_of_the_tape_names_the_nearest(user: Path, project: Path) -> None:
    user.write_text("tape_entry_max_char = 300")
    with pytest.raises(ConfigError, match="did you mean 'tape_entry_max_chars'"):
        load(project.parent, environment={})
    user.write_text("tape_entry_max_chars = 255")
    with pytest.raises(ConfigError, match="tape_entry_max_chars=255: input should be greater than or equal to 256"):
        load(project.parent, environment={})


def test_models_have_shares_of_their_own(user: Path, project: Path) -> None:
    user.write_text('context_pressure_of = {"deepseek/deepseek-chat" = 0.3}')
    assert load(project.parent, environment={}).context_pressure_of == {"deepseek/deepseek-chat": 0.3}
    given = {"PRIME_REPL_CONTEXT_PRESSURE_OF": "a/b=0.5,c/d=0.25"}
    assert load(project.parent, environment=given).context_pressure_of == {"a/b": 0.5, "c/d": 0.25}
    with pytest.raises(ConfigError, match="PRIME_REPL_CONTEXT_PRESSURE_OF"):
        load(project.parent, environment={"PRIME_REPL_CONTEXT_PRESSURE_OF": "a/b"})
    project.write_text("context_pressure = 0.9")
    assert load(project.parent, environment={}).context_pressure == 0.8  # a project may only lower it


def test_prices_of_ones_own_are_the_users_alone(user: Path, project: Path) -> None:
    user.write_text('[prices."compatible/mine"]\ninput = 0.1\ncached_input = 0.01\noutput = 0.4\n')
    (price,) = load(project.parent, environment={}).prices.values()
    assert price.cost(Usage(input=1_000_000, cache_read=1_000_000, output=1_000_000)) == Decimal("0.51")
    project.write_text("[prices.x]\ninput = 0\noutput = 0\n")
    with pytest.raises(ConfigError, match="a project may not set 'prices'"):
        load(project.parent, environment={})


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("input = 1\noutput = 1\nzzz = 1", "prices: m: there is no 'zzz'; there are input, cached_input,"),
        ("input = 1\noutput = 1\ncached_inptu = 1", "did you mean 'cached_input'"),
        ("input = -1\noutput = 1", "prices: m: input=-1: input should be greater than or equal to 0"),
        ("input = 1", "prices: m: output={'input': 1}: field required"),
    ],
)
def test_a_wrong_price_says_which_and_what_there_is(table: str, says: str, user: Path, project: Path) -> None:
    user.write_text(f"[prices.m]\n{table}\n")
    with pytest.raises(ConfigError, match=re.escape(says)):
        load(project.parent, environment={})


def test_servers_get_the_variables_that_they_name(user: Path, project: Path) -> None:
    user.write_text(
        "[mcp_servers.a]\ncommand = 'x'\npass_env = ['ONE']\n\n"
        "[mcp_servers.b]\nurl = 'https://b.org'\ntoken_env = 'TWO'\ntoken_for = 'https://b.org'\n"
    )
    config = load(project.parent, environment={"ONE": "1", "TWO": "2", "THREE": "3"})
    assert config.server_environment == {"ONE": "1", "TWO": "2"}
    assert "ONE" not in config.guest_environment


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("comand = 'x'", "did you mean 'command'"),
        ("env = { KEY = 's3cret' }", "either a command or a url"),
        ("command = 'x'\nurl = 'https://b.org'", "either a command or a url"),
        ("command = 'x'\nenv = { KEY = 's3cret', N = 5 }", "N: Input should be a valid string"),
        ("url = 'https://b.org'\ntoken_env = 'TWO'", "token_for"),
        ("url = 'b.org'", "https://"),
    ],
)
def test_a_wrong_server_is_named_without_its_values(table: str, words: str, user: Path, project: Path) -> None:
    user.write_text(f"[mcp_servers.a]\n{table}\n")
    with pytest.raises(ConfigError) as caught:
        load(project.parent, environment={})
    assert words in str(caught.value)
    assert "mcp_servers" in str(caught.value)
    assert "s3cret" not in str(caught.value)
