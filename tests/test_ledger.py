from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prime.ledger import BLOCK, Ledger, Total
from prime.messages import CallPart, Header, ImagePart, Message, Reply, Request, TextPart, ToolSpec, thaw
from prime.pricing import SHEETS
from prime.tokens import estimate, estimate_message

TOOL = ToolSpec(name="repl", description="", parameters={})
HEADER = Header(model="a/b", system="You have a kernel. " * 30, tools=(TOOL,))


def user(text: str) -> Message:
    return Message(role="user", parts=(TextPart(text=text),))


def reply(text: str) -> Reply:
    return Reply(parts=(TextPart(text=text),), stop="end", model="b")


def assistant(text: str) -> Message:
    return Message(role="assistant", parts=(TextPart(text=text),))


def request(*messages: Message, header: Header = HEADER) -> Request:
    return Request(header=header, messages=messages)


@pytest.mark.parametrize(
    ("miss", "hit", "output", "price"),
    [
        (430_375, 4_712_320, 44_870, 0.1573),
        (745_614, 9_178_624, 32_532, 0.2498),
    ],
)
def test_prices_are_those_of_published_ledgers(miss: int, hit: int, output: int, price: float) -> None:
    found = Total(requests=1, prompt=miss + hit, hit=hit, miss=miss, output=output, peak=0)
    assert round(found.price(SHEETS["flash"]), 4) == price


def test_the_first_request_is_cold_and_the_next_finds_the_reply_too() -> None:
    ledger, text = Ledger(), "word " * 400
    first = ledger.add(request(user(text)), reply("answer " * 100))
    assert (first.hit, first.miss, first.diverged) == (0, first.prompt, -1)
    second = ledger.add(request(user(text), assistant("answer " * 100), user("more")), reply("yes"))
    whole = first.prompt + estimate_message(assistant("answer " * 100))
    assert second.hit == BLOCK * int(whole // BLOCK)
    assert second.prompt == second.hit + second.miss
    assert second.output == round(estimate("yes") + estimate("\0assistant\0\0"))


def test_a_prompt_is_the_header_and_its_messages() -> None:
    picture = Message(
        role="user", parts=(TextPart(text="see 数"), ImagePart(media_type="image/png", data="AAAA" * 100))
    )
    call = Message(role="assistant", parts=(CallPart(call_id="1", name="repl", arguments='{"code": "1"}'),))
    line = Ledger().add(request(picture, call), None)
    tools = [[tool.name, tool.description, thaw(tool.parameters)] for tool in HEADER.tools]
    fixed = estimate(HEADER.system + json.dumps(tools))
    assert line.prompt == round(fixed + estimate_message(picture) + estimate_message(call))
    assert line.output == 0


def test_what_differs_in_the_middle_of_a_message_is_shared_up_to_there() -> None:
    ledger = Ledger()
    ledger.add(request(user("same " * 500 + "a" * 500)), reply("x"))
    line = ledger.add(request(user("same " * 500 + "b" * 500)), reply("x"))
    shared = estimate(HEADER.system) + estimate("same " * 500)
    assert abs(line.hit - shared) < 2 * BLOCK
    assert line.hit % BLOCK == 0


def test_any_earlier_request_counts_not_only_the_last() -> None:
    ledger, long = Ledger(), [user(f"{number} " * 300) for number in range(4)]
    ledger.add(request(*long), reply("x"))
    ledger.add(request(user("something else")), reply("x"))
    line = ledger.add(request(*long), reply("x"))
    assert line.miss < BLOCK
    assert line.diverged < 1_000


def test_another_header_shares_nothing_behind_it() -> None:
    ledger = Ledger()
    ledger.add(request(user("x" * 4_000)), reply("x"))
    other = HEADER.model_copy(update={"system": "Other. " * 80})
    assert ledger.add(request(user("x" * 4_000), header=other), reply("x")).hit == 0


TEXTS = st.lists(st.sampled_from(["one ", "two 数据 ", "3 4 5 ", "x" * 300]), min_size=1, max_size=6)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8))
def test_a_growing_session_pays_for_what_is_new_and_less_than_a_block(turns: list[tuple[list[str], list[str]]]) -> None:
    ledger, messages = Ledger(), list[Message]()
    for asked, answered in turns:
        messages.append(user("".join(asked)))
        ledger.add(request(*messages), reply("".join(answered)))
        messages.append(assistant("".join(answered)))
    for before, after in pairwise(ledger.lines):
        assert after.hit >= before.prompt - BLOCK
        assert after.miss <= after.prompt - before.prompt + BLOCK
        assert after.hit + after.miss == after.prompt
    assert ledger.total().peak == ledger.lines[-1].prompt


PARTS = st.sampled_from(
    [
        TextPart(text="the same words " * 40),
        TextPart(text="other words " * 40),
        ImagePart(media_type="image/png", data="QUJD1234" * 50_000),
        ImagePart(media_type="image/png", data="QUJD9999" * 50_000),
    ]
)


@given(st.lists(st.lists(st.lists(PARTS, min_size=1, max_size=3), min_size=1, max_size=4), min_size=1, max_size=6))
def test_a_hit_is_never_more_than_the_prompt_nor_less_than_nothing(requests: list[list[list[TextPart]]]) -> None:
    ledger = Ledger()
    for parts in requests:
        line = ledger.add(request(*(Message(role="user", parts=tuple(each)) for each in parts)), None)
        assert 0 <= line.hit <= line.prompt
        assert line.hit + line.miss == line.prompt
