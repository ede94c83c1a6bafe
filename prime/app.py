"""The composition root: the only place that names concrete classes and puts them together."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from prime_kernel.marks import SESSION

from prime import agent as core
from prime import caps, guest, models, peek, prompt
from prime import events as ev
from prime.agent import Answer
from prime.cell import Cells
from prime.config import Config, load
from prime.context import Context
from prime.errors import PrimeError
from prime.history import History
from prime.idle import reclaiming
from prime.live import Live
from prime.log import Log
from prime.loop import Loop
from prime.messages import Delta, Header, ImagePart, Parameters
from prime.namespace import Namespace
from prime.policies.base import Options, TapeOptions
from prime.providers import registry
from prime.providers.base import Provider
from prime.reaper import Mark, guarding
from prime.recall import ContextInfo, Notes
from prime.repl.kernel import KernelRepl
from prime.repl.pool import Pool
from prime.repl.process import Launch
from prime.repl.signals import Inspection
from prime.repl.template import Template
from prime.sessions import Sessions
from prime.shown import context_line
from prime.snapshots import Snapshots
from prime.tools.base import Tool
from prime.tools.catalogue import BUILTIN, Catalogue
from prime.tools.workspace import Workspace


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
    window: Callable[[], int | None] = lambda: None,
) -> AsyncIterator[Workshop]:
    """Open a session, a new one by default, and everything that cells need; close it all at the end, and end every
    process that its cells and tools have started.

    ``cwd`` is where tools and the kernel work: the session's own folder by default, or the current one. ``window``
    gives the model's, in tokens.

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
        mark = Mark(SESSION, str(owner))
        environment = {**config.guest_environment, mark.variable: mark.value}
        context = Context(log, options(config), window=window)
        info = ContextInfo(context.used, context.window, context.renew)
        names = Namespace(log, lambda: _names(repl))
        history = History(log.store, sessions if config.recall_scope == "all" else None)
        recall = (*history.tools(), *Notes(log).tools(), *info.tools(), *names.tools())
        catalogue = Catalogue((*BUILTIN, *recall, *tools))
        workspace = Workspace(folder, environment)
        async with guarding(mark, fresh=resumed is None), _kernels(config) as pool:
            repl = KernelRepl(
                catalogue.bindings(),
                Launch(_python(config), folder, guest.limited(environment, config.memory_limit_bytes)),
                waits=catalogue.waits(),
                generation=log.state.kernel.generation + 1,
                output_limit=config.output_limit_bytes,
                pool=pool,
            )
            line = partial(_context_line, context)
            cells = Cells(log, repl, catalogue, workspace, caps.limits(config), line)
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


@asynccontextmanager
async def _kernels(config: Config) -> AsyncIterator[Pool]:
    """Give an empty pool for the kernels of a session, with the template that they are forked from."""
    template = Template(_python(config), config.guest_environment) if config.kernel_template else None
    pool = Pool(config.max_kernels, template=template)
    try:
        yield pool
    finally:
        await pool.close()


def _python(config: Config) -> str:
    return config.python or sys.executable


def _context_line(context: Context) -> str:
    return context_line(context.used(), context.window())


async def _names(repl: KernelRepl) -> tuple[Sequence[tuple[str, str]], int] | None:
    seen = await repl.inspect()
    return (
        None if seen is None or not seen.answered else ([(each.name, each.text) for each in seen.names], seen.further)
    )


@asynccontextmanager
async def running(
    config: Config, cwd: Path | None, provider: Provider, *, session: str | None = None, tools: Iterable[Tool] = ()
) -> AsyncIterator[core.Agent]:
    """Open a session and run an agent of ``provider`` over it; close both at the end.

    Raises:
        LogError: the session cannot be opened.
    """
    async with AsyncExitStack() as stack:
        stack.push_async_callback(provider.close)
        await registry.learn(provider)
        opened = workshop(config, cwd, session=session, tools=tools, window=lambda: provider.context_window)
        shop = await stack.enter_async_context(opened)
        limits = shop.cells.limits
        system = prompt.system(
            shop.cells.catalogue.bindings(),
            visible_output_bytes=limits.visible_output_bytes,
            cell_timeout_s=limits.cell_timeout_s,
        )
        parameters = Parameters(max_tokens=config.max_tokens, temperature=config.temperature, effort=config.effort)
        header = Header(model=provider.model, system=system, tools=(prompt.tool(),), parameters=parameters)
        loop = Loop(shop.log, shop.context, provider, shop.cells, header, Live())
        await shop.cells.repl.prewarm()  # it starts while the first request is on its way
        settled = shop.snapshots.take if config.snapshot == "turn" else None
        yield await stack.enter_async_context(core.Agent(loop, settled))


