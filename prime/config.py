"""One frozen configuration. The only reader of the environment and of configuration files.

Precedence: what the caller passes > ``PRIME_REPL_*`` > ``prime-repl.toml`` of the project > the user's
``config.toml`` > defaults. A project's file comes with a folder that somebody else may have written: it may lower
limits and choose among hosted models, and nothing else, so that opening a folder neither runs anything nor sends a key
anywhere. Rules about calls add up: those of a project can only make the others stricter.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import platformdirs
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from prime import guest
from prime.endpoints import Endpoint, Endpoints
from prime.errors import ConfigError
from prime.gate import Effect, Rule, narrowing, parsed, stricter
from prime.pricing import Price
from prime.sandbox import Level

PREFIX = "PRIME_REPL_"
PROJECT_FILE = "prime-repl.toml"

#: Settings that a project's file may have. The limits among them may only be lowered there.
_LIMITS = ("max_steps", "max_seconds", "budget", "max_tokens", "cell_timeout_s", "context_pressure")
_PROJECT_KEYS = (*_LIMITS, "gate", "gate_default", "model", "temperature", "effort", "context_policy")
#: Settings of older designs of the tape, which some guides still name -> what there is instead.
_RETIRED = {
    "pin_first_turn": "what a person said always stays at its place",
    "pin_user_chars": "what a person said always stays at its place; tape_profile = 'v3' takes excerpts",
    "high_water_chars": "set context_pressure",
    "low_water_chars": "set context_retain",
    "keep_recent_chars": "set context_retain or tape_keep_recent_turns",
    "checkpoint_max_chars": "set tape_entry_max_chars",
    "max_request_chars": "set context_pressure",
    "max_history_chars": "set context_pressure",
    "max_parallel_tool_calls": "calls that may overlap do so by themselves",
    "in_turn_seal": "only completed turns are sealed",
    "pin_steps": "set stream_pin_steps",
    "extract_at_step": "set stream_extract_step",
    "enforce_from_step": "set stream_enforce_step",
    "side_effort": "set stream_side_effort",
    "mode": "set context_policy",
    "tape": "set context_policy = 'slice'",
    "state": "set context_policy",
}
#: Models that neither a project's file nor an agent may choose: they run programs or scripts, or send a key to an
#: address.
PRIVATE_MODELS = ("scripted/", "replay/", "local/", "compatible/")

#: Variables that hold keys of model providers. They reach the provider's client and nothing else.
KEY_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "DEEPSEEK_API_KEY",
    "OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "PRIME_REPL_API_KEY",
)


def _names(value: Any) -> Any:
    return tuple(filter(None, value.replace(",", " ").split())) if isinstance(value, str) else value


def _shares(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    pairs = (pair.rpartition("=") for pair in value.split(",") if pair)
    return {name: share for name, _, share in pairs}


def _rules(value: Any) -> Any:
    lines = filter(None, map(str.strip, value.split(";"))) if isinstance(value, str) else value
    return tuple(parsed(line) if isinstance(line, str) else line for line in lines)


def _program(value: str | None) -> str | None:
    # what it is relative to must not depend on where it is started
    return os.path.abspath(os.path.expanduser(value)) if value is not None and os.sep in value else value


def _paths(value: Any) -> Any:
    return tuple(filter(None, value.split(os.pathsep))) if isinstance(value, str) else value


def _real(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    return tuple(path.expanduser().resolve() for path in paths)


#: Files and folders, by their real names; in a variable with colons between them.
Paths = Annotated[tuple[Path, ...], BeforeValidator(_paths), AfterValidator(_real)]
#: A share of a model's window.
Share = Annotated[float, Field(gt=0, le=1)]
#: Variables by name; pydantic makes a plain dict of any mapping, which could be changed.
Variables = Annotated[Mapping[str, str], AfterValidator(MappingProxyType)]


def _no_variables() -> Mapping[str, Any]:
    return MappingProxyType({})


class Config(BaseModel):
    """Every setting. Sizes are bytes, times seconds, prices US dollars; None means no limit or the default of others.

    Attributes:
        model: ``PROVIDER/NAME``; None looks for what is there.
        base_url: address of ``compatible/NAME``, or in the place of a provider's own.
        home: the data directory.
        python: interpreter of the kernel, the host's own by default.
        max_steps, max_seconds: of one turn.
        budget: US dollars of one session, with its children.
        max_tokens, temperature, effort: of one reply.
        cell_timeout_s: of one cell.
        visible_output_bytes: of a cell's output that the model sees.
        output_limit_bytes: of a cell's output that the log keeps.
        memory_limit_bytes: of data of the kernel, and of each process that it starts; Linux alone enforces it.
        max_kernels: alive at once, of an agent with its children.
        query_characters, query_prompts, query_parallel: of one prompt; prompts of one ``agents.query_many``, and how
            many of them are with the model at the same time.
        children_depth, children_running, children_total: generations of agents below the first; of them at work at the
            same time; ever started.
        children_tokens, children_cost: new tokens (not from a provider's cache) and US dollars of all of them together.
        context_policy: how the window is kept; see ``docs/context.md``.
        context_pressure: share of the model's window from which room is made.
        context_pressure_of: the same for single models, by full name; in a variable ``NAME=SHARE`` with commas.
        context_retain: tokens of the newest messages that stay when the window is switched.
        context_lead: tokens before that at which the model is asked to bring its note up to date; 0 for never.
        tape_keep_recent_turns: completed turns that are not sealed.
        tape_entry_max_chars: most characters of one sealed entry.
        tape_profile: ``v4`` keeps words whole, ``v3`` takes excerpts, also of the person's.
        tape_locators: ``long`` prints the whole call on the line of each result.
        stream_pin_steps: under the policy ``stream``, files read in so many first steps of a turn are told once more.
        stream_extract_step: the step of a turn before which its rules are asked for.
        stream_enforce_step: the step from which writes are held against them.
        stream_side_effort: reasoning effort of that question; none is asked for by default.
        contract_bounce_budget: writes that one rule may refuse in a turn before it is suspended.
        recall_scope: what ``history`` may look into: the session alone, or all sessions in ``home``.
        kernel_idle_s: time without use after which a kernel is ended that holds nothing, or nothing that is not saved.
        kernel_template: whether kernels are forked from one that has imported everything; Linux only.
        idle_timeout_s: silence of a streaming model that counts as a failure.
        snapshot: when the variables are saved for a later kernel: at the ``close`` of a session, also after each
            ``turn`` and each cell run by hand, or never (``off``).
        gate: rules about host calls, each one line, the first that matches decides; in a variable with ``;`` between
            them. See ``docs/safety.md``.
        gate_default: what becomes of calls with effects, or to the network, that no rule matches.
        sandbox: what cells and tools may see and change: ``off``: what the user may; ``net-off``: no network; ``full``:
            nothing outside of the workspace can be changed either, and the home folder is hidden.
        sandbox_network: whether a ``full`` sandbox has the network.
        sandbox_read: files and folders that a ``full`` sandbox shows besides, such as ``~/.gitconfig``.
        sandbox_write: those that it lets change besides.
        mcp_servers: servers whose tools cells can call, by name; see ``docs/mcp.md``.
        pass_environment: further variables that the kernel and its commands get.
        prices: of models in US dollars for a million tokens, by full name or a pattern; see ``docs/cost.md``.
        keys: provider keys by variable name.
        server_environment: the variables that are given to servers, by name.
        guest_environment: the environment of the kernel and its commands.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str | None = None
    base_url: str | None = None
    home: Path = Field(default_factory=lambda: Path(platformdirs.user_data_dir("prime-repl", appauthor=False)))
    python: Annotated[str | None, AfterValidator(_program)] = None
    max_steps: int = Field(50, gt=0)
    max_seconds: float | None = Field(None, gt=0)
    budget: float | None = Field(None, gt=0)
    max_tokens: int | None = Field(None, gt=0)
    temperature: float | None = Field(None, ge=0)
    effort: str | None = None
    cell_timeout_s: float = Field(600.0, gt=0)
    visible_output_bytes: int = Field(12_000, ge=1_000)
    output_limit_bytes: int = Field(16 * 1024 * 1024, ge=64 * 1024)
    memory_limit_bytes: int | None = Field(None, ge=512 * 1024 * 1024)
    max_kernels: int = Field(32, gt=0)
    query_characters: int = Field(200_000, ge=1_000)
    query_prompts: int = Field(20, gt=0)
    query_parallel: int = Field(8, gt=0)
    children_depth: int = Field(3, ge=0)
    children_running: int = Field(8, gt=0)
    children_total: int = Field(64, ge=0)
    children_tokens: int | None = Field(10_000_000, gt=0)
    children_cost: float | None = Field(10.0, gt=0)
    context_policy: Literal["transcript", "fold", "slice", "window", "auto", "stream"] = "auto"
    context_pressure: float = Field(0.8, gt=0, le=1)
    context_pressure_of: Annotated[Mapping[str, Share], BeforeValidator(_shares), AfterValidator(MappingProxyType)] = (
        Field(default_factory=_no_variables)
    )
    context_retain: int = Field(16_000, ge=0)
    context_lead: int = Field(16_384, ge=0)
    tape_keep_recent_turns: int = Field(0, ge=0)
    tape_entry_max_chars: int | None = Field(None, ge=256)
    tape_profile: Literal["v4", "v3"] = "v4"
    tape_locators: Literal["long", "short"] = "long"
    stream_pin_steps: int = Field(2, ge=1)
    stream_extract_step: int = Field(3, ge=2)
    stream_enforce_step: int = Field(8, ge=1)
    stream_side_effort: str | None = None
    contract_bounce_budget: int = Field(1, ge=0)
    recall_scope: Literal["session", "all"] = "session"
    kernel_idle_s: float = Field(600.0, gt=0)
    kernel_template: bool = False
    idle_timeout_s: float = Field(120.0, gt=0)
    snapshot: Literal["close", "turn", "off"] = "close"
    gate: Annotated[tuple[Rule, ...], BeforeValidator(_rules)] = ()
    gate_default: Effect = "allow"
    sandbox: Level = "off"
    sandbox_network: bool = False
    sandbox_read: Paths = ()
    sandbox_write: Paths = ()
    mcp_servers: Endpoints = Field(default_factory=_no_variables)
    pass_environment: Annotated[tuple[str, ...], BeforeValidator(_names)] = ()
    prices: Annotated[Mapping[str, Price], AfterValidator(MappingProxyType)] = Field(default_factory=_no_variables)
    keys: Variables = Field(default_factory=_no_variables, repr=False)
    server_environment: Variables = Field(default_factory=_no_variables, repr=False)
    guest_environment: Variables = Field(default_factory=_no_variables, repr=False)

    @property
    def network(self) -> bool:
        """Whether cells reach the network."""
        return self.sandbox == "off" or (self.sandbox == "full" and self.sandbox_network)


#: Settings by name, as files and ``PRIME_REPL_NAME`` variables give them.
SETTINGS = tuple(
    name for name in Config.model_fields if name not in ("keys", "server_environment", "guest_environment")
)


def user_file() -> Path:
    """Return the path of the user's configuration file, which need not exist."""
    return Path(platformdirs.user_config_dir("prime-repl", appauthor=False)) / "config.toml"


def load(cwd: Path, given: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None) -> Config:
    """Return the configuration for work in ``cwd``. ``given`` is what the caller passes; None in it means not given.
    ``environment`` is the process's own by default.

    Raises:
        ConfigError: one line that names the file or variable, the key, and the nearest valid one.
    """
    environment = os.environ if environment is None else environment
    user = _file(user_file(), SETTINGS)
    settings = _narrowed(user, _file(cwd / PROJECT_FILE, _PROJECT_KEYS), cwd / PROJECT_FILE)
    variables = _variables(environment)
    passed_on = {name: value for name, value in (given or {}).items() if value is not None}
    if unknown := passed_on.keys() - set(SETTINGS):
        raise ConfigError(f"there is no setting {min(unknown)!r}{_nearest(min(unknown), SETTINGS)}")
    _checked(variables, lambda name: f"the variable {PREFIX}{name.upper()}")
    rules = [_checked({"gate": given.get("gate", ())}).gate for given in (passed_on, variables, settings)]
    settings |= variables | passed_on
    settings["gate"] = tuple(rule for given in rules for rule in given)
    passed = _checked({"pass_environment": settings.get("pass_environment", ())}).pass_environment
    guest_environment = guest.environment(environment, passed)
    keys = {name: environment[name] for name in KEY_VARIABLES if environment.get(name)}
    servers = _checked({"mcp_servers": settings.get("mcp_servers", {})}).mcp_servers.values()
    given_to = {name: environment[name] for one in servers for name in one.variables if name in environment}
    own = {"keys": keys, "server_environment": given_to, "guest_environment": guest_environment}
    return _checked({**settings, **own})


def _checked(settings: Mapping[str, Any], where: Callable[[str], str] = str) -> Config:
    """Return the configuration of these settings alone; ``where`` says for a name where its value was given."""
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        found = error.errors()[0]
        name, *inside = map(str, found["loc"])
        if found["type"] == "extra_forbidden" and inside:
            near = _nearest(inside[-1], tuple((Endpoint if name == "mcp_servers" else Price).model_fields))
            raise ConfigError(f"{where(name)}: {inside[0]}: there is no {inside[-1]!r}{near}") from None
        place = where(name) + "".join(f": {each}" for each in inside)
        if name == "mcp_servers":  # its values may be secrets
            raise ConfigError(f"{place}: {found['msg'].removeprefix('Value error, ')}") from None
        raise ConfigError(f"{place}={found['input']!r}: {found['msg'].lower()}") from None


def _file(path: Path, known: tuple[str, ...]) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    for name in found:
        if name in known:
            continue
        if name in SETTINGS:
            raise ConfigError(f"{path}: a project may not set {name!r}; put it into your own configuration file")
        raise ConfigError(f"{path}: there is no setting {name!r}{_nearest(name, known)}")
    _checked(found, lambda name: f"{path}: {name}")
    return found


def _narrowed(user: Mapping[str, Any], project: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the user's settings with the project's over them, no limit higher than without the project."""
    model = project.get("model")
    if isinstance(model, str) and model.startswith(PRIVATE_MODELS):
        raise ConfigError(
            f"{path}: a project may not choose {model!r}; pass --model or use your own configuration file"
        )
    without, within = _checked(user), _checked({**user, **project})
    settings = {**user, **project}
    for name in _LIMITS:
        allowed, wanted = getattr(without, name), getattr(within, name)
        if allowed is not None and wanted is not None and wanted > allowed:
            settings[name] = allowed
    if loose := [rule for rule in _checked(project).gate if rule.effect == "allow"]:
        raise ConfigError(f"{path}: a project may not have the rule `{loose[0]}`; it may only ask and deny")
    settings["gate"] = (*without.gate, *map(narrowing, _checked(project).gate))
    settings["gate_default"] = stricter(without.gate_default, within.gate_default)
    return settings


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    found = {}
    others = (*KEY_VARIABLES, f"{PREFIX}TEST_LLAMA_SERVER", f"{PREFIX}TEST_MODEL")
    for variable, value in environment.items():
        if not variable.startswith(PREFIX) or variable in others:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if not value:
            continue  # set to nothing is the shell's way of not set
        if name not in SETTINGS:
            raise ConfigError(f"the variable {variable} is no setting{_nearest(name, SETTINGS)}")
        found[name] = value
    return found


def _nearest(name: str, known: tuple[str, ...]) -> str:
    # names of older tapes come in camel case, and with the name of their group before them
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.rpartition(".")[2]).lower()
    if (instead := _RETIRED.get(re.sub(r"^(tape|history|context)_(?=.)", "", plain))) is not None:
        return f" any more; {instead}"
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
