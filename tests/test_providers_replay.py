import pytest

from prime.errors import ProviderError
from prime.messages import CallPart, Delta, Header, Reply, Request, TextPart, Usage
from prime.providers.replay import ReplayProvider

pytestmark = pytest.mark.anyio

ASKED = Request(header=Header(model="p/m", system="", tools=()), messages=())


async def test_recorded_replies_come_again_in_order_and_no_more_than_those() -> None:
    recorded = (
        Reply(
            parts=(TextPart(text="a"), CallPart(call_id="c", name="repl", arguments="{}")),
            stop="calls",
            model="p/m-2026",
            usage=Usage(input=3, output=2),
        ),
        Reply(parts=(TextPart(text="b"),), stop="end", model="p/m-2026"),
    )
    provider = ReplayProvider("p/m", recorded)
    deltas: list[Delta] = []
    assert await provider.reply(ASKED, deltas.append) == recorded[0]
    assert [(delta.kind, delta.text) for delta in deltas] == [("text", "a"), ("call", "{}")]
    assert provider.requests_left == 1
    assert await provider.reply(ASKED, deltas.append) == recorded[1]
    with pytest.raises(ProviderError, match="the recording has 2 replies and one more was asked for") as caught:
        await provider.reply(ASKED, deltas.append)
    assert not caught.value.retryable
    assert provider.requests_left == 0
