"""Which addresses are reached: those on the public internet, and what a rule allows, after each redirect anew."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import trustme

from prime.errors import ToolFailed
from prime.gate import Rules, host_rule, parsed
from prime.tools.network import CheckedTransport, host_of, public

pytestmark = pytest.mark.anyio

TRUST = ssl.create_default_context()


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("100.64.0.1", "100.100.100.200", "224.0.0.1", "255.255.255.255", "192.0.2.1"),
        *("::1", "::", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::1"),
    ],
)
def test_what_is_not_on_the_public_internet(address: str) -> None:
    assert not public(address)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_what_is(address: str) -> None:
    assert public(address)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://A.org.:80/x", "a.org"),
        ("http://u:p@a.org", "a.org"),
        ("http://[::1]:8/", "::1"),
        ("http://[", ""),
        ("nothing", ""),
    ],
)
def test_the_host_of_a_url(url: str, host: str) -> None:
    assert host_of(url) == host


@asynccontextmanager
async def serving(
    head: str = "", body: str = "here", tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[int, list[str]]]:
    """A server on the loopback that answers every request so; gives its port and the first lines of what it got."""
    got: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        got.append(request)
        status = "302 Found" if head else "200 OK"
        writer.write(
            f"HTTP/1.1 {status}\r\n{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
        )
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1], got


async def fetched(url: str, *lines: str, trust: ssl.SSLContext = TRUST) -> str:
    rules = Rules(tuple(map(parsed, lines)))
    transport = CheckedTransport(url, lambda host: host_rule(rules, "tools.fetch", host), trust)
    async with httpx.AsyncClient(transport=transport, follow_redirects=True) as client:
        response = await client.get(url)
        assert str(response.url).rstrip("/") == url or response.history
        return response.text


async def refused(url: str, *lines: str) -> str:
    with pytest.raises(ToolFailed) as caught:
        await fetched(url, *lines)
    assert caught.value.code == "denied"
    return str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "127.1", "2130706433", "0x7f.1"])
async def test_this_machine_is_not_reached_by_any_name(host: str) -> None:
    async with serving() as (port, got):
        assert "not on the public internet" in await refused(f"http://{host}:{port}")
        assert got == []


async def test_a_rule_lets_it_be_reached_by_that_name_alone() -> None:
    rule = "allow tools.fetch host=localhost"
    async with serving() as (port, got):
        assert await fetched(f"http://localhost:{port}", rule) == "here"
        assert f"Host: localhost:{port}\r\n" in got[0]
        assert "`allow tools.fetch host=127.0.0.1`" in await refused(f"http://127.0.0.1:{port}", rule)
        # to allow every host is not to allow this machine
        assert "not on the public internet" in await refused(f"http://localhost:{port}", "allow tools.fetch host=*")


async def test_a_redirect_is_checked_like_any_other_address() -> None:
    async with serving() as (inner, got):
        for target in (f"http://127.0.0.1:{inner}/", f"//127.0.0.1:{inner}/"):
            async with serving(f"Location: {target}\r\n") as (port, _):
                url, rule = f"http://localhost:{port}", "allow tools.fetch host=localhost"
                assert "not on the public internet" in await refused(url, rule)
                denied = await refused(url, rule, "deny tools.fetch host=127.0.0.1")
                assert denied == "127.0.0.1 may not be reached here (deny tools.fetch host=127.0.0.1)"
                # whoever is asked was asked about the first address only
                assert "may not be reached" in await refused(url, rule, "ask tools.fetch host=127.*")
                assert await fetched(url, rule, "allow tools.fetch host=127.0.0.1") == "here"
    assert len(got) == 2


async def test_what_was_asked_about_is_reached() -> None:
    async with serving() as (port, _):
        assert await fetched(f"http://localhost:{port}", "ask tools.fetch host=localhost") == "here"


async def test_a_certificate_is_held_against_the_name_although_an_address_is_connected_to() -> None:
    authority, tls, trust = (
        trustme.CA(),
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
        ssl.create_default_context(),
    )
    authority.issue_cert("localhost").configure_cert(tls)
    authority.configure_trust(trust)
    async with serving(tls=tls) as (port, _):
        assert await fetched(f"https://localhost:{port}", "allow tools.fetch host=localhost", trust=trust) == "here"
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await fetched(f"https://127.0.0.1:{port}", "allow tools.fetch host=127.0.0.1", trust=trust)


async def test_a_name_that_nobody_knows_is_unreachable() -> None:
    with pytest.raises(httpx.ConnectError, match=r"nowhere\.invalid"):
        await fetched("http://nowhere.invalid/")


async def test_a_proxy_of_the_users_knows_other_names_but_not_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as (port, got):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        monkeypatch.delenv("no_proxy", raising=False)
        assert await fetched("http://nowhere.invalid") == "here"
        assert got[0].startswith("GET http://nowhere.invalid/ ")
        assert "not on the public internet" in await refused("http://localhost")
        assert "may not be reached" in await refused("http://nowhere.invalid", "deny tools.fetch host=*.invalid")
