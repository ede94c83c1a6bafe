"""Both dialects against a real server, and every fault a server can have."""

import asyncio
import json
import socket

import pytest
from servers import Answer, ModelServer

from prime.errors import ProviderError
from prime.messages import CallPart, Delta, Header, Message, ReasoningPart, Reply, Request, TextPart, Usage
from prime.providers.anthropic import Messages
from prime.providers.chat import Chat
from prime.providers.dialects import DIALECTS
from prime.providers.http import Endpoint, HttpProvider, Patience
from prime.providers.registry import learn

pytestmark = pytest.mark.anyio

ASKED = Request(
    header=Header(model="test/model", system="be brief", tools=()),
    messages=(Message(role="user", parts=(TextPart(text="go"),)),),
)
CALLS = (("id-1", "repl", '{"code": "print(1)"}'), ("id-2", "repl", '{"code": "print(2)"}'))


@pytest.fixture(params=["chat", "messages"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def provider(server: ModelServer, dialect: str, *, idle_s: float = 20.0, loopback: bool = True) -> HttpProvider:
    who = f"test/{dialect}"
    if dialect == "chat":
        wire, base_url = Chat("served", DIALECTS["openai"], who), server.chat_url
    else:
        wire, base_url = Messages("served", who), server.url
    return HttpProvider(who, wire, Endpoint(base_url, "secret", loopback=loopback), patience=Patience(idle_s=idle_s))


async def ask(server: ModelServer, dialect: str, *, idle_s: float = 20.0) -> tuple[Reply, list[Delta]]:
    deltas: list[Delta] = []
    model = provider(server, dialect, idle_s=idle_s)
    try:
        return await model.reply(ASKED, deltas.append), deltas
    finally:
        await model.close()


async def fail(answer: Answer, dialect: str, *, idle_s: float = 20.0) -> ProviderError:
    with ModelServer([answer]) as server, pytest.raises(ProviderError) as caught:
        await ask(server, dialect, idle_s=idle_s)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"test/{dialect}: ")
    assert len(server.bodies) == 1  # A provider never tries again by itself.
    return caught.value


async def test_a_reply_streams_and_comes_back_whole(dialect: str) -> None:
    answer = Answer(reasoning="think first", text="two cells follow", calls=CALLS, chunk=5)
    with ModelServer([answer]) as server:
        reply, deltas = await ask(server, dialect)
    signature = "signed" if dialect == "messages" else None
    assert reply == Reply(
        parts=(
            ReasoningPart(text="think first", signature=signature),
            TextPart(text="two cells follow"),
            *(CallPart(call_id=call_id, name=name, arguments=arguments) for call_id, name, arguments in CALLS),
        ),
        stop="calls",
        model="served-model",
        usage=Usage(input=11, output=7),
    )
    joined = {kind: "".join(d.text for d in deltas if d.kind == kind) for kind in ("reasoning", "text", "call")}
    assert joined == {
        "reasoning": "think first",
        "text": "two cells follow",
        "call": "".join(arguments for _, _, arguments in CALLS),
    }
    assert not server.gone.is_set()


async def test_keys_go_where_the_dialect_wants_them() -> None:
    with ModelServer([Answer(text="a"), Answer(text="b")]) as server:
        await ask(server, "chat")
        await ask(server, "messages")
    assert server.headers[0]["authorization"] == "Bearer secret"
    assert "x-api-key" not in server.headers[0]
    assert (server.headers[1]["x-api-key"], server.headers[1]["anthropic-version"]) == ("secret", "2023-06-01")
    assert "secret" not in repr(Endpoint("http://h", "secret"))


@pytest.mark.parametrize("loopback", [False, True])
async def test_the_connection_to_a_distant_server_is_used_again(dialect: str, loopback: bool) -> None:
    with ModelServer([Answer(text="a"), Answer(text="b")]) as server:
        model = provider(server, dialect, loopback=loopback)
        await model.reply(ASKED, lambda delta: None)
        await model.reply(ASKED, lambda delta: None)
        await model.close()
    assert (server.ports[0] == server.ports[1]) is not loopback


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (401, "auth", False),
        (403, "auth", False),
        (404, "bad_request", False),
        (408, "timeout", True),
        (409, "server", True),
        (413, "overflow", False),
        (429, "rate_limit", True),
        (500, "server", True),
        (503, "server", True),
        (529, "server", True),
    ],
)
async def test_a_status_becomes_a_code(dialect: str, status: int, code: str, retryable: bool) -> None:
    body = json.dumps({"error": {"message": "the server's\nown words"}})
    error = await fail(Answer(status=status, body=body), dialect)
    assert (error.code, error.retryable, error.status) == (code, retryable, status)
    assert f"HTTP {status}: the server's own words" in str(error)


async def test_retry_after_is_kept(dialect: str) -> None:
    error = await fail(Answer(status=429, headers={"Retry-After": "2.5"}), dialect)
    assert error.retry_after_s == 2.5


async def test_a_broken_connection_is_a_transport_failure(dialect: str) -> None:
    error = await fail(Answer(text="half of this", fault="reset"), dialect)
    assert (error.code, error.retryable) == ("transport", True)


