"""What a family of agents may do together: how deep, how many, and for how much."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from prime import caps
from prime.errors import ToolFailed
from prime.messages import Usage

Used = Mapping[str, Usage]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of the children of one root, of theirs, and so on, all together.

    Attributes:
        depth: generations below the root.
        running: at work at the same time, not counting those whose own children are.
        total: ever started.
        tokens: new ones (not read from a provider's cache) that they use, None for no limit.
        cost: US dollars, None for no limit; it needs models with known prices.
    """

    depth: int = 3
    running: int = 8
    total: int = 64
    tokens: int | None = 10_000_000
    cost: float | None = 10.0


class Tree:
    """The members of one family and what they have used. ``limits`` are those of the root, whose budget holds for all
    of them together."""

    def __init__(self, bounds: Bounds, limits: caps.Limits) -> None:
        self.bounds = bounds
        self._limits = limits
        self._root: Callable[[], Used] = dict
        self._children: dict[str, Callable[[], Used]] = {}

    def plant(self, used: Callable[[], Used]) -> None:
        """Take in the root; ``used`` gives its tokens by model."""
        self._root = used

    def join(self, agent_id: str, used: Callable[[], Used]) -> None:
        """Take in a child, or say anew what it has used."""
        self._children[agent_id] = used

    def tokens(self, agent_id: str) -> int:
        """Return the tokens that a child has used, 0 for one that nobody has heard of."""
        return sum(used.prompt + used.output for used in self._children.get(agent_id, dict)().values())

    def admit(self, depth: int) -> None:
        """Check that one more child may be started, ``depth`` generations below the root.

        Raises:
            ToolFailed: ``too_deep``, ``too_many``, or what the family has used up.
        """
        if depth > self.bounds.depth:
            raise ToolFailed("too_deep", f"agents may be {self.bounds.depth} generations deep; do this one's work here")
        if len(self._children) >= self.bounds.total:
            raise ToolFailed(
                "too_many",
                f"{self.bounds.total} agents were started here, the most that are allowed; use those there are",
            )
        if stop := self.stop(child=True):
            raise ToolFailed(stop.reason, stop.detail)

    def stop(self, *, child: bool) -> caps.Stop | None:
        """Return why the root, or a ``child``, may not send another request."""
        children = _sum(used() for used in self._children.values())
        if stop := caps.overspent(self._limits, self._limits.prices.total(_sum((self._root(), children)))):
            return stop
        if not child:
            return None
        new = sum(used.input + used.cache_write + used.output for used in children.values())
        if self.bounds.tokens is not None and new >= self.bounds.tokens:
            return caps.Stop("budget", f"the children used {new:,} new tokens, {self.bounds.tokens:,} are allowed")
        cost = self._limits.prices.total(children)
        if self.bounds.cost is not None and cost is not None and cost >= Decimal(str(self.bounds.cost)):
            return caps.Stop("budget", f"the children cost ${cost:.4f}, ${self.bounds.cost:g} is allowed")
        return None


def _sum(every: Iterable[Used]) -> dict[str, Usage]:
    total: dict[str, Usage] = {}
    for one in every:
        for model, used in one.items():
            total[model] = total.get(model, Usage()) + used
    return total
