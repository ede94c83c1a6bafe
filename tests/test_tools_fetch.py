"""fetch against a real server on the loopback."""

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from prime.errors import ToolFailed
from prime.gate import Rules, host_rule, parsed
from prime.tools.fetch import BODY_LIMIT, fetch
from prime.tools.workspace import Workspace

pytestmark = pytest.mark.anyio

PAGE = """<!doctype html><html><head><title>A &amp;
 B</title><style>p {color: red}</style><script>var hidden = 1;</script></head><body>
<h1>Head</h1><p>Some <b>bold</b> text with a <a href="../x?y=1">link</a>.</p><ul><li>one</li><li>two</li></ul>
<pre>a
  b</pre><svg><text>drawing</text></svg><p hidden>unseen</p><img src="data:image/png;base64,aGk=" alt="pic">
<table><tr><th>k</th></tr><tr><td>v</td></tr></table></body></html>"""

BODIES: dict[str, tuple[bytes, str | None]] = {
    "page": (PAGE.encode(), "text/html; charset=utf-8"),
    "plain": ("naïve\n".encode(), "text/plain"),
    "latin": ("schön".encode("latin-1"), "text/plain; charset=iso-8859-1"),
    "meta": ('<meta charset="koi8-r"><p>да'.encode("koi8-r"), "text/html"),
    "unknown": ("schön".encode(), "text/plain; charset=klingon"),
    "unstated": ("Привет, мир. Это обычный русский текст.\n".encode("cp1251") * 20, "text/plain"),
    "mark": ("schön".encode("utf-16"), "text/plain"),
    "json": (json.dumps({"a": 1}).encode(), "application/vnd.api+json"),
    "bytes": (b"\x89PNG\r\n\x1a\n\0", "image/png"),
    "untyped": (b"words", None),
    "untyped-bytes": (b"\0\1", None),
    "broken": (b"not gzip", "text/plain"),
    "large": (b"\xe2\x82\xac" * (BODY_LIMIT // 3 + 10), "text/plain"),
    "empty-page": (b"", "text/html"),
}


async def body(request: Request) -> Response:
    content, media_type = BODIES[request.path_params["name"]]
    headers = {} if media_type is None else {"content-type": media_type}
    if "gzip" in request.query_params:
        headers["content-encoding"] = "gzip"
        content = content if "broken" in request.url.path else gzip.compress(content)
    return Response(content, headers=headers)


async def hop(request: Request) -> Response:
    left = request.path_params["left"]
    return RedirectResponse(f"/hop/{left - 1}" if left else "/body/plain")


async def away(request: Request) -> Response:
    return RedirectResponse("file:///etc/passwd")


async def missing(request: Request) -> Response:
    return PlainTextResponse("not here", status_code=404)


async def trickle(request: Request) -> Response:
    async def drops() -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(0.05)

    return StreamingResponse(drops(), media_type="text/plain")


async def echo(request: Request) -> Response:
    return PlainTextResponse(request.headers["user-agent"])


ROUTES = [
    Route("/body/{name}", body),
    Route("/hop/{left:int}", hop),
    Route("/away", away),
    Route("/missing", missing),
    Route("/trickle", trickle),
    Route("/agent", echo),
]


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=ROUTES), log_level="critical", timeout_graceful_shutdown=1))
    running = asyncio.create_task(server.serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"  # the socket listens already: no request can be too early
    finally:
        server.should_exit = True
        await running


@pytest.fixture
async def site() -> AsyncIterator[str]:
    async with serving() as address:
        yield address


def workspace(*lines: str) -> Workspace:
    """A workspace with rules about hosts, by default one that lets this machine be reached."""
    rules = Rules(tuple(map(parsed, lines or ("allow tools.fetch host=127.0.0.1",))))
    return Workspace(".", reach=lambda host: host_rule(rules, "tools.fetch", host))


async def get(url: str, *lines: str, **arguments: Any) -> Any:
    value = await fetch.run(workspace(*lines), {"url": url, **arguments})
    assert fetch.canonical(value) == value
    full = fetch.validate({"url": url, **arguments})
    assert fetch.for_model(full, value)
    assert "\n" not in fetch.for_human(full, value)
    return value


async def refusal(url: str, *lines: str, **arguments: Any) -> tuple[str, str]:
    with pytest.raises(ToolFailed) as caught:
        await fetch.run(workspace(*lines), {"url": url, **arguments})
    assert "\n" not in str(caught.value)
    return caught.value.code, str(caught.value)


async def test_plain_text(site: str):
    value = await get(f"{site}/body/plain")
    assert value == {
        "url": f"{site}/body/plain",
        "status": 200,
        "media_type": "text/plain",
        "title": "",
        "text": "naïve\n",
        "bytes": 7,
        "truncated": False,
    }
    assert fetch.for_model({"url": value["url"]}, value) == "naïve"
    assert fetch.for_human({}, value) == f"fetch {site}/body/plain (200, text/plain, 7 bytes)"


async def test_a_page_becomes_readable(site: str):
    value = await get(f"{site}/body/page")
    assert value["title"] == "A & B"
    text = value["text"]
    for part in [
        "# Head",
        f"Some **bold** text with a [link]({site}/x?y=1).",
        "- one\n- two",
        "a\n  b",
        "| k |",
        "pic",
    ]:
        assert part in text, text
    for part in ["color", "hidden", "drawing", "unseen", "base64"]:
        assert part not in text, text
    assert fetch.for_model({"url": value["url"]}, value).startswith("A & B\n# Head")
    assert (await get(f"{site}/body/page", raw=True))["text"] == PAGE
    assert (await get(f"{site}/body/empty-page"))["text"] == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("latin", "schön"),
        ("meta", "да\n"),
        ("unknown", "schön"),
        ("mark", "schön"),
        ("json", '{"a": 1}'),
        ("untyped", "words"),
        ("unstated", "Привет, мир. Это обычный русский текст.\n" * 20),
    ],
)
async def test_text_by_its_charset(site: str, name: str, text: str):
    assert (await get(f"{site}/body/{name}"))["text"] == text