async def test_an_early_end_is_a_transport_failure_even_with_half_a_call(dialect: str) -> None:
    error = await fail(Answer(calls=CALLS, fault="end"), dialect)
    assert (error.code, error.retryable) == ("transport", True)
    assert "ended before the reply was complete" in str(error)


@pytest.mark.parametrize("fault", ["malformed", "not_sse"])
async def test_bytes_that_are_not_the_protocol_are_malformed(dialect: str, fault: str) -> None:
    error = await fail(Answer(text="half of this", fault=fault, body="{}"), dialect)
    assert (error.code, error.retryable) == ("malformed", True)


async def test_a_silent_stream_is_a_timeout(dialect: str) -> None:
    error = await fail(Answer(text="half of this", fault="silence"), dialect, idle_s=0.2)
    assert (error.code, error.retryable) == ("timeout", True)
    assert "silent for 0.2 s" in str(error)


async def test_a_slow_stream_is_not_a_silent_one(dialect: str) -> None:
    with ModelServer([Answer(text="abcdef", chunk=1, delay_s=0.1)]) as server:
        reply, _ = await ask(server, dialect, idle_s=0.6)
    assert reply.parts == (TextPart(text="abcdef"),)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, "server"),
        ({"type": "rate_limit_error", "message": "slow down"}, "rate_limit"),
        ({"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"}, "overflow"),
        ({"code": 429, "message": "slow down"}, "rate_limit"),
        ({"code": 502, "message": "upstream"}, "server"),
        ({"code": "context_length_exceeded", "message": "x"}, "overflow"),
    ],
)
async def test_an_error_inside_the_stream_becomes_a_code(dialect: str, error: dict, code: str) -> None:
    assert (await fail(Answer(text="half of this", fault="error_event", error=error), dialect)).code == code


async def test_an_empty_reply_is_an_error_but_a_withheld_or_cut_one_is_a_value(dialect: str) -> None:
    error = await fail(Answer(text=""), dialect)
    assert (error.code, error.retryable) == ("empty", True)
    withheld, cut = ("content_filter", "length") if dialect == "chat" else ("refusal", "max_tokens")
    for word, stop in ((withheld, "filter"), (cut, "length")):
        with ModelServer([Answer(stop=word)]) as server:
            reply, _ = await ask(server, dialect)
        assert (reply.stop, reply.parts) == (stop, ())


async def test_a_call_cut_by_the_token_limit_is_still_decoded(dialect: str) -> None:
    stop = "length" if dialect == "chat" else "max_tokens"
    with ModelServer([Answer(calls=(("id-1", "repl", '{"code": "prin'),), stop=stop)]) as server:
        reply, _ = await ask(server, dialect)
    assert reply.stop == "length"
    assert reply.parts == (CallPart(call_id="id-1", name="repl", arguments='{"code": "prin'),)


async def test_cancelling_closes_the_connection(dialect: str) -> None:
    with ModelServer([Answer(text="half of this", fault="silence")]) as server:
        model = provider(server, dialect)
        heard = asyncio.Event()
        task = asyncio.create_task(model.reply(ASKED, lambda delta: heard.set()))
        await heard.wait()
        assert not server.gone.is_set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(server.gone.wait, 5)
        await model.close()


async def test_a_reply_is_whole_at_its_end_mark_whatever_the_connection_does(dialect: str) -> None:
    with ModelServer([Answer(text="all of it", fault="linger")]) as server:
        reply, _ = await ask(server, dialect, idle_s=5.0)
        assert reply.parts == (TextPart(text="all of it"),)
        assert await asyncio.to_thread(server.gone.wait, 5)


async def test_no_proxy_stands_before_a_server_on_this_machine(dialect: str, monkeypatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, nobody)
    with ModelServer([Answer(text="direct")]) as server:
        reply, _ = await ask(server, dialect)
    assert reply.parts == (TextPart(text="direct"),)


async def test_nobody_at_the_address_is_a_transport_failure(dialect: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    model = HttpProvider("test/m", Messages("m", "test/m"), Endpoint(f"http://127.0.0.1:{port}", loopback=True))
    with pytest.raises(ProviderError, match="cannot connect to") as caught:
        await model.reply(ASKED, lambda delta: None)
    assert (caught.value.code, caught.value.retryable) == ("transport", True)
    await model.close()


@pytest.mark.parametrize(
    ("models", "props", "window"),
    [
        (None, {"default_generation_settings": {"n_ctx": 4096}}, 4096),
        ({"data": [{"id": "other", "max_model_len": 1}, {"id": "org/served", "max_model_len": 32768}]}, None, 32768),
        (None, None, None),
    ],
)
@pytest.mark.parametrize("early", [False, True])
async def test_the_window_of_a_self_hosted_model_is_learned(models, props, window, early) -> None:
    with ModelServer([Answer(text="a")], models=models, props=props) as server:
        wire = Chat("org/served", DIALECTS["compatible"], "compatible/org/served")
        endpoint = Endpoint(server.chat_url, loopback=True, self_hosted=True)
        model = HttpProvider("compatible/org/served", wire, endpoint)
        if early:
            await learn(model)
            assert model.context_window == window
        await model.reply(ASKED, lambda delta: None)
        await model.close()
    assert model.context_window == window
    assert len(server.bodies) == 1
