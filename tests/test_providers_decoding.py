"""What comes back: usage, errors and odd servers, as pure functions. Streams proper are in test_providers_http."""

import json
from datetime import UTC, datetime

import pytest

from prime.errors import ProviderError
from prime.messages import CallPart, Reply, TextPart, Usage
from prime.providers import anthropic
from prime.providers.chat import ChatDecoder, usage_of
from prime.providers.dialects import DIALECTS
from prime.providers.failures import from_status, retry_after

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("dialect", "usage", "expected"),
    [
        (
            "openai",
            {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "prompt_tokens_details": {"cached_tokens": 64},
                "completion_tokens_details": {"reasoning_tokens": 12},
            },
            Usage(input=36, cache_read=64, output=20, reasoning=12),
        ),
        (
            "deepseek",
            {
                "prompt_tokens": 100,
                "completion_tokens": 2,
                "prompt_cache_hit_tokens": 64,
                "prompt_cache_miss_tokens": 36,
            },
            Usage(input=36, cache_read=64, output=2),
        ),
        (
            "openrouter",
            {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 50, "cache_write_tokens": 30}},
            Usage(input=20, cache_read=50, cache_write=30),
        ),
        ("ollama", {"prompt_tokens": 9, "completion_tokens": 1}, Usage(input=9, output=1)),
        (
            "compatible",
            {"prompt_tokens": 9, "prompt_tokens_details": None, "prompt_cache_hit_tokens": 4},
            Usage(input=5, cache_read=4),
        ),
    ],
)
def test_chat_usage_comes_in_disjoint_buckets(dialect, usage, expected) -> None:
    assert usage_of(usage, DIALECTS[dialect]) == expected


def test_messages_usage_comes_in_disjoint_buckets() -> None:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 7, "output_tokens": 5}
    assert anthropic.usage_of(usage) == Usage(input=3, cache_read=90, cache_write=7, output=5)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"message": "This model's maximum context length is 8192 tokens.", "code": "context_length_exceeded"}),
        (400, {"message": "Your input exceeds the context window of this model."}),
        (400, {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}),
        (413, {"type": "request_too_large", "message": "Request exceeds the maximum size"}),
        (
            400,
            {
                "type": "invalid_request_error",
                "message": "This model's maximum context length is 65536 tokens. However",
            },
        ),
        (400, {"type": "exceed_context_size_error", "message": "the request exceeds the available context size"}),
        (500, {"type": "server_error", "message": "Context size has been exceeded."}),
        (400, {"message": "The decoder prompt (length 9) is longer than the maximum model length of 8."}),
        (
            400,
            {"message": "Provider returned error", "metadata": {"raw": "This endpoint's maximum context length is 9"}},
        ),
        (400, {"message": "the input length exceeds the context length"}),
    ],
)
def test_each_servers_words_for_a_too_long_prompt_are_known(status, error) -> None:
    failed = from_status(status, json.dumps({"error": error}), {}, who="p/m", now=NOW)
    assert (failed.code, failed.retryable, failed.status) == ("overflow", False, status)


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, '{"error": {"message": "unknown field \'foo\'"}}', "bad_request"),
        (400, '{"error": {"message": "max_tokens is too large"}}', "bad_request"),
        (402, '{"error": {"message": "Insufficient Balance"}}', "bad_request"),
        (429, '{"error": {"message": "no credit", "code": "insufficient_quota"}}', "auth"),
        (429, '{"error": {"message": "the maximum context length per minute"}}', "rate_limit"),
        (500, '{"error": {"message": "output does not match the expected peg-native format"}}', "malformed"),
        (502, "<html>bad gateway</html>", "server"),
        (422, '{"detail": [{"msg": "bad"}]}', "bad_request"),
    ],
)
def test_other_refusals_keep_their_code_and_words(status, body, code) -> None:
    failed = from_status(status, body, {}, who="p/m", now=NOW)
    assert failed.code == code
    assert str(failed).startswith(f"p/m: HTTP {status}: ")
    assert len(str(failed)) > len(f"p/m: HTTP {status}: ")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Mon, 30 Nov 2026 11:59:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
    ],
)
def test_retry_after_is_read_in_every_form(headers, seconds) -> None:
    assert retry_after(headers, NOW) == seconds


