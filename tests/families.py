"""Families of agents for tests: a model that plays a part for each of them, and what their logs say."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import prime
from prime import events as ev
from prime.errors import SessionNotFound
from prime.faces import Agent
from prime.log import read
from prime.messages import Delta, Reply, Request, text_of
from prime.providers.scripted import ScriptedProvider
from prime.sessions import Sessions

Entry = Mapping[str, Any]
#: What an agent says, request by request.
Part = Sequence[Entry] | Callable[[Request, int], Entry]

#: Binds the records of children by name.
SPAWN = "{name} = await agents.spawn({prompt!r}, name={name!r}{more})"


def spawn(*names: str, more: str = "") -> str:
    """Return a cell that starts children, each with its name for a prompt."""
    return "\n".join(SPAWN.format(name=name, prompt=name, more=more and f", {more}") for name in names)


class Cast(ScriptedProvider):
    """A model that plays a part for each agent: that of the newest words of a person which name one.

    A part is the replies in order; when they are at their end it says ``done``. ``open`` are the parts that are being
    asked now, ``most`` how many were at the same time.
    """

    def __init__(self, parts: Mapping[str, Part]) -> None:
        super().__init__(self._play)
        self._parts = parts
        self._said: dict[str, int] = defaultdict(int)
        self.open: list[str] = []
        self.most = 0
        self.changed = asyncio.Event()

    async def reply(self, request: Request, on_delta: Callable[[Delta], None]) -> Reply:
        part = self.part(request)
        self.open.append(part)
        self.most = max(self.most, len(self.open))
        self._change()
        try:
            return await super().reply(request, on_delta)
        finally:
            self.open.remove(part)
            self._change()

    async def asked(self, *parts: str) -> None:
        """Wait until all of these are being asked."""
        async with asyncio.timeout(30):
            while not set(parts) <= set(self.open):
                await self.changed.wait()

    def part(self, request: Request) -> str:
        """Return whose request it is."""
        words = [text_of(message.parts) for message in request.messages if message.role == "user"]
        found = [each for each in words if each in self._parts]
        return found[-1] if found else words[0]

    def seen(self, part: str) -> list[Request]:
        """Return the requests of a part."""
        return [request for request in self.requests if self.part(request) == part]

    def _play(self, request: Request) -> Entry:
        name = self.part(request)
        part = self._parts[name]
        number = self._said[name]
        self._said[name] += 1
        if callable(part):
            return part(request, number)
        return part[number] if number < len(part) else {"text": "done"}

    def _change(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class Logs:
    """The logs of a family, by the names of its members; the root is ``root``."""

    def __init__(self, home: Path, root: str) -> None:
        self._sessions = Sessions(home)
        self.root = root

    def ids(self) -> dict[str, str]:
        """Return the sessions by name."""
        found = {"root": self.root}
        for parent in (self.root, *self._sessions.children(self.root)):
            found |= {event.name: event.agent_id for event in self._of(parent, "child_spawned")}
        return found

    def of(self, name: str, *kinds: str) -> list[Any]:
        """Return the events of a member's log, of these kinds."""
        return self._of(self.ids()[name], *kinds)

    def settled(self, parent: str = "root") -> list[tuple[str, str]]:
        """Return what a parent was told of its children: names and outcomes, in order."""
        names = {agent_id: name for name, agent_id in self.ids().items()}
        return [(names[event.agent_id], event.settlement.outcome) for event in self.of(parent, "child_settled")]

    def notices(self, parent: str = "root") -> list[str]:
        """Return the notices of settlements that reached the model of a parent."""
        given = self.of(parent, "notice_given")
        return [event.text for event in given if re.search(r"\.settled$", event.about)]

    def shown(self, name: str = "root") -> list[str]:
        """Return what the model saw of a member's cells."""
        return [text_of(event.shown) for event in self.of(name, "cell_ended")]

    def _of(self, session: str, *kinds: str) -> list[Any]:
        try:
            with self._sessions.read(session) as store:
                return [entry.event for entry in read(store, types=kinds or None)]
        except SessionNotFound:
            return []


@asynccontextmanager
async def family(
    home: Path, cast: Cast, *, session: str | None = None, **options: Any
) -> AsyncIterator[tuple[Agent, Logs]]:
    """Run a root agent of ``cast`` in ``home``."""
    async with prime.Agent(cast, cwd=home, home=home, session=session, **options) as agent:
        yield agent, Logs(home, agent.session)


async def logged(agent: Agent, logs: Logs, kind: str, count: int) -> None:
    """Wait until the log of the root has so many entries of a kind."""
    news = asyncio.Event()
    unobserve = agent._core.observe(lambda item: news.set())
    try:
        async with asyncio.timeout(30):
            while len(logs.of("root", kind)) < count:
                news.clear()
                await news.wait()
    finally:
        unobserve()


def ends(events: Sequence[Any]) -> list[ev.TurnReason]:
    """Return how turns ended."""
    return [event.reason for event in events if isinstance(event, ev.TurnEnded)]