@pytest.mark.parametrize(
    ("name", "media_type"), [("bytes", "image/png"), ("untyped-bytes", "application/octet-stream")]
)
async def test_other_media_have_no_text(site: str, name: str, media_type: str):
    value = await get(f"{site}/body/{name}")
    assert (value["text"], value["media_type"]) == ("", media_type)
    assert fetch.for_model({"url": value["url"]}, value) == f"[{value['bytes']} bytes of {media_type}, no text]"


async def test_an_error_status_is_a_value(site: str):
    value = await get(f"{site}/missing")
    assert (value["status"], value["text"]) == (404, "not here")
    assert fetch.for_model({"url": value["url"]}, value) == "[status 404]\nnot here"


async def test_redirects_are_followed_some_way(site: str):
    value = await get(f"{site}/hop/4")
    assert value["url"] == f"{site}/body/plain"
    assert fetch.for_model({"url": f"{site}/hop/4"}, value).startswith(f"{site}/body/plain\n")
    assert (await refusal(f"{site}/hop/9"))[0] == "redirects"
    assert (await refusal(f"{site}/away"))[0] == "bad_url"


async def test_a_large_body_is_cut(site: str):
    value = await get(f"{site}/body/large?gzip")
    assert (value["bytes"], value["truncated"]) == (BODY_LIMIT, True)
    assert value["text"] == "€" * (BODY_LIMIT // 3)
    assert fetch.for_model({"url": value["url"]}, value).endswith(f"[only the first {BODY_LIMIT:,} bytes]")


async def test_what_does_not_answer_says_so(site: str):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        code, message = await refusal(f"http://127.0.0.1:{unused.getsockname()[1]}/")
    assert code == "unreachable"
    assert "127.0.0.1" in message
    assert (await refusal(f"{site}/trickle", timeout_s=0.3))[0] == "timeout"
    assert (await refusal(f"{site}/body/broken?gzip"))[0] == "unreachable"
    assert (await refusal(f"{site}/agent", timeout_s=0))[0] == "bad_arguments"


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/", "no scheme", "http://", "", "http://[::1"])
async def test_only_http_addresses_are_taken(url: str):
    assert (await refusal(url))[0] == "bad_url"


async def test_it_says_who_asks(site: str):
    assert (await get(f"{site}/agent"))["text"] == "prime-repl"


async def test_fetches_overlap_and_can_be_cancelled(site: str):
    slow = asyncio.create_task(get(f"{site}/trickle"))
    assert len(await asyncio.gather(*(get(f"{site}/body/plain") for _ in range(5)))) == 5
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow
