"""What a session costs by the rules of a provider that caches the beginning of a request. Pure and deterministic.

Tokens are those of :mod:`prime.tokens`. The cached part of a request is its longest common prefix with any earlier
request followed by its reply, in whole blocks of 128 tokens. The rule was checked against reported hits of a provider
that bills this way: 13 of 13 exact with blocks of 128.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from prime.messages import CallPart, Header, Message, Part, thaw
from prime.tokens import MESSAGE_TOKENS, estimate

BLOCK = 128
#: US dollars for a million tokens: miss, hit, output. ``no_cache`` is ``flash`` without a discount.
SHEETS = {"flash": (0.22, 0.007, 0.66), "pro": (0.66, 0.022, 1.98), "no_cache": (0.22, 0.22, 0.66)}


@dataclass(frozen=True)
class Charge:
    """Tokens of one request. ``shared`` is the common prefix; ``rewritten`` is how much of the request before it, with
    its reply, is not part of this one any more: 0 while a session only grows."""

    prompt: int
    hit: int
    miss: int
    output: int
    shared: int
    rewritten: int


@dataclass
class _Node:
    """A message at its place after others; ``after`` are those that followed it in some request."""

    text: str
    after: dict[bytes, _Node] = field(default_factory=dict)


class Ledger:
    """Charges requests in the order in which they were sent. The work for each is linear in what is new in it."""

    def __init__(self) -> None:
        self.charges: list[Charge] = []
        self._root = _Node("")
        self._known: dict[int, tuple[Message | Header, str, bytes, float]] = {}
        self._length = 0

    def charge(self, header: Header, messages: Sequence[Message], reply: Sequence[Part]) -> Charge:
        """Charge one request and its reply."""
        node, shared, prompt, same = self._root, 0.0, 0.0, True
        said = Message(role="assistant", parts=tuple(reply))
        for item in (header, *messages):
            text, digest, tokens = self._measured(item)
            if same and digest not in node.after:
                same = False
                shared += max((estimate(_common(text, other.text)) for other in node.after.values()), default=0.0)
            node = node.after.setdefault(digest, _Node(text))
            shared += tokens if same else 0.0
            prompt += tokens
        text, digest, output = self._measured(said)
        node.after.setdefault(digest, _Node(text))
        whole = round(prompt)
        hit = min(round(shared), whole) // BLOCK * BLOCK
        rewritten = max(self._length - round(shared), 0)
        self._length = round(prompt + output)
        made = Charge(whole, hit, whole - hit, round(output), round(shared), rewritten)
        self.charges.append(made)
        return made

    def price(self, sheet: str) -> float:
        """Return the price of everything charged, in US dollars."""
        miss, hit, output = SHEETS[sheet]
        return sum(each.miss * miss + each.hit * hit + each.output * output for each in self.charges) / 1e6

    def tokens(self, item: Message | Header) -> float:
        """Return the tokens of a message or header."""
        return self._measured(item)[2]

    def _measured(self, item: Message | Header) -> tuple[str, bytes, float]:
        known = self._known.get(id(item))
        if known is None:
            text = serialised(item)
            frame = MESSAGE_TOKENS if isinstance(item, Message) else 0
            # the item is kept, so that its id stays its own
            known = self._known[id(item)] = (item, text, hashlib.sha256(text.encode()).digest(), estimate(text) + frame)
        return known[1:]


def serialised(item: Message | Header) -> str:
    """Return a message or header as the text that is counted and compared."""
    if isinstance(item, Header):
        tools = [[tool.name, tool.description, thaw(tool.parameters)] for tool in item.tools]
        return item.system + json.dumps(tools)
    said = (f"{part.name} {part.arguments}" if isinstance(part, CallPart) else _words(part) for part in item.parts)
    return "\n".join((item.role, *said))


def _words(part: Part) -> str:
    return getattr(part, "text", "") or getattr(part, "data", "")


def _common(one: str, other: str) -> str:
    return os.path.commonprefix((one, other))  # noqa: RUF071 - of characters, as wanted
