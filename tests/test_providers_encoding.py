"""What is sent: both encoders as pure functions."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prime.messages import (
    CallPart,
    Header,
    ImagePart,
    Message,
    Parameters,
    ReasoningPart,
    Request,
    TextPart,
    ToolSpec,
)
from prime.providers.anthropic import Messages
from prime.providers.chat import Chat
from prime.providers.dialects import DIALECTS
from prime.providers.http import json_bytes

PNG = ImagePart(media_type="image/png", data="aGVsbG8=")
REPL = ToolSpec(name="repl", description="Run a cell.", parameters={"type": "object", "properties": {"code": {}}})
MESSAGES = Messages("m", "test/m")


def chat(dialect: str = "openai") -> Chat:
    return Chat("m", DIALECTS[dialect], "test/m")


def user(*parts: TextPart | ImagePart) -> Message:
    return Message(role="user", parts=parts)


def said(*parts: Any) -> Message:
    return Message(role="assistant", parts=parts)


def result(call_id: str, *parts: TextPart | ImagePart) -> Message:
    return Message(role="tool", parts=parts, call_id=call_id)


def call(call_id: str, arguments: str = '{"code": "1"}') -> CallPart:
    return CallPart(call_id=call_id, name="repl", arguments=arguments)


def request(*messages: Message, **header: Any) -> Request:
    given_header = {"model": "test/m", "system": "", "tools": (), **header}
    return Request(header=Header(**given_header), messages=messages)


def text(words: str) -> TextPart:
    return TextPart(text=words)


def test_chat_writes_a_whole_conversation() -> None:
    body = chat().encode(
        request(
            user(text("go")),
            said(ReasoningPart(text="hm"), text("look"), call("a"), call("b", '{"code":  "2"}')),
            result("a", text("1")),
            result("b", text("2")),
            said(text("done")),
            system="be brief",
            tools=(REPL,),
            parameters=Parameters(max_tokens=100, temperature=0.5, effort="low"),
        ),
        images=True,
    )
    assert body["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": "look",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "repl", "arguments": '{"code": "1"}'}},
                {"id": "b", "type": "function", "function": {"name": "repl", "arguments": '{"code":  "2"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "assistant", "content": "done"},
    ]
    assert body["tools"][0]["function"]["parameters"] == {"type": "object", "properties": {"code": {}}}
    assert (body["max_completion_tokens"], body["temperature"], body["reasoning_effort"]) == (100, 0.5, "low")
    assert body["stream_options"] == {"include_usage": True}


def test_chat_dialects_differ_by_their_rows() -> None:
    asked = request(user(text("go")), parameters=Parameters(max_tokens=9, effort="high"))
    assert chat("deepseek").encode(asked, images=False)["max_tokens"] == 9
    assert chat("openrouter").encode(asked, images=False)["reasoning"] == {"effort": "high"}


@pytest.mark.parametrize(
    ("dialect", "with_reasoning", "without"),
    [("openai", None, None), ("compatible", "hm", None), ("deepseek", "hm", "")],
)
def test_chat_sends_reasoning_back_where_the_server_wants_it(dialect, with_reasoning, without) -> None:
    asked = request(
        user(text("go")),
        said(ReasoningPart(text="hm"), call("a")),
        result("a", text("1")),
        said(call("b")),
        result("b", text("2")),
        said(ReasoningPart(text="so"), text("done")),
    )
    encoded = chat(dialect).encode(asked, images=False)["messages"]
    assert [encoded[index].get("reasoning_content") for index in (1, 3, 5)] == [with_reasoning, without, None]


def test_chat_puts_images_of_results_after_the_whole_run() -> None:
    asked = request(user(text("see"), PNG), said(call("a"), call("b")), result("a", text("1"), PNG), result("b"))
    first, _, *run = chat().encode(asked, images=True)["messages"]
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}
    assert first["content"] == [{"type": "text", "text": "see"}, picture]
    assert run == [
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": "[1 image(s) of the result of a]"}, picture]},
    ]


def test_a_model_without_images_gets_a_line_instead() -> None:
    asked = request(user(PNG), said(call("a")), result("a", text("1"), PNG))
    line = "[image not shown, this model takes none: image/png, 1 KiB]"
    encoded = chat().encode(asked, images=False)["messages"]
    assert (encoded[0]["content"], encoded[2]["content"]) == (line, f"1\n{line}")
    encoded = MESSAGES.encode(asked, images=False)["messages"]
    assert encoded[0]["content"] == [{"type": "text", "text": line}]
    assert [block["text"] for block in encoded[2]["content"][0]["content"]] == ["1", line]


def test_messages_writes_a_whole_conversation() -> None:
    body = MESSAGES.encode(
        request(
            user(text("go")),
            said(
                ReasoningPart(text="hm", signature="sig"), ReasoningPart(text="xx", redacted=True), call("a"), call("b")
            ),
            result("a", text("1"), PNG),
            result("b"),
            user(text("and hurry")),
            system="be brief",
            tools=(REPL, REPL),
            parameters=Parameters(temperature=0.5),
        ),
        images=True,
    )
    mark = {"type": "ephemeral"}
    assert body["system"] == [{"type": "text", "text": "be brief", "cache_control": mark}]
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, mark]
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "redacted_thinking", "data": "xx"},
                {"type": "tool_use", "id": "a", "name": "repl", "input": {"code": "1"}},
                {"type": "tool_use", "id": "b", "name": "repl", "input": {"code": "1"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "content": [
                        {"type": "text", "text": "1"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}},
                    ],
                },
                {"type": "tool_result", "tool_use_id": "b"},
                {"type": "text", "text": "and hurry", "cache_control": mark},
            ],
        },
    ]
    assert (body["max_tokens"], body["temperature"]) == (16_384, 0.5)


def test_messages_puts_no_breakpoint_on_thinking() -> None:
    asked = request(user(text("go")), said(text("so"), ReasoningPart(text="hm", signature="sig")))
    said_so, thinking = MESSAGES.encode(asked, images=True)["messages"][1]["content"]
    assert "cache_control" in said_so
    assert "cache_control" not in thinking


def test_messages_asks_for_effort_without_a_temperature() -> None:
    asked = request(user(text("go")), parameters=Parameters(temperature=0.5, effort="high", max_tokens=7))
    body = MESSAGES.encode(asked, images=True)
    assert (body["thinking"], body["output_config"]) == ({"type": "adaptive"}, {"effort": "high"})
    assert (body["max_tokens"], "temperature" in body) == (7, False)


def test_messages_leaves_out_what_the_api_refuses() -> None:
    asked = request(
        user(text("go")),
        said(ReasoningPart(text="another provider's"), text(" \n"), call("functions.repl:0")),
        result("functions.repl:0", text("")),
        said(text("")),
        user(text("on")),
    )
    encoded = MESSAGES.encode(asked, images=True)["messages"]
    assert [message["role"] for message in encoded] == ["user", "assistant", "user"]
    assert [block["id"] for block in encoded[1]["content"]] == ["functions-repl-0"]
    assert [block["type"] for block in encoded[2]["content"]] == ["tool_result", "text"]
    assert encoded[2]["content"][0]["tool_use_id"] == "functions-repl-0"


@pytest.mark.parametrize("arguments", ['{"cut', "[1]", "", "7"])
def test_a_malformed_call_goes_back_as_an_object_that_shows_it(arguments: str) -> None:
    asked = request(user(text("go")), said(call("a", arguments)), result("a", text("not JSON")))
    sent = chat().encode(asked, images=False)["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent) == {"unparsed": arguments}
    sent = MESSAGES.encode(asked, images=False)["messages"][1]["content"][0]["input"]
    assert sent == {"unparsed": arguments}


words = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=8)
texts = words.map(text)
calls = st.builds(call, st.sampled_from(["a", "b:1", "c"]), st.sampled_from(['{"code": "é"}', "{cut", ""]))
thoughts = st.builds(ReasoningPart, text=words, signature=st.none() | st.just("sig"), redacted=st.booleans())
turns = st.lists(
    st.one_of(
        st.builds(lambda parts: user(*parts), st.lists(texts | st.just(PNG), min_size=1, max_size=2)),
        st.builds(lambda parts: said(*parts), st.lists(texts | calls | thoughts, max_size=3)),
        st.builds(
            lambda i, parts: result(i, *parts), st.sampled_from(["a", "c"]), st.lists(texts | st.just(PNG), max_size=2)
        ),
    ),
    max_size=8,
)


def conversation(wire: Chat | Messages, asked: Request, images: bool) -> list[Any]:
    """The sent messages as a flat list of blocks without cache breakpoints: what a prefix cache compares."""
    flat: list[Any] = []
    for message in wire.encode(asked, images=images)["messages"]:
        content = message["content"]
        blocks = content if isinstance(wire, Messages) else [message]
        flat += [(message["role"], {k: v for k, v in block.items() if k != "cache_control"}) for block in blocks]
    return flat


@given(turns=turns, images=st.booleans(), dialect=st.sampled_from(sorted(DIALECTS)))
def test_a_request_encodes_to_the_same_bytes_every_time(turns, images, dialect) -> None:
    asked = request(*turns, system="s", tools=(REPL,))
    again = Request.model_validate_json(asked.model_dump_json(), strict=False)
    for wire in (chat(dialect), MESSAGES):
        body = json_bytes(wire.encode(asked, images=images))
        assert body == json_bytes(wire.encode(again, images=images))
        json.loads(body)


@given(turns=turns, more=turns, images=st.booleans(), dialect=st.sampled_from(sorted(DIALECTS)))
def test_a_longer_request_begins_with_the_shorter_one(turns, more, images, dialect) -> None:
    if turns and turns[-1].role == "tool":
        more = [message for message in more if message.role != "tool"]  # A request never ends amid a reply's results.
    short, long = request(*turns), request(*turns, *more)
    for wire in (chat(dialect), MESSAGES):
        before, after = conversation(wire, short, images), conversation(wire, long, images)
        assert after[: len(before)] == before
