"""Profiles of local models: the mended template, the worked example, and calls in fenced blocks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prime.messages import CallPart, Header, ImagePart, Message, ReasoningPart, Reply, Request, TextPart, ToolSpec
from prime.providers.chat import Chat
from prime.providers.dialects import DIALECTS
from prime.providers.fenced import INSTRUCTIONS, Profiled
from prime.providers.profiles import mend, profile_for, profiles

REPL = ToolSpec(name="repl", description="Run a cell.", parameters={"type": "object"})
CODER = profile_for("Qwen2.5 Coder 1.5B Instruct")
ANY = profiles()[-1].model_copy(update={"example": ()})
CHAT = Chat("m", DIALECTS["llamacpp"], "local/m")
#: The calling part of the stock template, with the doubled braces that the 1.5B file has.
TEMPLATE = (
    r'{{- "within <tool_call></tool_call> XML tags:\n<tool_call>\n{{\"name\": <function-name>, \"arguments\": '
    r'<args-json-object>}}\n</tool_call><|im_end|>\n" }}'
    r"""{{- '\n<tool_call>\n{"name": "' }}{{- '}\n</tool_call>' }}"""
)
MENDED = (
    r'{{- "within a ```json code block:\n```json\n{\"name\": <function-name>, \"arguments\": '
    r'<args-json-object>}\n```<|im_end|>\n" }}'
    r"""{{- '\n```json\n{"name": "' }}{{- '}\n```' }}"""
)


def request(*messages: Message, system: str = "be brief", tools: tuple[ToolSpec, ...] = (REPL,)) -> Request:
    return Request(header=Header(model="local/m", system=system, tools=tools), messages=messages)


def user(words: str) -> Message:
    return Message(role="user", parts=(TextPart(text=words),))


def decode(wire: Profiled, words: str, finish: str = "stop", asked: Request | None = None) -> Reply:
    decoder = wire.decoder(asked or request(user("go")))
    for start in range(0, len(words), 7):
        piece = {"delta": {"content": words[start : start + 7]}}
        decoder.feed(json.dumps({"id": "chatcmpl-x", "choices": [piece]}))
    decoder.feed(json.dumps({"choices": [{"delta": {}, "finish_reason": finish}]}))
    return decoder.reply()


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("Qwen2.5 Coder 1.5B Instruct GGUF", "qwen2.5-coder"),
        ("qwen2.5-coder-7b", "qwen2.5-coder"),
        ("Qwen3 8B", "any"),
        ("", "any"),
    ],
)
def test_a_profile_is_found_by_the_models_own_name(name: str, row: str) -> None:
    assert profile_for(name).name == row


def test_the_stock_template_is_mended_and_an_unknown_one_left_alone() -> None:
    assert mend(TEMPLATE, CODER) == MENDED
    assert mend(TEMPLATE.replace("{{\\", "{\\").replace("object>}}", "object>}"), CODER) == MENDED
    assert mend("{{ messages }}", CODER) is None


def test_a_native_request_begins_with_the_worked_example() -> None:
    body = Profiled(CHAT, CODER, fenced=False).encode(request(user("go")), images=False)
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    call = body["messages"][2]["tool_calls"][0]
    assert (call["id"], call["function"]) == (
        "example-1",
        {"name": "repl", "arguments": '{"code": "len(\\"kernel\\")"}'},
    )
    assert body["messages"][3] == {"role": "tool", "tool_call_id": "example-1", "content": "6"}
    assert body["tools"][0]["function"]["name"] == "repl"


def test_a_fenced_request_is_plain_text() -> None:
    arguments = json.dumps({"code": "x = 1\nx\n"})
    asked = request(
        user("go"),
        Message(
            role="assistant",
            parts=(
                ReasoningPart(text="hm"),
                TextPart(text="look"),
                CallPart(call_id="c", name="repl", arguments=arguments),
            ),
        ),
        Message(role="tool", call_id="c", parts=(TextPart(text="1"), ImagePart(media_type="image/png", data="aGk="))),
        Message(role="tool", call_id="d", parts=()),
        Message(role="assistant", parts=(CallPart(call_id="e", name="repl", arguments="{cut"),)),
    )
    body = Profiled(CHAT, ANY, fenced=True).encode(asked, images=False)
    assert "tools" not in body
    picture = "[image not shown, this model takes none: image/png, 1 KiB]"
    assert body["messages"] == [
        {"role": "system", "content": f"be brief\n\n{INSTRUCTIONS}"},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "look\n```python\nx = 1\nx\n```"},
        {
            "role": "user",
            "content": [{"type": "text", "text": text} for text in ("[output of the block]\n", "1", picture)],
        },
        {"role": "user", "content": "[output of the block]\n(none)"},
        {"role": "assistant", "content": "```python\n{cut\n```"},
    ]


@pytest.mark.parametrize(
    ("words", "before", "code"),
    [
        ("Let me see.\n```python\nx = 1\nprint(x)\n```\nThe output is 1.", "Let me see.", "x = 1\nprint(x)"),
        ("```py\n1\n```", None, "1"),
        ("first\n```python\n1\n```\nthen\n```python\n2\n```", "first", "1"),
        ("  ```python\n1\n  ```", None, "1"),
        ("```python\nnever closed", None, "never closed"),
        ('```python\ns = "```"\n```', None, 's = "```"'),
    ],
)
def test_the_first_block_is_the_cell_and_what_follows_it_is_dropped(words, before, code) -> None:
    reply = decode(Profiled(CHAT, ANY, fenced=True), words)
    call = CallPart(call_id="chatcmpl-x-0", name="repl", arguments=json.dumps({"code": code}))
    assert reply.parts == ((TextPart(text=before), call) if before else (call,))
    assert reply.stop == "calls"


@pytest.mark.parametrize("words", ["plain words", "in shell:\n```bash\nls\n```", "inline ```python x``` it is"])
def test_an_answer_without_a_python_block_stays_an_answer(words: str) -> None:
    reply = decode(Profiled(CHAT, ANY, fenced=True), words)
    assert (reply.parts, reply.stop) == ((TextPart(text=words),), "end")


def test_a_block_cut_by_the_token_limit_is_a_cut_call() -> None:
    reply = decode(Profiled(CHAT, ANY, fenced=True), "```python\nprin", finish="length")
    assert (reply.parts[0].type, reply.stop) == ("call", "length")


def test_without_tools_nothing_is_added_and_a_block_is_text() -> None:
    asked = request(user("write python"), tools=())
    wire = Profiled(CHAT, CODER, fenced=True)
    assert wire.encode(asked, images=False)["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "write python"},
    ]
    assert decode(wire, "```python\n1\n```", asked=asked).stop == "end"


turns = st.lists(
    st.one_of(
        st.builds(user, st.text(max_size=5)),
        st.builds(
            lambda text, code: Message(
                role="assistant",
                parts=(TextPart(text=text), CallPart(call_id="c", name="repl", arguments=json.dumps({"code": code}))),
            ),
            st.text(max_size=5),
            st.text(max_size=5),
        ),
    ),
    max_size=6,
)


@given(turns=turns, more=turns, fenced=st.booleans())
def test_a_longer_request_begins_with_the_shorter_one(turns, more, fenced) -> None:
    wire = Profiled(CHAT, CODER, fenced=fenced)
    before = wire.encode(request(*turns), images=False)["messages"]
    after = wire.encode(request(*turns, *more), images=False)["messages"]
    assert after[: len(before)] == before
