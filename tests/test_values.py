"""Arguments on their way out of a cell, results on their way in."""

from __future__ import annotations

import copy
import json
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from prime_kernel.lossless import NotLossless
from prime_kernel.values import Record, arguments, records
from strategies import json_values


@given(json_values)
def test_json_passes_unchanged_and_comes_back_equal(value: Any) -> None:
    sent = arguments({"value": value})["value"]
    assert sent == value
    assert json.loads(json.dumps(records(sent))) == value


def test_the_documented_conversions_and_no_other() -> None:
    assert arguments({"a": (1, (2,)), "b": {"p": Path("/x")}, "c": Record(d=Record())}) == {
        "a": [1, [2]],
        "b": {"p": "/x"},
        "c": {"d": {}},
    }
    for value in ({1}, b"x", OrderedDict(), object(), 1j, range(3), float("inf")):
        with pytest.raises(NotLossless, match=r"^at a\['b'\]\[1\]: "):
            arguments({"a": {"b": [0, value]}})


def test_a_cycle_is_refused() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(NotLossless, match="nested deeper"):
        arguments({"a": cycle})


def test_the_value_sent_is_a_copy() -> None:
    value = {"a": [1]}
    sent = arguments({"value": value})
    value["a"].append(2)
    assert sent == {"value": {"a": [1]}}


def test_a_record_is_a_dict_with_attributes() -> None:
    record = records({"a": {"b": [{"c": 1}]}, "keys": 2, "not a name": 3})
    assert record.a.b[0].c == 1
    assert record["keys"] == 2
    assert callable(record.keys)
    assert repr(record) == repr(dict(record))
    assert "a" in dir(record)
    assert "not a name" not in dir(record)
    record.a.b[0].c = 5
    assert record["a"]["b"][0]["c"] == 5
    del record.a
    assert "a" not in record
    for same in (copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        assert same == record
        assert type(same) is Record


def test_a_missing_field_names_the_nearest() -> None:
    with pytest.raises(AttributeError, match="did you mean 'line_count'"):
        _ = Record(line_count=1).line_cuont
    with pytest.raises(AttributeError, match="it has 'a'"):
        _ = Record(a=1).zzz
    with pytest.raises(AttributeError, match="no field"):
        del Record().zzz
