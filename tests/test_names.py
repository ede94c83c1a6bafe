"""The difference of a namespace before and after a cell."""

from __future__ import annotations

import weakref
from typing import Any

from prime_kernel.names import Names, type_name
from prime_kernel.wire import Name


def test_new_rebound_and_removed_names_in_order() -> None:
    namespace: dict[str, Any] = {"same": object(), "rebound": [1], "removed": [2], "_own": 1, "tools": 2, "In": [3]}
    hidden = {"In": namespace["In"]}
    before = Names(namespace, hidden, {"tools"})
    namespace["rebound"] = {"a": 1}
    del namespace["removed"]
    namespace.update(new=None, _private=[4], tools=[5])
    assert before.difference(namespace) == ((Name("rebound", "dict"), Name("new", "NoneType")), ("removed",))
    namespace["In"] = "mine"
    assert before.difference(namespace)[0][1] == Name("In", "str")


def test_nothing_is_kept_alive() -> None:
    class Held:
        pass

    namespace: dict[str, Any] = {"a": Held()}
    gone = weakref.ref(namespace["a"])
    before = Names(namespace, {}, ())
    del namespace["a"]
    assert gone() is None
    assert before.difference(namespace) == ((), ("a",))


def test_odd_names_and_types_do_no_harm() -> None:
    class Meta(type):
        @property
        def __module__(cls) -> str:  # type: ignore[override]
            raise RuntimeError

    before = Names({}, {}, ())
    assert before.difference({1: 2, "odd": Meta("Odd", (), {})()}) == ((Name("odd", "test_names.Odd"),), ())  # type: ignore[dict-item]


def test_type_names_are_qualified_but_for_builtins() -> None:
    assert [type_name(v) for v in (1, Name("a", "b"), len)] == [
        "int",
        "prime_kernel.wire.Name",
        "builtin_function_or_method",
    ]
