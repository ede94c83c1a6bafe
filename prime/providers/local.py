"""A model file on this machine, served by a llama.cpp server that starts with the first request and ends with us."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from prime.errors import ConfigError
from prime.messages import Delta, Reply, Request
from prime.providers.chat import Chat
from prime.providers.dialects import DIALECTS
from prime.providers.fenced import Profiled
from prime.providers.gguf import read_header
from prime.providers.http import Endpoint, HttpProvider, Patience
from prime.providers.llama import Launch, LlamaServer
from prime.providers.profiles import Profile, mend, profile_for

#: Seconds of silence that are a failure. A CPU reads some hundred tokens a second and says nothing meanwhile.
IDLE_S = 900.0


class LocalProvider:
    """A :class:`~prime.providers.base.Provider` over a GGUF file. ``images`` is False.

    The server is one process with the model in memory: make one provider for a model and share it.

    Raises:
        ConfigError: the file is not a GGUF file.
    """

    def __init__(
        self,
        model: str,
        file: Path,
        program: Path,
        *,
        environment: Mapping[str, str],
        profile: Profile | None = None,
    ) -> None:
        architecture = _text(read_header(file, ("general.architecture",)), "general.architecture")
        window = f"{architecture}.context_length"
        header = read_header(file, ("general.name", "tokenizer.chat_template", window))
        self.model = model
        self.images = False
        name = f"{_text(header, 'general.name')} {file.stem}"
        self._profile = profile or profile_for(name)
        trained = header.get(window)
        self.context_window: int | None = (
            min(self._profile.context, trained) if isinstance(trained, int) else self._profile.context
        )
        template = mend(_text(header, "tokenizer.chat_template"), self._profile)
        mended = bool(self._profile.template) and template is not None
        self.fenced = self._profile.calls == "fenced" or template is None
        self._launch = Launch(
            program=program,
            model=file,
            template=template if mended else None,
            arguments=("--ctx-size", str(self.context_window), *self._profile.arguments),
            environment=environment,
        )
        self._starting = asyncio.Lock()
        self._server: LlamaServer | None = None
        self._provider: HttpProvider | None = None

    async def reply(self, request: Request, on_delta: Callable[[Delta], None]) -> Reply:
        """Start the server if it does not run, and send one request; see :class:`prime.providers.base.Provider`."""
        async with self._starting:
            provider = await self._running()
        return await provider.reply(request, on_delta)

    async def close(self) -> None:
        """End the server."""
        if self._provider is not None:
            await self._provider.close()
        if self._server is not None:
            await self._server.close()
        self._provider = self._server = None

    async def _running(self) -> HttpProvider:
        if self._provider is not None and self._server is not None and self._server.alive:
            return self._provider
        await self.close()
        server = await LlamaServer.start(self._launch)
        chat = Chat(self._launch.model.stem, DIALECTS["llamacpp"], self.model)
        self._server = server
        self._provider = HttpProvider(
            self.model,
            Profiled(chat, self._profile, self.fenced),
            Endpoint(server.base_url, server.key, loopback=True),
            patience=Patience(idle_s=IDLE_S),
            context_window=self.context_window,
        )
        return self._provider


def find_model(name: str, models_dir: Path) -> Path:
    """Return the file of ``local/NAME``: a path, or an alias of ``NAME.gguf`` in the models folder.

    Raises:
        ConfigError: no such file; the line lists the aliases there are.
    """
    path = Path(name).expanduser()
    file = path if path.suffix == ".gguf" else models_dir / f"{name}.gguf"
    if file.is_file():
        return file
    there = sorted(found.stem for found in models_dir.glob("*.gguf"))
    known = f"there are {', '.join(there)}" if there else "it is empty"
    raise ConfigError(
        f"local/{name}: no file {file}; give a path to a .gguf file or put it into {models_dir} ({known})"
    )


def _text(header: Mapping[str, str | int | float | bool], name: str) -> str:
    return str(header.get(name, ""))
