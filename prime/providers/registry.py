"""From a model's name to its provider. A new provider is one file and one row."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import urlsplit

from prime.errors import ConfigError, ModelNotFound
from prime.providers.anthropic import Messages
from prime.providers.base import Provider
from prime.providers.chat import Chat
from prime.providers.dialects import DIALECTS, Dialect
from prime.providers.http import Endpoint, HttpProvider, Patience
from prime.providers.llama import find_server
from prime.providers.local import LocalProvider, find_model
from prime.providers.scripted import ScriptedProvider
from prime.providers.windows import context_window
from prime.providers.wire import Wire

ANTHROPIC_URL, ANTHROPIC_KEY = "https://api.anthropic.com", "ANTHROPIC_API_KEY"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class Settings:
    """What providers need to know; nothing here reads the environment.

    Attributes:
        keys: the secrets that are there, by the name of their variable (``OPENAI_API_KEY``).
        base_url: address of ``compatible/NAME``, or in the place of a provider's own.
        models_dir: the folder of ``local/ALIAS``.
        idle_timeout_s: silence of a server that is a failure, in seconds; ``local/`` has its own.
        connect_timeout_s: how long a connection may take, in seconds.
        images: whether the model takes images; None leaves it to what is known of the provider.
        environment: variables of the local model's server. Holds no secrets.
    """

    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    base_url: str | None = None
    models_dir: Path = Path("models")
    idle_timeout_s: float = 120.0
    connect_timeout_s: float = 10.0
    images: bool | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: {"PATH": os.defpath}, repr=False)


def resolve(name: str | None, settings: Settings) -> Provider:
    """Return the provider of ``PROVIDER/NAME``. Nothing is sent or started before its first request.

    Raises:
        ModelNotFound: no name, or no such provider; the line lists the choices.
        ConfigError: a key, an address or a file is missing; the line names it.
    """
    if not name:
        raise ModelNotFound(f"no model is configured; choose one with --model: {choices()}")
    provider, _, model = name.partition("/")
    make = _PROVIDERS.get(provider)
    if make is None:
        near = get_close_matches(provider, _PROVIDERS, n=1)
        hint = f"did you mean {near[0]}/{model or 'NAME'}? " if near else ""
        raise ModelNotFound(f"there is no provider {provider!r}; {hint}The choices are {choices()}")
    if not model:
        raise ModelNotFound(f"{name!r} names no model; write {provider}/NAME")
    return make(model, settings)


async def learn(provider: Provider) -> None:
    """Let a provider find out the context window of its model from its server, where that is the only one who knows.

    Takes four seconds at most and never fails; without it the window becomes known with the first request.
    """
    if isinstance(provider, HttpProvider):
        await provider.learn()


def choices() -> str:
    """Return the forms of a model name, for people."""
    last = {"scripted": "FILE", "local": "FILE.gguf"}
    return ", ".join(f"{provider}/{last.get(provider, 'NAME')}" for provider in _PROVIDERS)


def key_variable(provider: str) -> str | None:
    """Return the variable that holds the key of ``provider``, None when it has none."""
    if provider == "anthropic":
        return ANTHROPIC_KEY
    row = DIALECTS.get(provider)
    return row.key if row else None


def _chat(dialect: Dialect) -> Callable[[str, Settings], Provider]:
    def make(name: str, settings: Settings) -> Provider:
        who = f"{dialect.name}/{name}"
        wire = Chat(name, dialect, who)
        return _hosted(who, wire, settings, base_url=dialect.base_url, images=dialect.images, dialect=dialect)

    return make


def _anthropic(name: str, settings: Settings) -> Provider:
    who = f"anthropic/{name}"
    return _hosted(who, Messages(name, who), settings, base_url=ANTHROPIC_URL, images=True)


def _hosted(
    who: str, wire: Wire, settings: Settings, *, base_url: str, images: bool, dialect: Dialect | None = None
) -> Provider:
    provider, _, name = who.partition("/")
    variable = key_variable(provider)
    key = settings.keys.get(variable, "").strip() if variable else ""
    self_hosted = dialect is not None and dialect.self_hosted
    # An own server may need no key; a provider always does.
    if variable and not key and not self_hosted and settings.base_url is None:
        raise ConfigError(f"{who} needs a key: set the variable {variable}")
    if not (key.isascii() and key.isprintable()):
        # Said here, without the key: the HTTP library would refuse it with the key in its message.
        raise ConfigError(f"the key in {variable} has characters that no key has; copy it again")
    address = _address(who, settings.base_url or base_url)
    return HttpProvider(
        who,
        wire,
        Endpoint(address, key or None, loopback=urlsplit(address).hostname in _LOOPBACK, self_hosted=self_hosted),
        patience=Patience(settings.connect_timeout_s, settings.idle_timeout_s),
        context_window=None if self_hosted else context_window(provider, name),
        images=images if settings.images is None else settings.images,
    )


def _address(who: str, base_url: str) -> str:
    if not base_url:
        raise ConfigError(f"{who} needs the address of its server: pass --base-url or set PRIME_REPL_BASE_URL")
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{who}: {base_url!r} is no address of a server; write it like http://127.0.0.1:8000/v1")
    return base_url.rstrip("/")


def _local(name: str, settings: Settings) -> Provider:
    file = find_model(name, settings.models_dir)
    program = find_server(settings.environment)
    return LocalProvider(f"local/{name}", file, program, environment=settings.environment)


def _scripted(name: str, settings: Settings) -> Provider:
    del settings
    return ScriptedProvider.read(name)


_PROVIDERS: dict[str, Callable[[str, Settings], Provider]] = {
    "anthropic": _anthropic,
    **{name: _chat(row) for name, row in DIALECTS.items()},
    "local": _local,
    "scripted": _scripted,
}
