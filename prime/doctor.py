"""Checks of the environment: each one a finding, with what to do about it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prime import app, models, surroundings
from prime import events as ev
from prime.config import Config
from prime.errors import ConfigError, ModelNotFound, PrimeError, ProviderError
from prime.mcp.servers import Servers
from prime.messages import Header, Message, Parameters, Request, TextPart, text_of
from prime.providers.base import Provider
from prime.providers.llama import find_server
from prime.sessions import Sessions

#: Milliseconds of a durable append from which a disk is called slow: each model request waits for some of them.
SLOW_DISK_MS = 20.0
#: Bytes of the folder for temporary files up to which kernels put their sockets below it.
LONGEST_TEMP = 67
#: Seconds a model gets for a word.
MODEL_S = 60.0

_VERSIONS = (
    "import ipykernel, IPython, platform; print(platform.python_version(), ipykernel.__version__, IPython.__version__)"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        level: ``problem``: something needed is broken; ``note``: something optional is missing or slow.
        fix: what to do about it, empty when there is nothing to do.
    """

    check: str
    level: Literal["ok", "note", "problem"]
    found: str
    fix: str = ""


async def findings(config: Config) -> AsyncIterator[Finding]:
    """Yield the findings as the checks end, in a fixed order."""
    yield Finding("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")
    interpreter = await _interpreter(config.python or sys.executable, config)
    yield interpreter
    yield _home(config.home)
    with tempfile.TemporaryDirectory(prefix="prime-doctor-") as folder:
        trial = config.model_copy(update={"home": Path(folder, "home")})
        work = tempfile.mkdtemp(dir=folder)
        if interpreter.level == "ok":
            yield await _kernel(trial, work)
            yield await _sandbox(trial, work)
    yield _disk(config.home)
    for finding in _programs(config):
        yield finding
    async for finding in _servers(config):
        yield finding
    yield await _model(config)


async def ask(provider: Provider) -> str:
    """Ask a model for a word and return what it said.

    Raises:
        ProviderError: it does not answer, or not within :data:`MODEL_S` seconds.
    """
    header = Header(model=provider.model, system="Answer in one word.", tools=(), parameters=Parameters(max_tokens=16))
    words = Message(role="user", parts=(TextPart(text="Say: ready"),))
    try:
        async with asyncio.timeout(MODEL_S):
            reply = await provider.reply(Request(header=header, messages=(words,)), lambda delta: None)
    except TimeoutError:
        raise ProviderError("timeout", f"no answer within {MODEL_S:g} s", retryable=True) from None
    return text_of(reply.parts).strip()


