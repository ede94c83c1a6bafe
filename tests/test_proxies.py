"""Namespaces built from bindings. Their calls are tested in real kernels (test_repl_calls)."""

from __future__ import annotations

import inspect
import socket
from collections.abc import Iterator

import pytest
from prime_kernel.bridge import Bridge
from prime_kernel.proxies import namespaces
from prime_kernel.wire import Binding, Parameter


@pytest.fixture
def bridge() -> Iterator[Bridge]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Bridge(ours, lambda: None)


def signature_of(bridge: Bridge, *parameters: Parameter) -> str:
    built = namespaces((Binding("tools.f", parameters, "Call", "Do."),), bridge)
    return str(inspect.signature(built["tools"].f))


def test_signatures_read_like_source(bridge: Bridge) -> None:
    assert (
        signature_of(
            bridge,
            Parameter("a", "list[str] | None", None, False),
            Parameter("b", "str", "'x'", False),
            Parameter("c", "int", "3", True),
        )
        == "(a: list[str] | None, b: str = 'x', *, c: int = 3) -> Call"
    )


def test_a_required_parameter_behind_an_optional_one_is_keyword_only(bridge: Bridge) -> None:
    assert (
        signature_of(
            bridge, Parameter("a", "", "1", False), Parameter("b", "", None, False), Parameter("c", "", None, False)
        )
        == "(a=1, *, b, c) -> Call"
    )


def test_namespaces_follow_the_targets(bridge: Bridge) -> None:
    built = namespaces(tuple(Binding(t, (), "", t) for t in ("tools.a", "notes.read", "tools.b")), bridge)
    assert {name: dir(space) for name, space in built.items()} == {"tools": ["a", "b"], "notes": ["read"]}
    assert built["tools"].a.__doc__ == "tools.a"
    assert "tools.a()" in (built["tools"].__doc__ or "")
    with pytest.raises(AttributeError, match="notes has no 'raed'; did you mean notes"):
        _ = built["notes"].raed
    with pytest.raises(AttributeError, match="tools has no 'zzz'; it has a, b"):
        _ = built["tools"].zzz
