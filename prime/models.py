"""Which model is meant, and which there are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prime.config import PRIVATE_MODELS, Config
from prime.errors import ConfigError, ModelNotFound
from prime.log import read
from prime.projection import queries, replies
from prime.providers import probe, registry
from prime.providers.base import Provider
from prime.providers.llama import find_server
from prime.providers.replay import ReplayProvider
from prime.sessions import Sessions

#: What a key is used for when no model is named: for each provider a current model that calls tools well.
USUAL_MODELS = (
    "anthropic/claude-sonnet-5-5",
    "openai/gpt-5.4-mini",
    "deepseek/deepseek-chat",
    "openrouter/anthropic/claude-sonnet-5.5",
)


def of_child(config: Config, model: str) -> Provider:
    """Return the model that an agent has chosen for a child.

    Raises:
        ModelNotFound, ConfigError: there is none like this, or it is for a person to choose.
    """
    if model.startswith(PRIVATE_MODELS):
        raise ConfigError(f"an agent may not choose {model!r}; leave model out, or name a hosted one")
    return resolve(config.model_copy(update={"model": model, "base_url": None}))


def resolve(config: Config) -> Provider:
    """Return the configured model.

    ``replay/SESSION`` gives the replies of a recorded session again; of a child that has seen a conversation, its own.

    Raises:
        ModelNotFound, ConfigError: none is configured, or not like this; one line that lists the choices.
        SessionNotFound: no such recording.
    """
    provider, _, name = (config.model or "").partition("/")
    if provider == "replay":
        sessions = Sessions(config.home)
        session = sessions.resolve(name)
        with sessions.read(session) as store:
            forked = store.last(("session_forked",)) if "." in session else None
            start = forked.seq if forked is not None else 0
            asked = queries(read(store, start, types=("query_asked", "query_ended")))
            return ReplayProvider(f"replay/{session}", replies(read(store, start, types=("model_replied",))), asked)
    return registry.resolve(config.model, settings(config))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that is there to be used: its full name, and one line that says why it is thought to be."""

    model: str
    why: str


async def candidates(config: Config) -> tuple[Candidate, ...]:
    """Return the models that can be used, the best choice first: the configured one, those whose key is there, those of
    servers that answer on this machine, model files. Servers are asked for their models, and nothing is started.
    """
    configured = [Candidate(config.model, "configured")] if config.model is not None else []
    addresses = {"compatible": config.base_url} if config.base_url else probe.USUAL
    served = [
        Candidate(model, f"{server.base_url} answers")
        for server in await probe.probe(addresses)
        for model in server.models
    ]
    if config.base_url:
        return (*configured, *served)  # a provider's key is not for somebody else's address
    keys = [(name, registry.key_variable(name.partition("/")[0])) for name in USUAL_MODELS]
    hosted = [Candidate(name, f"{variable} is set") for name, variable in keys if variable in config.keys]
    files = [Candidate(f"local/{file.stem}", f"file {file}") for file in _model_files(config)]
    return (*configured, *hosted, *served, *files)


def _model_files(config: Config) -> list[Path]:
    try:
        find_server(config.guest_environment)
    except ConfigError:  # without the server a file is no model that can be used; `doctor` says how to get it
        return []
    return sorted((config.home / "models").glob("*.gguf"))


async def choose(config: Config) -> Candidate:
    """Return the model to use: the configured one, else the best that is there.

    Raises:
        ModelNotFound: there is none; one line that lists the choices.
    """
    if config.model is not None:
        return Candidate(config.model, "configured")
    found = await candidates(config)
    if not found and config.base_url:
        raise ModelNotFound(f"{config.base_url} does not list its models; choose one with --model compatible/NAME")
    if not found:
        raise ModelNotFound(
            "no model is configured, no key is set and no model server answers on this machine; "
            f"choose one with --model: {registry.choices()}"
        )
    return found[0]


def settings(config: Config) -> registry.Settings:
    """Return what providers need of a configuration."""
    return registry.Settings(
        keys=config.keys,
        base_url=config.base_url,
        models_dir=config.home / "models",
        idle_timeout_s=config.idle_timeout_s,
        environment=config.guest_environment,
    )