def decoded(*choices: dict, **extra: object) -> Reply:
    decoder = ChatDecoder(DIALECTS["compatible"], "p/m")
    for choice in choices:
        decoder.feed(json.dumps({"choices": [choice], **extra}))
    return decoder.reply()


def test_calls_without_index_or_id_are_kept_apart_and_get_ids() -> None:
    piece = {"function": {"name": "repl", "arguments": {"code": "1"}}}
    reply = decoded({"delta": {"tool_calls": [piece, piece]}, "finish_reason": "stop"}, id="gen:9")
    assert reply.parts == tuple(
        CallPart(call_id=f"gen-9-{number}", name="repl", arguments='{"code": "1"}') for number in (0, 1)
    )
    assert (reply.stop, reply.usage) == ("calls", None)


def test_arguments_that_are_neither_text_nor_an_object_count_as_none() -> None:
    fragments = [{"index": 0, "id": "x", "function": {"name": "a", "arguments": wrong}} for wrong in (None, 5, ["b"])]
    reply = decoded({"delta": {"tool_calls": fragments}, "finish_reason": "tool_calls"})
    assert reply.parts == (CallPart(call_id="x", name="a", arguments=""),)


def test_interleaved_calls_are_put_together_by_index() -> None:
    def piece(index: int, arguments: str, **more: str) -> dict:
        return {"index": index, "function": {"arguments": arguments, **more}}

    reply = decoded(
        {"delta": {"tool_calls": [piece(0, "{", name="a") | {"id": "x"}, piece(1, "[", name="b") | {"id": "y"}]}},
        {"delta": {"tool_calls": [piece(1, "]"), piece(0, "}")]}, "finish_reason": "tool_calls"},
    )
    assert [(p.call_id, p.name, p.arguments) for p in reply.parts] == [("x", "a", "{}"), ("y", "b", "[]")]


def test_a_finish_reason_without_an_end_mark_is_enough_and_an_end_mark_alone_too() -> None:
    assert decoded({"delta": {"content": "hi"}, "finish_reason": "stop"}).parts == (TextPart(text="hi"),)
    decoder = ChatDecoder(DIALECTS["compatible"], "p/m")
    decoder.feed('{"choices": [{"delta": {"content": "hi"}}]}')
    decoder.feed("[DONE]")
    assert decoder.reply().stop == "end"


@pytest.mark.parametrize(
    "event", ['{"choices": [5]}', '{"choices": [{"delta": {"tool_calls": [1]}}]}', "[1]", '{"choices": 5}']
)
def test_json_of_the_wrong_shape_is_malformed(event) -> None:
    with pytest.raises(ProviderError) as caught:
        ChatDecoder(DIALECTS["compatible"], "p/m").feed(event)
    assert caught.value.code == "malformed"


@pytest.mark.parametrize(
    "event",
    [
        '{"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "x"}}',
        '{"type": "message_start"}',
    ],
)
def test_a_messages_event_of_the_wrong_shape_is_malformed(event) -> None:
    with pytest.raises(ProviderError) as caught:
        anthropic.MessagesDecoder("p/m").feed(event)
    assert caught.value.code == "malformed"


def test_unknown_messages_events_and_blocks_are_skipped() -> None:
    decoder = anthropic.MessagesDecoder("p/m")
    for event in (
        {"type": "something_new", "index": 0},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "server_thing"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "a"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "b"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ):
        decoder.feed(json.dumps(event))
    assert decoder.reply() == Reply(parts=(TextPart(text="ab"),), stop="end", model="", usage=Usage(output=2))
