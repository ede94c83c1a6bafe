"""The composition root: the only place that names concrete classes and puts them together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prime_kernel.marks import SESSION

from prime import agent as core
from prime import caps, models, peek, prompt
from prime import events as ev
from prime.agents import queries
from prime.agents.family import Family, Rights
from prime.agents.host import ChildHost, Parent
from prime.agents.local import LocalHost
from prime.agents.tree import Bounds, Tree
from prime.approvals import Approver, Gate
from prime.beside import Beside
from prime.cell import Cells
from prime.config import Config
from prime.context import Context
from prime.contract import Contract
from prime.errors import PrimeError
from prime.history import History
from prime.idle import reclaiming
from prime.live import Live
from prime.log import Log
from prime.loop import Loop
from prime.mcp.servers import Servers
from prime.messages import Header, Parameters
from prime.namespace import Namespace
from prime.policies.base import Options, StreamOptions, TapeOptions
from prime.providers import registry
from prime.providers.base import Provider
from prime.recall import ContextInfo, Notes
from prime.repl.kernel import KernelRepl
from prime.repl.pool import Pool
from prime.sessions import Sessions
from prime.shown import context_line
from prime.snapshots import Snapshots
from prime.surroundings import kernels, surroundings
from prime.tools.base import Tool
from prime.tools.catalogue import BUILTIN, Catalogue
from prime.tools.workspace import Workspace


@dataclass(frozen=True)
class Place:
    """Where an agent stands among those that it shares kernels and limits with.

    Attributes:
        servers: those of the family, which its root starts.
        host: where its children run, None without a model.
        parent: whom it works for, None for a root.
        allowed: targets that it may call, None for all.
    """

    pool: Pool
    tree: Tree
    servers: Servers
    host: ChildHost | None = None
    parent: Parent | None = None
    allowed: Collection[str] | None = None


@dataclass(frozen=True)
class Workshop:
    """A session with its kernel and tools, ready to run cells."""

    log: Log
    context: Context
    cells: Cells
    snapshots: Snapshots
    family: Family


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
    async with kernels(config) as pool:
        place = Place(pool, Tree(_bounds(config), caps.limits(config)), _servers(config))
        async with _workshop(config, cwd, place, session, tuple(tools), provider, approve) as shop:
            yield shop


@asynccontextmanager
async def _workshop(
    config: Config,
    cwd: Path | None,
    place: Place,
    session: str | None,
    tools: tuple[Tool, ...],
    provider: Provider | None,
    approve: Approver | None,
) -> AsyncIterator[Workshop]:
    sessions = Sessions(config.home)
    resumed = sessions.resolve(session) if session is not None else None
    with sessions.open(resumed) if resumed else sessions.create(cwd or Path.cwd()) as log:
        folder = (cwd or Path(log.state.cwd)).resolve()
        if not folder.is_dir():
            raise PrimeError(f"the folder {folder} does not exist; pass --cwd")
        # by its folder: the log of a copied one has the original's id
        owner = sessions.folder(resumed or log.state.session).resolve()
        policy = options(config)
        context = Context(log, policy, window=partial(_window, provider))
        family = Family(log, place.host, place.tree, place.parent, _rights(config, place, lambda: catalogue))
        beside = Beside(log, owner)
        inner = (*_recall(config, log, context, lambda: repl), *family.tools(), *_queries(config, log, provider, place))
        own = (*BUILTIN, *inner, *beside.tools(), *tools)
        around = surroundings(
            config, folder, owner, place.pool, fresh=resumed is None, permitted=Contract(log, policy.stream).permit
        )
        async with around as there, beside, _serving(place, there.workspace):
            catalogue = Catalogue((*own, *place.servers.tools({tool.target for tool in own})), place.allowed)
            repl = KernelRepl(
                catalogue.bindings(),
                there.launch,
                waits=catalogue.waits(),
                generation=log.state.kernel.generation + 1,
                output_limit=config.output_limit_bytes,
                pool=place.pool,
            )
            line = partial(_context_line, context)
            gate = Gate(there.rules, approve)
            cells = Cells(log, repl, catalogue, there.workspace, caps.limits(config), line, gate)
            snapshots = Snapshots(log, repl, owner, config.home)
            kept = snapshots if config.snapshot != "off" else None
            try:
                if kept is not None:
                    await kept.offer()
                async with peek.answering(owner, repl.inspect), reclaiming(log, repl, kept, config.kernel_idle_s):
                    yield Workshop(log, context, cells, snapshots, family)
                if kept is not None:
                    await kept.take()
            finally:
                await repl.close()


def _servers(config: Config) -> Servers:
    return Servers(config.mcp_servers, config.server_environment)


@asynccontextmanager
async def _serving(place: Place, workspace: Workspace) -> AsyncIterator[None]:
    """Have the family's servers: they run for the root, and as long as it does."""
    if place.parent is not None:
        yield
        return
    async with place.servers.serving(workspace.cwd, {SESSION: workspace.environment[SESSION]}):
        yield