async def _interpreter(python: str, config: Config) -> Finding:
    name = "interpreter"
    fix = f"{python} -m pip install 'ipykernel>=7,<8'"
    try:
        process = await asyncio.create_subprocess_exec(
            *(python, "-c", _VERSIONS),
            cwd="/",  # with -c Python looks for modules in the folder where it starts
            env=config.guest_environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return Finding(name, "problem", f"{python}: {error.strerror}", "pass --python with the path of an interpreter")
    out, err = await process.communicate()
    if process.returncode:
        last = err.decode(errors="replace").strip().rpartition("\n")[2]
        return Finding(name, "problem", f"{python}: {last}", fix)
    version, ipykernel, ipython = out.decode().split()
    return Finding(name, "ok", f"Python {version}, ipykernel {ipykernel}, IPython {ipython} at {python}")


async def _kernel(config: Config, folder: str) -> Finding:
    """Run a cell that makes a call, in a session of its own that is gone afterwards."""
    started = time.monotonic()
    try:
        # not in the data directory, which a sandbox hides
        async with app.workshop(config, Path(folder)) as shop:
            code = 'await tools.write(path="a.txt", content="a")\n(await tools.read(path="a.txt")).text'
            ended = await shop.cells.run(code, None, asyncio.Event())
    except PrimeError as error:
        return Finding("kernel", "problem", str(error), "run `prime-repl --debug doctor`")
    if ended.status != "ok":
        shown = text_of(ended.shown).strip().rpartition("\n")[2]
        return Finding("kernel", "problem", f"a cell ended with {ended.status}: {shown}", "see the interpreter above")
    return Finding("kernel", "ok", f"started and ran a cell with calls in {time.monotonic() - started:.1f} s")


async def _sandbox(config: Config, folder: str) -> Finding:
    """Try a full one, whether it is asked for or not."""
    try:
        async with surroundings.sandbox(config.model_copy(update={"sandbox": "full"}), Path(folder)):
            pass
    except ConfigError as error:
        return Finding("sandbox", "note" if config.sandbox == "off" else "problem", "none can be set up", str(error))
    return Finding("sandbox", "ok", f"bubblewrap works; the setting is {config.sandbox}")


def _home(home: Path) -> Finding:
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        return Finding(
            "data directory", "problem", f"{home}: {error.strerror}", "set PRIME_REPL_HOME to another folder"
        )
    return Finding("data directory", "ok", str(home))


def _disk(home: Path) -> Finding:
    """Time durable appends where sessions are kept."""
    if not os.access(home, os.W_OK):
        return Finding("disk", "problem", "not measured: the data directory is not writable")
    with tempfile.TemporaryDirectory(prefix=".doctor-", dir=home) as folder, Sessions(Path(folder)).create(home) as log:
        times = []
        for _ in range(15):
            started = time.perf_counter()
            log.append(ev.SessionResumed(version="doctor"), durable=True)
            times.append((time.perf_counter() - started) * 1000)
    median = statistics.median(times)
    found = f"{median:.1f} ms for a durable entry"
    if median > SLOW_DISK_MS:
        return Finding("disk", "note", f"{found}, which is slow", "put PRIME_REPL_HOME on a local disk")
    return Finding("disk", "ok", found)


def _programs(config: Config) -> Iterator[Finding]:
    path = config.guest_environment.get("PATH", os.defpath)
    if bash := shutil.which("bash", path=path):
        yield Finding("bash", "ok", bash)
    else:
        yield Finding("bash", "problem", "not on PATH", "install bash: `tools.bash` and `!command` run it")
    if ripgrep := shutil.which("rg", path=path):
        yield Finding("ripgrep", "ok", ripgrep)
    else:
        yield Finding("ripgrep", "note", "not on PATH; searches are slower", "install ripgrep for large folders")
    temp = tempfile.gettempdir()
    if len(os.fsencode(temp)) > LONGEST_TEMP:
        yield Finding("sockets", "note", f"{temp} is too long for them: they go to /tmp", "set a shorter TMPDIR")
    else:
        yield Finding("sockets", "ok", f"below {temp}")
    try:
        yield Finding("llama-server", "ok", str(find_server(config.guest_environment)))
    except ConfigError as error:
        yield Finding("llama-server", "note", "not found; only local model files need it", str(error))


async def _servers(config: Config) -> AsyncIterator[Finding]:
    if not config.mcp_servers:
        return
    servers = Servers(config.mcp_servers, config.server_environment)
    async with servers.serving(Path.cwd()):
        for name in config.mcp_servers:
            if name in servers.failures:
                fix = f"see `prime-repl mcp test {name}`"
                yield Finding(f"mcp {name}", "note", servers.failures[name], fix)
            else:
                yield Finding(f"mcp {name}", "ok", f"{servers.found[name]} tools")


async def _model(config: Config) -> Finding:
    try:
        choice = await models.choose(config)
        provider = models.resolve(config.model_copy(update={"model": choice.model}))
    except ModelNotFound as error:
        return Finding("model", "note", "none is there; `prime-repl demo` works without", str(error))
    except PrimeError as error:
        return Finding("model", "problem", str(error), "see `prime-repl models`")
    started = time.monotonic()
    try:
        await ask(provider)
    except ProviderError as error:
        return Finding("model", "problem", f"{choice.model} ({choice.why}): {error}", "see `prime-repl models --check`")
    finally:
        await provider.close()
    return Finding("model", "ok", f"{choice.model} ({choice.why}) answered in {time.monotonic() - started:.1f} s")


def as_json(finding: Finding) -> str:
    """Return a finding as one line of JSON."""
    fields = {"check": finding.check, "level": finding.level, "found": finding.found, "fix": finding.fix}
    return json.dumps(fields, ensure_ascii=False)
