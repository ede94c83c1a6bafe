import asyncio
import json

import pytest

from prime.errors import ConfigError, ProviderError
from prime.messages import CallPart, Delta, Header, Message, ReasoningPart, Request, TextPart, Usage
from prime.providers.script import read_script
from prime.providers.scripted import ScriptedProvider

pytestmark = pytest.mark.anyio


def request(*texts: str, system: str = "") -> Request:
    messages = tuple(Message(role="user", parts=(TextPart(text=text),)) for text in texts)
    return Request(header=Header(model="scripted/test", system=system, tools=()), messages=messages)


def ignore(delta: Delta) -> None:
    del delta


async def test_entries_answer_requests_in_order_and_the_end_is_an_error() -> None:
    provider = ScriptedProvider([{"text": "one"}, {"text": "two", "repeat": 2}])
    replies = [await provider.reply(request("go"), ignore) for _ in range(3)]
    assert [reply.parts for reply in replies] == [(TextPart(text=word),) for word in ("one", "two", "two")]
    assert all(reply.stop == "end" for reply in replies)
    with pytest.raises(ProviderError, match="the script has 3 replies and this is request 4") as caught:
        await provider.reply(request("go"), ignore)
    assert (caught.value.code, caught.value.retryable) == ("bad_request", False)
    assert len(provider.requests) == 4


async def test_code_becomes_repl_calls_with_steady_ids() -> None:
    provider = ScriptedProvider(
        [{"text": "look", "code": ["a = 1", "a"], "call": {"name": "shell", "arguments": '{"cut'}}, {"code": "a"}]
    )
    first = await provider.reply(request("go"), ignore)
    assert first.stop == "calls"
    assert first.parts[1:] == (
        CallPart(call_id="call-1-1", name="repl", arguments='{"code": "a = 1"}'),
        CallPart(call_id="call-1-2", name="repl", arguments='{"code": "a"}'),
        CallPart(call_id="call-1-3", name="shell", arguments='{"cut'),
    )
    second = await provider.reply(request("go"), ignore)
    assert [part.call_id for part in second.parts if isinstance(part, CallPart)] == ["call-2-1"]


async def test_a_script_that_starts_again_in_an_old_session_does_not_repeat_call_ids() -> None:
    old = Message(role="assistant", parts=(CallPart(call_id="call-7-1", name="repl", arguments="{}"),))
    resumed = Request(header=request("").header, messages=(*request("go").messages, old))
    reply = await ScriptedProvider([{"code": "1"}]).reply(resumed, ignore)
    assert reply.parts == (CallPart(call_id="call-8-1", name="repl", arguments='{"code": "1"}'),)


async def test_deltas_are_the_reply_in_pieces() -> None:
    entry = {"reasoning": "thinking", "text": "hello world", "code": "print(1)", "chunk": 3}
    deltas: list[Delta] = []
    reply = await ScriptedProvider([entry]).reply(request("go"), deltas.append)
    assert max(len(delta.text) for delta in deltas) == 3
    joined = {kind: "".join(d.text for d in deltas if d.kind == kind) for kind in ("reasoning", "text", "call")}
    assert joined == {"reasoning": "thinking", "text": "hello world", "call": '{"code": "print(1)"}'}
    assert reply.parts[0] == ReasoningPart(text="thinking")


async def test_usage_is_the_given_one_or_an_estimate_from_characters() -> None:
    provider = ScriptedProvider([{"text": "x", "usage": {"input": 5, "cache_read": 7, "output": 2}}, {"text": "12345"}])
    assert (await provider.reply(request("go"), ignore)).usage == Usage(input=5, cache_read=7, output=2)
    # "abcdefgh", the system text and "[]" for no tools are 14 characters: 4 tokens.
    assert (await provider.reply(request("abcdefgh", system="1234"), ignore)).usage == Usage(input=4, output=2)


async def test_expectations_look_at_the_messages_after_the_last_reply() -> None:
    old = Message(role="assistant", parts=(TextPart(text="earlier"),))
    header = request("").header
    asked = Request(header=header, messages=(*request("old text").messages, old, *request("value 42").messages))
    provider = ScriptedProvider(
        [{"expect": ["value", {"regex": r"\b\d+$"}]}, {"expect": "old text"}], model="scripted/s"
    )
    await provider.reply(asked, ignore)
    with pytest.raises(ProviderError, match=r"^scripted/s: reply 2 expects 'old text' .* end in 'value 42'$"):
        await provider.reply(asked, ignore)


async def test_a_scripted_error_comes_after_what_was_streamed_and_only_once() -> None:
    error = {"code": "rate_limit", "retry_after_s": 1.5, "status": 429}
    provider = ScriptedProvider([{"text": "half", "error": error}, {"text": "whole"}])
    deltas: list[Delta] = []
    with pytest.raises(ProviderError) as caught:
        await provider.reply(request("go"), deltas.append)
    assert "".join(delta.text for delta in deltas) == "half"
    assert (caught.value.code, caught.value.retryable) == ("rate_limit", True)
    assert (caught.value.retry_after_s, caught.value.status) == (1.5, 429)
    assert (await provider.reply(request("go"), ignore)).parts == (TextPart(text="whole"),)


async def test_a_hanging_reply_ends_by_cancellation() -> None:
    provider = ScriptedProvider([{"text": "partial", "hang": True}])
    heard = asyncio.Event()
    task = asyncio.create_task(provider.reply(request("go"), lambda delta: heard.set()))
    await heard.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_function_may_write_the_replies() -> None:
    provider = ScriptedProvider(lambda asked: {"text": f"{len(asked.messages)} messages"})
    assert (await provider.reply(request("a", "b"), ignore)).parts == (TextPart(text="2 messages"),)


async def test_a_yaml_script_and_a_json_script_say_the_same(tmp_path) -> None:
    replies = [{"text": "hi", "code": "1 + 1"}, {"text": "done"}]
    (tmp_path / "a.json").write_text(json.dumps({"context_window": 1000, "images": True, "replies": replies}))
    (tmp_path / "a.yaml").write_text(
        "context_window: 1000\nimages: true\nreplies:\n- text: hi\n  code: |-\n    1 + 1\n- text: done\n"
    )
    assert read_script(tmp_path / "a.json") == read_script(tmp_path / "a.yaml")
    provider = ScriptedProvider.read(tmp_path / "a.yaml")
    assert (provider.model, provider.context_window, provider.images) == (f"scripted/{tmp_path}/a.yaml", 1000, True)
    assert (await provider.reply(request("go"), ignore)).stop == "calls"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- text: 5", "replies[0].text: Input should be a valid string"),
        ("- text: a\n- txt: b", "replies[1].txt: unknown key; did you mean 'text'?"),
        ("- error: {code: nope}", "replies[0].error.code: no such code; one of auth, bad_request"),
        ("- expect: {regex: '('}", "not a regular expression"),
        ("context_windw: 5\nreplies: []", "context_windw: unknown key; did you mean 'context_window'?"),
        ("context_window: 5", "replies: Field required"),
        ("- text: [", "line 1, column 10: "),
        ("hello", "expected a mapping, found str"),
    ],
)
def test_a_wrong_script_is_refused_in_one_line_naming_the_place(tmp_path, text: str, message: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        ScriptedProvider.read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_script_file_says_so(tmp_path) -> None:
    with pytest.raises(ConfigError, match="cannot read this script: No such file"):
        ScriptedProvider.read(tmp_path / "none.yaml")
