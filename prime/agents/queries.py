"""``agents.query`` and ``agents.query_many``: single requests beside the conversation, without tools or history.

Each is in the log before it leaves, with its digest, and its usage counts as the session's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from prime import caps
from prime.errors import ProviderError, ToolFailed
from prime.log import Log
from prime.messages import Frozen, Header, Parameters, Reply, text_of
from prime.providers.base import Provider
from prime.query import ask
from prime.tools.base import Tool, tool, waiting

#: Most tokens of an answer. A larger wish is lowered to it (design: agents, "query").
MAX_TOKENS = 4_096


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one call may ask for.

    Attributes:
        characters: of one prompt, and of the system text.
        prompts: of one batch.
        parallel: requests of one batch at the same time.
    """

    characters: int = 200_000
    prompts: int = 20
    parallel: int = 8


class Answered(Frozen):
    """The answer to one prompt; ``truncated`` when it was cut at max_tokens."""

    text: str
    truncated: bool


class Replies(Frozen):
    """The answers to a batch, in the order of its prompts."""

    replies: tuple[Answered, ...]


#: Fewest tokens are 1.
Tokens = Annotated[int, Field(ge=1)]


class Queries:
    """Asks the session's model. ``provider`` is None in a session without one."""

    def __init__(
        self,
        log: Log,
        provider: Provider | None,
        parameters: Parameters,
        allowance: Callable[[], caps.Stop | None],
        bounds: Bounds,
    ) -> None:
        """``allowance`` says why no further request may be sent, None while one may."""
        self._log = log
        self._provider = provider
        self._parameters = parameters
        self._allowance = allowance
        self._bounds = bounds

    async def query(self, prompt: str, *, system: str | None = None, max_tokens: Tokens = MAX_TOKENS) -> Answered:
        """Ask the model one thing, beside this conversation: it sees the prompt and nothing else, and has no tools. For
        reading much text in parts: summarise, classify, compare."""
        self._check("prompt", prompt)
        return await self._ask(prompt, system, max_tokens)

    async def query_many(
        self, prompts: list[str], *, system: str | None = None, max_tokens: Tokens = MAX_TOKENS
    ) -> Replies:
        """Ask several things at once; `.replies` has the answers in the order of the prompts. When one fails the others
        are given up, and the error names it as prompts[i]."""
        if not 1 <= len(prompts) <= self._bounds.prompts:
            raise ToolFailed(
                "bad_arguments", f"there are {len(prompts)} prompts; give 1 to {self._bounds.prompts} in one call"
            )
        for index, prompt in enumerate(prompts):
            self._check(f"prompts[{index}]", prompt)
        found: dict[int, Answered] = {}
        waiting_ones = iter(enumerate(prompts))

        async def worker() -> None:
            for index, prompt in waiting_ones:
                try:
                    found[index] = await self._ask(prompt, system, max_tokens)
                except ToolFailed as error:
                    raise ToolFailed(error.code, f"prompts[{index}]: {error}") from error

        try:
            async with asyncio.TaskGroup() as group:  # the first failure cancels the others, and they are waited for
                for _ in range(min(self._bounds.parallel, len(prompts))):
                    group.create_task(worker())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return Replies(replies=tuple(found[index] for index in range(len(prompts))))

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools."""
        return tuple(waiting(tool(call, namespace="agents", parallel=True)) for call in (self.query, self.query_many))

    def _check(self, name: str, prompt: str) -> None:
        if not prompt.strip():
            raise ToolFailed("bad_arguments", f"{name} is empty")
        self._check_size(name, prompt)

    def _check_size(self, name: str, text: str) -> None:
        if len(text) > self._bounds.characters:
            raise ToolFailed(
                "too_long",
                f"{name} has {len(text):,} characters, at most {self._bounds.characters:,} can be asked at once; "
                "split it and ask about each part",
            )

    async def _ask(self, prompt: str, system: str | None, max_tokens: int) -> Answered:
        if self._provider is None:
            raise ToolFailed("no_model", "this session runs cells without a model; start it with --model")
        self._check_size("system", system or "")
        if stop := self._allowance():
            raise ToolFailed(stop.reason, stop.detail)
        parameters = self._parameters.model_copy(update={"max_tokens": min(max_tokens, MAX_TOKENS)})
        header = Header(model=self._provider.model, system=system or "", tools=(), parameters=parameters)
        try:
            reply = await ask(self._provider, self._log, header, prompt)
        except ProviderError as failure:
            raise ToolFailed(failure.code, str(failure)) from failure
        assert isinstance(reply, Reply), "only its task is ever cancelled"
        if reply.stop == "filter":
            raise ToolFailed("filter", "the provider withheld the answer")
        return Answered(text=text_of(reply.parts), truncated=reply.stop == "length")
