"""The composition root: the only place that names concrete classes and puts them together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prime import agent as core
from prime import caps, peek, prompt
from prime.agents.queries import Bounds, Queries
from prime.approvals import Approver, Gate
from prime.cell import Cells
from prime.config import Config
from prime.context import Context
from prime.contract import Contract
from prime.errors import PrimeError
from prime.history import History
from prime.idle import reclaiming
from prime.jobs.commands import Jobs
from prime.live import Live
from prime.log import Log
from prime.loop import Loop
from prime.messages import Header, Parameters
from prime.namespace import Namespace
from prime.policies.base import Options, StreamOptions, TapeOptions
from prime.providers import registry
from prime.providers.base import Provider
from prime.recall import ContextInfo, Notes
from prime.repl.kernel import KernelRepl
from prime.sessions import Sessions
from prime.shown import context_line
from prime.snapshots import Snapshots
from prime.surroundings import surroundings
from prime.tools.base import Tool
from prime.tools.catalogue import BUILTIN, Catalogue


@dataclass(frozen=True)
class Workshop:
    """A session with its kernel and tools, ready to run cells."""

    log: Log
    context: Context
    cells: Cells
    snapshots: Snapshots


@asynccontextmanager
async def workshop(
    config: Config,
    cwd: Path | None,
    *,
    session: str | None = None,
    tools: Iterable[Tool] = (),
    provider: Provider | None = None,
    approve: Approver | None = None,
) -> AsyncIterator[Workshop]:
    """Open a session, a new one by default, and everything that cells need; close it all at the end, and end every
    process that its cells and tools have started.

    ``cwd`` is where tools and the kernel work: the session's own folder by default, or the current one. ``provider`` is
    the model that cells may ask, None for none. ``approve`` answers whether a call may begin that a rule asks about;
    without it the answer is no.

    Raises:
        LogError: the session cannot be opened.
    """
    sessions = Sessions(config.home)
    resumed = sessions.resolve(session) if session is not None else None
    with sessions.open(resumed) if resumed else sessions.create(cwd or Path.cwd()) as log:
        folder = (cwd or Path(log.state.cwd)).resolve()
        if not folder.is_dir():
            raise PrimeError(f"the folder {folder} does not exist; pass --cwd")
        # by its folder: the log of a copied one has the original's id
        owner = sessions.folder(resumed or log.state.session).resolve()
        policy = options(config)
        context = Context(log, policy, window=lambda: provider.context_window if provider else None)
        names = Namespace(log, lambda: _names(repl))
        jobs = Jobs(log, owner / "jobs")
        limits = caps.limits(config)
        queries = Queries(log, provider, parameters(config), limits, _bounds(config))
        recall = (*_recall(config, sessions, log, context), *names.tools())
        catalogue = Catalogue((*BUILTIN, *recall, *queries.tools(), *jobs.tools(), *tools))
        permitted = Contract(log, policy.stream).permit
        async with surroundings(config, folder, owner, fresh=resumed is None, permitted=permitted) as place, jobs:
            repl = KernelRepl(
                catalogue.bindings(),
                place.launch,
                waits=catalogue.waits(),
                generation=log.state.kernel.generation + 1,
                output_limit=config.output_limit_bytes,
                pool=place.pool,
            )
            line = partial(_context_line, context)
            cells = Cells(log, repl, catalogue, place.workspace, limits, line, Gate(place.rules, approve))
            snapshots = Snapshots(log, repl, owner, config.home)
            kept = snapshots if config.snapshot != "off" else None
            try:
                if kept is not None:
                    await kept.offer()
                async with peek.answering(owner, repl.inspect), reclaiming(log, repl, kept, config.kernel_idle_s):
                    yield Workshop(log, context, cells, snapshots)
                if kept is not None:
                    await kept.take()
            finally:
                await repl.close()


def _recall(config: Config, sessions: Sessions, log: Log, context: Context) -> tuple[Tool, ...]:
    history = History(log.store, sessions if config.recall_scope == "all" else None)
    info = ContextInfo(context.used, context.window, context.renew)
    return (*history.tools(), *Notes(log).tools(), *info.tools())


def _context_line(context: Context) -> str:
    return context_line(context.used(), context.window())


async def _names(repl: KernelRepl) -> tuple[Sequence[tuple[str, str]], int] | None:
    seen = await repl.inspect()
    return (
        None if seen is None or not seen.answered else ([(each.name, each.text) for each in seen.names], seen.further)
    )


@asynccontextmanager
async def running(
    config: Config,
    cwd: Path | None,
    provider: Provider,
    *,
    session: str | None = None,
    tools: Iterable[Tool] = (),
    approve: Approver | None = None,
) -> AsyncIterator[core.Agent]:
    """Open a session and run an agent of ``provider`` over it; close both at the end. The rest is as for
    :func:`workshop`.

    Raises:
        LogError: the session cannot be opened.
    """
    async with AsyncExitStack() as stack:
        stack.push_async_callback(provider.close)
        await registry.learn(provider)
        opened = workshop(config, cwd, session=session, tools=tools, provider=provider, approve=approve)
        shop = await stack.enter_async_context(opened)
        limits = shop.cells.limits
        system = prompt.system(
            shop.cells.catalogue.bindings(),
            visible_output_bytes=limits.visible_output_bytes,
            cell_timeout_s=limits.cell_timeout_s,
        )
        header = Header(model=provider.model, system=system, tools=(prompt.tool(),), parameters=parameters(config))
        loop = Loop(shop.log, shop.context, provider, shop.cells, header, Live())
        await shop.cells.repl.prewarm()  # it starts while the first request is on its way
        settled = shop.snapshots.take if config.snapshot == "turn" else None
        yield await stack.enter_async_context(core.Agent(loop, settled))


def parameters(config: Config) -> Parameters:
    """Return the sampling parameters that a configuration sets."""
    return Parameters(max_tokens=config.max_tokens, temperature=config.temperature, effort=config.effort)


def _bounds(config: Config) -> Bounds:
    return Bounds(config.query_characters, config.query_prompts, config.query_parallel)


def options(config: Config) -> Options:
    """Return how a configuration keeps the window."""
    tape = TapeOptions(
        keep_recent_turns=config.tape_keep_recent_turns,
        entry_max_chars=config.tape_entry_max_chars,
        profile=config.tape_profile,
        locators=config.tape_locators,
    )
    stream = StreamOptions(
        pin_steps=config.stream_pin_steps,
        extract_step=config.stream_extract_step,
        enforce_step=config.stream_enforce_step,
        bounce_budget=config.contract_bounce_budget,
        side_effort=config.stream_side_effort,
    )
    return Options(
        policy=config.context_policy,
        pressure=config.context_pressure,
        pressure_of=config.context_pressure_of,
        retain=config.context_retain,
        lead=config.context_lead,
        tape=tape,
        stream=stream,
    )
