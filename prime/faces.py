"""The agent as a Python program uses it: from its options, awaitable or blocking."""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from anyio.from_thread import BlockingPortal, start_blocking_portal

from prime import agent as core
from prime import events as ev
from prime import models
from prime.agent import Answer
from prime.app import running
from prime.approvals import Approval, Approver, Verdict
from prime.config import load
from prime.errors import PrimeError
from prime.messages import Delta, ImagePart
from prime.providers.base import Provider
from prime.repl.signals import Inspection
from prime.tools.base import Tool

#: Whether a call may begin; ``"always"``: and all like it, as long as the agent runs.
Leave = bool | Literal["always"]


class Agent:
    """An agent, from its options. Use as an async context manager; :meth:`sync` gives a blocking one.

        async with prime.Agent(model="deepseek/deepseek-chat", cwd=".") as agent:
            answer = await agent.ask("How many tests are there?")

    Args:
        model: ``PROVIDER/NAME``, or a :class:`~prime.providers.base.Provider`; by default the configured one.
        cwd: the folder it works in, the current one by default (a resumed session: its own).
        tools: further tools, made with ``@prime.tool``.
        session: a session to go on with, by id, by the start of one, or ``last``; by default a new one.
        approve: decides about calls that a rule says to ask about: called with an
            :class:`~prime.approvals.Approval`, it returns True, False or ``"always"``, or an awaitable of one.
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
        approve: Callable[[Approval], Leave | Awaitable[Leave]] | None = None,
        **options: Any,
    ) -> None:
        self._model = model
        self._cwd = Path(cwd) if cwd is not None else None
        self._tools = tuple(tools)
        self._session = session
        self._approve = approve
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
        opened = running(
            config, self._cwd, provider, session=self._session, tools=self._tools, approve=self._approver()
        )
        self._agent = await self._stack.enter_async_context(opened)
        self._opened = self._agent.session
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._agent = None
        await self._stack.aclose()

    def _approver(self) -> Approver | None:
        approve = self._approve
        if approve is None:
            return None

        async def asked(approval: Approval) -> Verdict:
            leave = approve(approval)
            if inspect.isawaitable(leave):
                leave = await leave
            # by identity: what is merely true may be a forgotten await
            return Verdict(allowed=leave is True or leave == "always", by="program", always=leave == "always")

        return asked

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

    async def done(self) -> None:
        """See :meth:`prime.agent.Agent.done`."""
        await self._core.done()

    async def rest(self, answer: Answer) -> Answer:
        """See :meth:`prime.agent.Agent.rest`."""
        return await self._core.rest(answer)

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
