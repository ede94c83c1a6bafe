"""Which hosts tools reach: requests go to addresses that were checked, after each redirect anew.

What stands in the own network or on this machine answers whoever can reach it, as does the service that gives cloud
machines their credentials. Such addresses are refused unless a rule allows the host. A name is looked up once, and the
address that was checked is the one that is connected to.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from prime.errors import ToolFailed
from prime.gate import Rule

#: Returns the rule about a host, None when there is none.
Reach = Callable[[str], Rule | None]

#: IPv6 addresses that stand for an IPv4 address in their last 32 bits (RFC 6052).
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")


def host_of(url: str) -> str:
    """Return the host of a URL, as rules name it; empty when there is none."""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:  # whoever uses the URL says what is wrong with it
        return ""


class CheckedTransport(httpx.AsyncBaseTransport):
    """Sends requests for ``url``, and where that leads to, to hosts that may be reached.

    Raises :class:`ToolFailed`: ``denied``.
    """

    def __init__(self, url: str, reach: Reach, trust: ssl.SSLContext) -> None:
        self._asked = host_of(url)
        self._reach = reach
        self._trust = trust
        self._transports: dict[str | None, httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host.rstrip(".")
        if request.url.scheme not in ("http", "https") or not host:
            raise httpx.UnsupportedProtocol("only http and https, with a host", request=request)
        private = self._private(host)
        proxy = _proxy(request.url)
        try:
            addresses = await _addresses(host, request.url.port or {"https": 443}.get(request.url.scheme, 80))
        except OSError as error:
            if proxy is None:
                raise httpx.ConnectError(f"{host}: {error.strerror or error}", request=request) from None
            addresses = []  # only the proxy knows it
        for address in addresses:
            if not private and not public(address):
                raise ToolFailed(
                    "denied",
                    f"{host} is at {address}, which is not on the public internet; the rule "
                    f"`allow tools.fetch host={host}` would let it be reached",
                )
        if proxy is not None:
            return await self._transport(proxy).handle_async_request(request)
        return await self._connected(request, host, addresses)

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()

    def _transport(self, proxy: str | None) -> httpx.AsyncHTTPTransport:
        if proxy not in self._transports:
            # a connection to an address may have been trusted under another name: each request gets its own
            fresh = httpx.Limits(max_keepalive_connections=0)
            self._transports[proxy] = httpx.AsyncHTTPTransport(verify=self._trust, limits=fresh, proxy=proxy)
        return self._transports[proxy]

    def _private(self, host: str) -> bool:
        """Check that ``host`` may be reached, and return whether it may be at an address of the own network."""
        rule = self._reach(host)
        if rule is None:
            return False
        # what is asked about was asked under this name, before the call began
        if rule.effect == "deny" or (rule.effect == "ask" and host != self._asked):
            raise ToolFailed("denied", f"{host} may not be reached here ({rule})")
        return rule.host != "*"

    async def _connected(self, request: httpx.Request, host: str, addresses: list[str]) -> httpx.Response:
        failure: httpx.ConnectError | None = None
        for address in addresses:
            attempt = httpx.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,  # which have the host by its name
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                return await self._transport(None).handle_async_request(attempt)
            except httpx.ConnectError as error:
                failure = failure or error
        assert failure is not None
        raise failure


def public(address: str) -> bool:
    """Tell whether an address is on the public internet."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found in _TRANSLATED:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFF_FFFF)
        if inner is not None:
            found = inner
    return found.is_global and not found.is_multicast


async def _addresses(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [*dict.fromkeys(str(address[0]) for *_, address in found)]


def _proxy(url: httpx.URL) -> str | None:
    """Return the proxy that the user has set for a URL."""
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    return proxy if proxy and not proxy_bypass(url.host) else None
