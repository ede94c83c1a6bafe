"""``tools.fetch``: a page or file of the web as text."""

from __future__ import annotations

import asyncio
import codecs
import functools
import html
import re
import ssl
from typing import Annotated, Any

import httpx
from pydantic import Field

from prime.errors import ToolFailed
from prime.messages import Frozen
from prime.tools.base import tool
from prime.tools.network import CheckedTransport, host_of
from prime.tools.text import guess, is_binary, mark_of
from prime.tools.threads import in_thread
from prime.tools.workspace import Workspace

#: Bytes of a body, decompressed; the rest is not fetched.
BODY_LIMIT = 4 * 1024 * 1024
MAX_REDIRECTS = 5
_HEADERS = {
    "User-Agent": "prime-repl",
    "Accept": "text/html,text/markdown,text/plain,application/json;q=0.9,application/xml;q=0.9,*/*;q=0.5",
}
_TEXT = re.compile(r"text/.*|(application|image)/(.*\+)?(json|xml|yaml|toml|x-ndjson|javascript|x-sh|sql|x-yaml)")
_META_CHARSET = re.compile(rb"<meta[^>]+charset=[\"']?([\w-]+)", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_HTML = ("text/html", "application/xhtml+xml")


class Fetched(Frozen):
    """What a server answered. ``url`` is the last one after redirects; ``media_type`` is without parameters.

    ``text`` is empty for media that are not text, and Markdown for HTML unless raw was asked for. ``truncated``: the
    body goes on beyond ``bytes``, which is how much of it was read.
    """

    url: str
    status: int
    media_type: str
    title: str
    text: str
    bytes: int
    truncated: bool


def _for_model(arguments: dict[str, Any], value: Any) -> str:
    head = [value["title"]] if value["title"] else []
    if value["url"] != arguments.get("url"):
        head.append(value["url"])
    if value["status"] != 200:
        head.append(f"[status {value['status']}]")
    if not value["text"]:
        head.append(f"[{value['bytes']:,} bytes of {value['media_type']}, no text]")
    more = [f"[only the first {value['bytes']:,} bytes]"] if value["truncated"] else []
    return "\n".join([*head, value["text"], *more]).strip("\n")


def _for_human(arguments: dict[str, Any], value: Any) -> str:
    return f"fetch {value['url']} ({value['status']}, {value['media_type']}, {value['bytes']:,} bytes)"


@tool(parallel=True, effects=False, for_model=_for_model, for_human=_for_human)
async def fetch(
    workspace: Workspace, url: str, timeout_s: Annotated[float, Field(gt=0, le=600)] = 30, raw: bool = False
) -> Fetched:
    """Get a page or file over http or https.

    HTML comes as Markdown with absolute links, or as it is with raw=True. An error status is a value, not an error. At
    most 4 MiB are read.
    """
    transport = CheckedTransport(url, workspace.reach, _trust())
    try:
        if httpx.URL(url).host.rstrip(".") != host_of(url):  # rules were held against that one
            raise httpx.InvalidURL("its host can be read in two ways")
        async with (
            asyncio.timeout(timeout_s),  # httpx bounds each read only, and a server may trickle
            httpx.AsyncClient(
                headers=_HEADERS,
                follow_redirects=True,
                max_redirects=MAX_REDIRECTS,
                timeout=None,
                transport=transport,
            ) as client,
            client.stream("GET", url) as response,
        ):
            body, truncated = await _body(response)
    except TimeoutError:
        raise ToolFailed("timeout", f"{url} did not answer in full within {timeout_s:g} s") from None
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise ToolFailed("bad_url", f"{url!r:.200} does not lead to an http or https address: {error}") from None
    except httpx.TooManyRedirects:
        raise ToolFailed("redirects", f"{url} redirects more than {MAX_REDIRECTS} times") from None
    except httpx.HTTPError as error:
        raise ToolFailed("unreachable", f"{url}: {str(error) or type(error).__name__}") from None
    media_type = _media_type(response, body)
    text = _text(body, response.charset_encoding, url) if _TEXT.fullmatch(media_type) else ""
    title = ""
    if media_type in _HTML and not raw:
        title = _title(text)
        text = await in_thread(functools.partial(_readable, text, str(response.url)))
    return Fetched(
        url=str(response.url),
        status=response.status_code,
        media_type=media_type,
        title=title,
        text=text,
        bytes=len(body),
        truncated=truncated,
    )


@functools.cache
def _trust() -> ssl.SSLContext:
    return httpx.create_ssl_context()  # reading the certificates takes some 20 ms


async def _body(response: httpx.Response) -> tuple[bytes, bool]:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > BODY_LIMIT:
            return bytes(body[:BODY_LIMIT]), True
    return bytes(body), False


def _media_type(response: httpx.Response, body: bytes) -> str:
    stated = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return stated or ("application/octet-stream" if is_binary(body) else "text/plain")


def _text(body: bytes, charset: str | None, url: str) -> str:
    """Return the text of a body by its byte order mark, the charset stated for it or in it, or what it looks like."""
    mark, codec = mark_of(body)
    meta = _META_CHARSET.search(body[:1024])
    for candidate in (codec, charset, meta and meta[1].decode()):
        if candidate is not None:
            try:
                return body[len(mark) :].decode(candidate, errors="replace")
            except LookupError:
                continue  # a charset nobody knows is as good as none
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(body)  # a body that was cut may end within a character
    except UnicodeDecodeError as error:
        return body.decode(guess(body, error.start, url), errors="replace")


def _title(page: str) -> str:
    found = _TITLE.search(page)
    return " ".join(html.unescape(found[1]).split()) if found else ""


def _readable(page: str, url: str) -> str:
    # 4 MB that a session without web pages need not hold
    from html_to_markdown import ConversionError, ConversionOptions, InlineDataMedia, convert  # noqa: PLC0415

    options = ConversionOptions(
        extract_metadata=False,
        exclude_selectors=["svg", "noscript", "iframe"],
        inline_data_media=InlineDataMedia.ALT_TEXT_ONLY,
        base_url=url,
    )
    try:
        return convert(page, options).content or ""
    except ConversionError as error:
        raise ToolFailed("unreadable", f"{url}: its HTML cannot be converted ({error}); pass raw=True") from None
