"""From the surface to the next request, and the check that it is what the log says.

A context policy decides what the surface shall hold; see :mod:`prime.policies.plan`. It is carried out here, before a
request is built, and every one of its operations is in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from prime import events as ev
from prime.checked import Checked
from prime.items import Items
from prime.log import Log
from prime.messages import Header, Request
from prime.originals import StoredOriginals
from prime.policies.base import Item, Options, View
from prime.policies.plan import plan
from prime.policies.stream import Question, question
from prime.tokens import MARGIN, estimate

_logger = logging.getLogger(__name__)

#: Tokens from which it is worth a word that nobody knows how many the model can take: the smallest common window.
_UNKNOWN_FROM = 32_000
#: How far one reported usage may move the estimate: beyond it the report is about something else than the request.
_SCALES = (0.5, 3.0)


class Context:
    """Builds requests of one session. What is on the surface is kept as it is appended; :meth:`check` trusts none of
    it.

    Args:
        options: the policy.
        window: gives the tokens that the model can take, None while unknown.
    """

    def __init__(
        self,
        log: Log,
        options: Options = Options(),  # noqa: B008 - frozen
        *,
        window: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._log = log
        self._options = options
        self._originals = StoredOriginals(log.entries)
        self._checked = Checked(log)
        self._items = Items()
        self._items.load(log.pick(log.state.surface.seqs), log.pick)
        self._scales: dict[str, float] = {}
        self._asked = self._warned = False
        self.window = window
        self._learn()
        log.observe(self._keep)

    def request(self, header: Header) -> Request:
        """Return the next request.

        The header is logged first when it is another one than the last, then what the policy asks for. Between turns
        nothing is sent, and the policy is not asked.
        """
        if self._log.state.header != header:
            self._log.append(ev.HeaderChanged(header=header))
        if self._log.state.trace.in_turn:
            self._carry_out(refused=False)
        found = (item.message for item in self._surface())
        return Request(header=header, messages=tuple(message for message in found if message is not None))

    def question(self, header: Header) -> Question | None:
        """Return what the policy wants to ask the model beside the conversation before the next request, if any."""
        if self._options.policy != "stream":
            return None
        return question(self.view(), self._originals, self._options.stream, header)

    def check(self, request: Request) -> str:
        """Return the digest of a request; see :meth:`prime.checked.Checked.digest`."""
        return self._checked.digest(request)

    def recover(self) -> bool:
        """Make the surface small after the model refused it for its size; return whether it became smaller."""
        return self._carry_out(refused=True)

    def renew(self) -> None:
        """Have the window switched before the next request, once. What comes of it is in the log."""
        self._asked = True

    def used(self) -> int:
        """Return the estimated tokens of a request sent now: the last reported usage plus what is new since, or an
        estimate of the whole. Both are scaled by what the model counted last; before that, the whole gets a margin."""
        return self._used(self._surface())

    def _used(self, items: Sequence[Item]) -> int:
        state = self._log.state
        model = state.header.model if state.header is not None else ""
        place = self._anchor(items)
        if place is not None and state.replied is not None:
            usage = state.replied.usage
            new = sum(item.tokens for item in items[place + 1 :])
            return usage.prompt + usage.output + round(new * self._scales.get(model, 1.0))
        return round(self._estimate(items) * self._scales.get(model, MARGIN))

    def _carry_out(self, *, refused: bool) -> bool:
        operations = plan(self._options, self.view(refused=refused), self._originals)
        self._asked = False
        if operations:
            self._log.append(*operations)
        return bool(operations)

    def view(self, *, refused: bool = False) -> View:
        """Return what a policy sees now; ``refused``: the provider found the last request too large."""
        state, items = self._log.state, self._surface()
        kernel, model = state.kernel, state.header.model if state.header is not None else ""
        used, window = self._used(items), self.window()
        if window is None and used >= _UNKNOWN_FROM:
            self._warn(model)
        return View(
            items=items,
            next_seq=len(self._log),
            sent=state.sent,
            turn=state.trace.turn,
            step=state.trace.step + 1,
            used=used,
            window=window,
            scale=self._scales.get(model, 1.0),
            model=model,
            asked=self._asked,
            refused=refused,
            names=kernel.names if kernel.alive and kernel.ran == kernel.generation else (),
            running=(*state.running.lines(), *state.kin.lines()),
            side=state.side,
        )

    def _warn(self, model: str) -> None:
        if not self._warned and self._options.policy in ("window", "auto"):
            self._warned = True
            _logger.warning("the window of %s is not known: nothing is done before the model refuses a request", model)

    def _surface(self) -> list[Item]:
        return self._items.of(self._log.state.surface.seqs)

    def _estimate(self, items: Sequence[Item]) -> float:
        """Return the tokens of a request of these items, by the estimate alone."""
        header = self._log.state.header
        fixed = estimate(header.system) + sum(estimate(str(tool)) for tool in header.tools) if header else 0.0
        return fixed + sum(item.tokens for item in items)

    def _anchor(self, items: Sequence[Item]) -> int | None:
        """Return where the newest reply with a usage stands, None when what it answered is not before it any more."""
        replied = self._log.state.replied
        if replied is None:
            return None
        for place, item in enumerate(items):
            if item.seq == replied.seq:
                return place
            if item.seq > replied.seq:  # a replacement made since
                return None
        return None

    def _learn(self) -> None:
        """Compare the newest reported usage with the estimate of the request that it is for."""
        state, items = self._log.state, self._surface()
        place = self._anchor(items)
        if place is None or state.replied is None or state.header is None or not state.replied.usage.prompt:
            return
        least, most = _SCALES
        counted = state.replied.usage.prompt / max(self._estimate(items[:place]), 1.0)
        self._scales[state.header.model] = min(max(counted, least), most)

    def _keep(self, entry: ev.Entry) -> None:
        self._items.take(entry)
        if isinstance(entry.event, ev.ModelReplied):
            self._learn()
