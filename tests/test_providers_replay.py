import pytest

from prime.errors import ProviderError
from prime.messages import CallPart, Delta, Header, Message, Reply, Request, TextPart, ToolSpec, Usage
from prime.providers.replay import ReplayProvider

pytestmark = pytest.mark.anyio

TOOL = ToolSpec(name="repl", description="", parameters={})
ASKED = Request(header=Header(model="p/m", system="", tools=(TOOL,)), messages=())


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


async def test_a_query_gets_the_reply_of_the_same_one_in_whatever_order_they_come() -> None:
    def query(prompt: str, model: str = "p/m") -> Request:
        header = Header(model=model, system="be brief", tools=())
        return Request(header=header, messages=(Message(role="user", parts=(TextPart(text=prompt),)),))

    def reply(text: str) -> Reply:
        return Reply(parts=(TextPart(text=text),), stop="end", model="p/m-2026")

    recorded = [(query("a"), reply("1")), (query("b"), reply("2")), (query("a"), reply("3"))]
    provider = ReplayProvider("replay/s", (reply("whole"),), recorded)
    asked = [query("b", "replay/s"), query("a", "replay/s"), query("a", "replay/s"), ASKED]
    assert [await provider.reply(each, print) for each in asked] == [reply("2"), reply("1"), reply("3"), reply("whole")]
    with pytest.raises(ProviderError, match="no answer, or no further one"):
        await provider.reply(query("a"), print)