def _recall(config: Config, log: Log, context: Context, repl: Callable[[], KernelRepl]) -> tuple[Tool, ...]:
    others = Sessions(config.home) if config.recall_scope == "all" else None
    return (
        *History(log.store, others).tools(),
        *Notes(log).tools(),
        *ContextInfo(context.used, context.window, context.renew).tools(),
        *Namespace(log, lambda: _names(repl())).tools(),
    )


def _queries(config: Config, log: Log, provider: Provider | None, place: Place) -> tuple[Tool, ...]:
    bounds = queries.Bounds(config.query_characters, config.query_prompts, config.query_parallel)
    allowance = partial(place.tree.stop, child=place.parent is not None)
    return queries.Queries(log, provider, parameters(config), allowance, bounds).tools()


def _rights(config: Config, place: Place, catalogue: Callable[[], Catalogue]) -> Rights:
    async def check_model(model: str) -> None:
        await models.of_child(config, model).close()

    return Rights(catalogue, place.allowed, check_model)


def _window(provider: Provider | None) -> int | None:
    return provider.context_window if provider is not None else None


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
        pool = await stack.enter_async_context(kernels(config))
        household = _Household(config, provider, tuple(tools), pool, Tree(_bounds(config), caps.limits(config)))
        opened = household.member(provider, household.place(), cwd, session, approve)
        agent, _ = await stack.enter_async_context(opened)
        yield agent


class _Household:
    """What the agents of one family share."""

    def __init__(self, config: Config, provider: Provider, tools: tuple[Tool, ...], pool: Pool, tree: Tree) -> None:
        self._config = config
        self._provider = provider
        self._tools = tools
        self._pool = pool
        self._tree = tree
        self._servers = _servers(config)
        self._host = LocalHost(Sessions(config.home), tree, self._child)
        self._root = ""

    def place(self, parent: Parent | None = None, allowed: Collection[str] | None = None) -> Place:
        """Return the place of a member."""
        return Place(self._pool, self._tree, self._servers, self._host, parent, allowed)

    @asynccontextmanager
    async def member(
        self, provider: Provider, place: Place, cwd: Path | None, session: str | None, approve: Approver | None = None
    ) -> AsyncIterator[tuple[core.Agent, Family]]:
        """Open a session and run an agent of ``provider`` in it, with those children that are still at work. At the end
        they are stopped first."""
        config, child = self._config, place.parent is not None
        async with _workshop(config, cwd, place, session, self._tools, provider, approve) as shop:
            limits = shop.cells.limits
            system = prompt.system(
                shop.cells.catalogue.bindings(),
                visible_output_bytes=limits.visible_output_bytes,
                cell_timeout_s=limits.cell_timeout_s,
                sandbox=config.sandbox,
                network=config.network,
            )
            header = Header(model=provider.model, system=system, tools=(prompt.tool(),), parameters=parameters(config))
            allowance = partial(self._tree.stop, child=child)
            loop = Loop(shop.log, shop.context, provider, shop.cells, header, Live(), allowance)
            if not child:
                self._root = shop.log.session
                self._tree.plant(lambda: shop.log.state.usage)
                await shop.cells.repl.prewarm()  # it starts while the first request is on its way
            settled = shop.snapshots.take if config.snapshot == "turn" else None
            async with core.Agent(loop, settled, shop.family) as agent:
                try:
                    await shop.family.resume()
                    yield agent, shop.family
                finally:
                    agent.interrupt()
                    await shop.family.close()

    @asynccontextmanager
    async def _child(self, order: ev.ChildSpawned, parent: Parent) -> AsyncIterator[tuple[core.Agent, Family]]:
        async with AsyncExitStack() as stack:
            provider = self._provider_of(order)
            if provider is not self._provider:
                stack.push_async_callback(provider.close)
                await registry.learn(provider)
            place = self.place(parent, order.tools)
            yield await stack.enter_async_context(self.member(provider, place, None, order.agent_id))

    def _provider_of(self, order: ev.ChildSpawned) -> Provider:
        if self._provider.model.startswith("replay/"):  # of its own recording
            model = self._provider.model + order.agent_id.removeprefix(self._root)
            return models.resolve(self._config.model_copy(update={"model": model}))
        return self._provider if order.model is None else models.of_child(self._config, order.model)


def _bounds(config: Config) -> Bounds:
    return Bounds(
        config.children_depth,
        config.children_running,
        config.children_total,
        config.children_tokens,
        config.children_cost,
    )


def parameters(config: Config) -> Parameters:
    """Return the sampling parameters that a configuration sets."""
    return Parameters(max_tokens=config.max_tokens, temperature=config.temperature, effort=config.effort)


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
