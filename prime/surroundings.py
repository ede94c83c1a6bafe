"""Where the processes of a session run: their sandbox, their environment, and what ends them all. Part of the
composition root."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import prime_kernel
from prime_kernel.marks import SESSION

from prime import guest
from prime.bubblewrap import Wanted, bubblewrapped
from prime.config import Config
from prime.errors import ConfigError
from prime.gate import Rules, host_rule
from prime.reaper import Mark, guarding
from prime.repl.live import LIBRARY
from prime.repl.pool import Pool
from prime.repl.process import Launch
from prime.repl.template import Template
from prime.sandbox import OFF, Sandbox
from prime.tools.fetch import fetch
from prime.tools.workspace import Permitted, Workspace


@dataclass(frozen=True)
class Surroundings:
    """Which calls may begin, what tools act on, and how and beside which others kernels are started."""

    rules: Rules
    workspace: Workspace
    launch: Launch
    pool: Pool


@asynccontextmanager
async def surroundings(
    config: Config, folder: Path, session: Path, pool: Pool, *, fresh: bool, permitted: Permitted
) -> AsyncIterator[Surroundings]:
    """Give the surroundings of work in ``folder``, and end every process of the session at the end.

    ``session`` is the session's own folder, by which its processes are known; ``fresh``: it never had any. Its kernels
    are of ``pool``. ``permitted`` hears of every write by a tool before it is made.

    Raises:
        ConfigError: the sandbox that is asked for cannot be set up.
    """
    mark = Mark(SESSION, str(session))
    async with sandbox(config, folder) as view, guarding(mark, fresh=fresh):
        environment = {**view.environment(config.guest_environment), mark.variable: mark.value}
        limited = guest.limited(environment, config.memory_limit_bytes)
        launch = Launch(_python(config), folder, limited, sandbox=view)
        rules = Rules(config.gate, config.gate_default, view.network)
        reach = partial(host_rule, rules, fetch.target)
        workspace = Workspace(folder, environment, view, reach=reach, permitted=permitted)
        yield Surroundings(rules, workspace, launch, pool)


@asynccontextmanager
async def sandbox(config: Config, folder: Path) -> AsyncIterator[Sandbox]:
    """Give the sandbox for work in ``folder`` that a configuration asks for.

    Raises:
        ConfigError: it cannot be set up.
    """
    if config.sandbox == "off":
        yield OFF
        return
    wanted = Wanted(
        level=config.sandbox,
        cwd=folder,
        home=config.home,
        python=_python(config),
        environment=config.guest_environment,
        network=config.network,
        read=config.sandbox_read,
        write=config.sandbox_write,
        modules=(Path(prime_kernel.__file__).parent, LIBRARY),
    )
    async with bubblewrapped(wanted) as view:
        yield view


@asynccontextmanager
async def kernels(config: Config) -> AsyncIterator[Pool]:
    """Give an empty pool for the kernels of a family of agents, with the template that they are forked from.

    Raises:
        ConfigError: they cannot be forked as they should be.
    """
    if config.kernel_template and config.sandbox != "off":
        raise ConfigError("a kernel is not forked into a sandbox; set kernel_template to false, or sandbox to off")
    template = Template(_python(config), config.guest_environment) if config.kernel_template else None
    pool = Pool(config.max_kernels, template=template)
    try:
        yield pool
    finally:
        await pool.close()


def _python(config: Config) -> str:
    return config.python or sys.executable
