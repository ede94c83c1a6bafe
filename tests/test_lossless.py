import copy
import dataclasses
import json
import math
from collections import OrderedDict
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prime_kernel.lossless import MAX_DEPTH, MAX_INT, MIN_INT, NotLossless, lossless
from strategies import json_values

from prime.messages import freeze, thaw


@dataclasses.dataclass
class Point:
    x: int = 1


class Text(str):
    __slots__ = ()


class Number(IntEnum):
    ONE = 1


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("a repr that raises")


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def cycle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def shape(value: Any) -> Any:
    """Return the value with the type of each of its nodes."""
    if isinstance(value, dict):
        return dict, [(key, shape(item)) for key, item in value.items()]
    if isinstance(value, list):
        return list, [shape(item) for item in value]
    return type(value), value


REFUSED = {
    "NaN": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "negative zero": -0.0,
    "integer over 64 bits": MAX_INT + 1,
    "integer under 64 bits": MIN_INT - 1,
    "lone surrogate": "a\ud800",
    "tuple": (1, 2),
    "set": {1},
    "bytes": b"a",
    "dataclass": Point(),
    "subclass of str": Text("a"),
    "subclass of int": Number.ONE,
    "subclass of dict": OrderedDict(a=1),
    "function": len,
}


@given(json_values)
def test_an_accepted_value_survives_json_with_equal_types(value: Any) -> None:
    accepted = lossless(value)
    assert shape(accepted) == shape(value)
    assert shape(json.loads(json.dumps(accepted))) == shape(value)


@pytest.mark.parametrize("bad", REFUSED.values(), ids=REFUSED.keys())
def test_a_refused_value_is_named_by_its_path(bad: Any) -> None:
    with pytest.raises(NotLossless) as refused:
        lossless({"rows": [1, {"x": bad}]})
    assert refused.value.path == "['rows'][1]['x']"
    assert str(refused.value) == f"at {refused.value.path}: {refused.value.reason}"


@pytest.mark.parametrize("bad", REFUSED.values(), ids=REFUSED.keys())
def test_a_refused_value_by_itself_has_no_path(bad: Any) -> None:
    with pytest.raises(NotLossless) as refused:
        lossless(bad)
    assert refused.value.path == ""
    assert str(refused.value) == refused.value.reason


@pytest.mark.parametrize(
    "key", [1, None, True, 1.5, (1,), Text("a"), Rude(), "\udfff"], ids=lambda key: type(key).__name__
)
def test_a_refused_key_is_named_by_the_path_of_its_object(key: Any) -> None:
    with pytest.raises(NotLossless) as refused:
        lossless({"rows": [{key: 1}]})
    assert refused.value.path == "['rows'][0]"


@pytest.mark.parametrize("edge", [MAX_INT, MIN_INT, 0.0, True, 5e-324, 1.7976931348623157e308, "\0", "\U0001fae8"])
def test_values_at_the_edge_are_accepted(edge: Any) -> None:
    assert shape(lossless(edge)) == shape(edge)


def test_depth_is_bounded() -> None:
    assert lossless(nested(MAX_DEPTH)) == nested(MAX_DEPTH)
    for value in (nested(MAX_DEPTH + 1), nested(10_000), cycle()):
        with pytest.raises(NotLossless, match="nested deeper than 128 levels, or cyclic") as refused:
            lossless(value)
        assert refused.value.path.startswith("[0][0]")
        assert len(refused.value.path) <= 80


@given(json_values)
def test_the_argument_is_never_changed_nor_shared(value: Any) -> None:
    before = copy.deepcopy(value)
    found = lossless([value, value])
    _spoil(found[0])
    assert shape(value) == shape(before)
    assert shape(found[1]) == shape(before)


def test_a_refusal_leaves_the_argument_alone() -> None:
    value = {"a": [1, 2], "b": math.nan}
    with pytest.raises(NotLossless):
        lossless(value)
    assert list(value) == ["a", "b"]
    assert value["a"] == [1, 2]


def test_a_node_that_occurs_twice_is_copied_twice() -> None:
    node: list[int] = []
    found = lossless({"a": node, "b": node})
    found["a"].append(1)
    assert found["b"] == []
    assert node == []


@given(json_values)
def test_freeze_and_thaw_are_inverse(value: Any) -> None:
    assert shape(thaw(freeze(value))) == shape(value)
    assert freeze(freeze(value)) == freeze(value)


@pytest.mark.parametrize("value", [nested(MAX_DEPTH + 1), nested(10_000), cycle(), {"a": cycle()}])
def test_freeze_refuses_what_is_too_deep(value: Any) -> None:
    with pytest.raises(NotLossless, match="nested deeper"):
        freeze(value)


@given(st.recursive(st.just(1), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner)))
def test_a_frozen_value_cannot_change(value: Any) -> None:
    _check_frozen(freeze(value))


def _check_frozen(value: Any) -> None:
    if isinstance(value, tuple):
        for item in value:
            _check_frozen(item)
    elif value != 1:
        with pytest.raises(TypeError):
            value["new"] = 1
        for item in value.values():
            _check_frozen(item)


def _spoil(value: Any) -> None:
    """Change every container in ``value``."""
    if isinstance(value, list):
        for item in value:
            _spoil(item)
        value.append("spoilt")
    elif isinstance(value, dict):
        for item in value.values():
            _spoil(item)
        value["spoilt"] = True