def options(config: Config) -> Options:
    """Return how a configuration keeps the window."""
    tape = TapeOptions(
        keep_recent_turns=config.tape_keep_recent_turns,
        entry_max_chars=config.tape_entry_max_chars,
        profile=config.tape_profile,
        locators=config.tape_locators,
    )
    return Options(
        policy=config.context_policy,
        pressure=config.context_pressure,
        pressure_of=config.context_pressure_of,
        retain=config.context_retain,
        lead=config.context_lead,
        tape=tape,
    )


class Agent:
    """An agent, from its options. Use as an async context manager; :meth:`sync` gives a blocking one.

        async with prime.Agent(model="deepseek/deepseek-chat", cwd=".") as agent:
            answer = await agent.ask("How many tests are there?")

    Args:
        model: ``PROVIDER/NAME``, or a :class:`~prime.providers.base.Provider`; by default the configured one.
        cwd: the folder it works in, the current one by default (a resumed session: its own).
        tools: further tools, made with ``@prime.tool``.
        session: a session to go on with, by id, by the start of one, or ``last``; by default a new one.
        options: any further setting of :class:`~prime.config.Config`, such as ``max_steps`` or ``home``.

    Raises (when entered):
        ConfigError, ModelNotFound: the options are wrong.
        LogError: the session cannot be opened.
    """

    def __init__(
        self,
        model: str | Provider | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        tools: Sequence[Tool] = (),
        session: str | None = None,
        **options: Any,
    ) -> None:
        self._model = model
        self._cwd = Path(cwd) if cwd is not None else None
        self._tools = tuple(tools)
        self._session = session
        self._options = options
        self._stack = AsyncExitStack()
        self._agent: core.Agent | None = None
        self._opened = ""

    @classmethod
    @contextmanager
    def sync(cls, *args: Any, **options: Any) -> Iterator[SyncAgent]:
        """Give the same agent with blocking methods, for programs without an event loop. Takes what the class takes."""
        with start_blocking_portal() as portal, portal.wrap_async_context_manager(cls(*args, **options)) as agent:
            yield SyncAgent(portal, agent)

    async def __aenter__(self) -> Agent:
        given: Mapping[str, Any] = self._options
        if isinstance(self._model, str):
            given = {**given, "model": self._model}
        config = load(self._cwd or Path.cwd(), given)
        provider = models.resolve(config) if self._model is None or isinstance(self._model, str) else self._model
        opened = running(config, self._cwd, provider, session=self._session, tools=self._tools)
        self._agent = await self._stack.enter_async_context(opened)
        self._opened = self._agent.session
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._agent = None
        await self._stack.aclose()

    @property
    def session(self) -> str:
        """The session's id, from the moment it is open; it stays when the agent is closed."""
        return self._opened or self._core.session

    async def ask(self, text: str, images: Sequence[ImagePart] = ()) -> Answer:
        """See :meth:`prime.agent.Agent.ask`."""
        return await self._core.ask(text, images)

    def stream(self, text: str, images: Sequence[ImagePart] = ()) -> AsyncGenerator[ev.Entry | Delta, None]:
        """See :meth:`prime.agent.Agent.stream`."""
        return self._core.stream(text, images)

    async def inspect(self) -> Inspection | None:
        """See :meth:`prime.agent.Agent.inspect`."""
        return await self._core.inspect()

    async def cell(self, code: str) -> ev.CellEnded:
        """See :meth:`prime.agent.Agent.cell`."""
        return await self._core.cell(code)

    def steer(self, text: str, images: Sequence[ImagePart] = ()) -> str:
        """See :meth:`prime.agent.Agent.steer`."""
        return self._core.steer(text, images)

    def inform(self, text: str, images: Sequence[ImagePart] = ()) -> str:
        """See :meth:`prime.agent.Agent.inform`."""
        return self._core.inform(text, images)

    def notify(self, text: str, *, source: str, wake: bool = True) -> str:
        """See :meth:`prime.agent.Agent.notify`."""
        return self._core.notify(text, source=source, wake=wake)

    def withdraw(self, input_id: str) -> bool:
        """See :meth:`prime.agent.Agent.withdraw`."""
        return self._core.withdraw(input_id)

    def interrupt(self) -> None:
        """See :meth:`prime.agent.Agent.interrupt`."""
        self._core.interrupt()

    @property
    def _core(self) -> core.Agent:
        if self._agent is None:
            raise PrimeError("the agent is not running; use `async with prime.Agent(...) as agent`")
        return self._agent


class SyncAgent:
    """The blocking face of an :class:`Agent`, whose event loop runs in a thread of its own."""

    def __init__(self, portal: BlockingPortal, agent: Agent) -> None:
        self._portal = portal
        self._agent = agent
        self.session = agent.session

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._agent, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            found = self._portal.call(lambda: method(*args, **kwargs))
            return self._each(found) if isinstance(found, AsyncGenerator) else found

        return call

    def _each(self, items: AsyncGenerator[Any, None]) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._portal.call(items.__anext__)
                except StopAsyncIteration:
                    return
        finally:
            self._portal.call(items.aclose)  # leaving the loop early ends the turn
