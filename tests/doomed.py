"""A host with a family of agents that is there to be killed: ``python doomed.py HOME [SESSION]``.

Prints the kind of each entry of the root's log as it is stored. Each child writes a line into the file ``effects`` in
each of its cells, and waits a moment.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from families import Cast, Entry, Logs, Part, family, spawn

from prime import events as ev
from prime.faces import Agent
from prime.messages import Request

CHILDREN = tuple("abcde")
CELLS = 3
EFFECT = "with open('effects', 'a') as file:\n    print('{name} {number}', file=file)\nawait asyncio.sleep(0.2)"


def replies(request: Request) -> int:
    """Return how many replies a request has seen; unlike a count of requests it outlives the process."""
    return sum(message.role == "assistant" for message in request.messages)


def root(request: Request, number: int) -> Entry:
    """Start the children, then say something to whatever comes."""
    return {"code": spawn(*CHILDREN)} if replies(request) == 0 else {"text": "heard"}


def child(name: str) -> Part:
    """Return what a child says."""

    def part(request: Request, number: int) -> Entry:
        done = replies(request)
        return {"code": EFFECT.format(name=name, number=done)} if done < CELLS else {"text": f"{name} is done"}

    return part


def cast() -> Cast:
    """Return the model of the family."""
    return Cast({"go": root, **{name: child(name) for name in CHILDREN}})


def again(home: Path, session: str | None) -> AbstractAsyncContextManager[tuple[Agent, Logs]]:
    """Open the family; its model counts replies, so that none of them may be sealed."""
    return family(home, cast(), session=session, context_policy="transcript")


async def host(home: Path, session: str | None) -> None:
    """Run the family until nothing is left to do, and wait for the end."""
    async with again(home, session) as (agent, _):

        def tell(item: object) -> None:
            if isinstance(item, ev.Entry):
                print(item.event.type, flush=True)

        agent._core.observe(tell)
        print(agent.session, flush=True)
        await agent.ask("go")
        await agent.done()
        print("done", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(host(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None))
