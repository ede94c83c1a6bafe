import dataclasses
import json
import struct
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prime_kernel import wire
from prime_kernel.wire import WireError, decode, encode
from strategies import json_values

words = st.text(max_size=10)
numbers = st.integers(0, 2**63 - 1)
tuples = st.lists(words, max_size=3).map(tuple)
names = st.builds(wire.Name, name=words, type=words)
parameters = st.builds(
    wire.Parameter, name=words, annotation=words, default=st.none() | words, keyword_only=st.booleans()
)
bindings = st.builds(
    wire.Binding, target=words, parameters=st.lists(parameters, max_size=2).map(tuple), returns=words, doc=words
)
without = st.builds(wire.Without, name=words, reason=words)
sized = st.builds(wire.Sized, name=words, text=words)
places = st.builds(wire.Place, file=words, line=numbers, function=words, source=words)
FRAMES: dict[type, dict[str, st.SearchStrategy[Any]]] = {
    wire.Hello: {
        "protocol": numbers,
        "token": words,
        "pid": numbers,
        "python": words,
        "ipython": words,
        "ipykernel": words,
    },
    wire.Setup: {
        "bindings": st.lists(bindings, max_size=2).map(tuple),
        "max_calls": numbers,
        "output_limit": numbers,
        "session": words,
    },
    wire.Ready: {"interrupts": words},
    wire.Call: {
        "cell": words,
        "call": numbers,
        "target": words,
        "arguments": st.dictionaries(words, json_values, max_size=3),
    },
    wire.Cancel: {"cell": words, "call": numbers},
    wire.Result: {"call": numbers, "value": json_values},
    wire.Failure: {"call": numbers, "code": words, "message": words},
    wire.CellDone: {
        "cell": words,
        "refused": st.none() | words,
        "set": st.lists(names, max_size=2).map(tuple),
        "removed": tuples,
        "unawaited": tuples,
        "dropped": numbers,
    },
    wire.Inspect: {"request": numbers},
    wire.Save: {
        "request": numbers,
        "path": words,
        "library": words,
        "variable_limit": numbers,
        "total_limit": numbers,
    },
    wire.Saved: {
        "request": numbers,
        "error": st.none() | words,
        "names": st.lists(names, max_size=2).map(tuple),
        "left_out": st.lists(without, max_size=2).map(tuple),
        "threads": numbers,
        "tasks": numbers,
    },
    wire.Restore: {"request": numbers, "path": words, "size": numbers, "library": words},
    wire.Restored: {
        "request": numbers,
        "names": st.lists(names, max_size=2).map(tuple),
        "missing": st.lists(without, max_size=2).map(tuple),
    },
    wire.Inspected: {
        "request": numbers,
        "names": st.lists(sized, max_size=2).map(tuple),
        "further": numbers,
        "stack": st.lists(places, max_size=2).map(tuple),
    },
}
frames = st.one_of([st.builds(kind, **fields) for kind, fields in FRAMES.items()])
CALL = {"kind": "Call", "cell": "c", "call": 1, "target": "tools.read", "arguments": {}}
DONE = {"kind": "CellDone", "cell": "c", "refused": None, "set": [], "removed": [], "unawaited": [], "dropped": 0}


def body(fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_every_kind_of_frame_is_generated() -> None:
    assert set(FRAMES) == set(get_args(wire.Frame))


@given(frames)
def test_a_frame_comes_back_as_it_was(frame: wire.Frame) -> None:
    data = encode(frame)
    assert wire.length(data[:4]) == len(data) - 4
    back = decode(data[4:])
    assert back == frame
    assert type(back) is type(frame)


@given(frames, st.data())
def test_a_frame_with_one_field_less_or_more_is_refused(frame: wire.Frame, data: st.DataObject) -> None:
    fields = json.loads(encode(frame)[4:])
    short = dict(fields)
    del short[data.draw(st.sampled_from(sorted(fields)))]
    for hostile in (short, {**fields, "more": 1}):
        with pytest.raises(WireError):
            decode(body(hostile))


@given(frames, st.data())
def test_a_field_of_another_type_is_refused(frame: wire.Frame, data: st.DataObject) -> None:
    fields = json.loads(encode(frame)[4:])
    # a Result's value is anything
    name = data.draw(st.sampled_from(sorted(fields.keys() - {"value"})))
    fields[name] = 1.5  # no field is a float
    with pytest.raises(WireError):
        decode(body(fields))


@given(st.binary(max_size=200) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_give_a_frame_or_a_wire_error(data: bytes) -> None:
    try:
        found = decode(data)
    except WireError:
        return
    assert dataclasses.is_dataclass(found)


@given(frames, st.data())
def test_a_frame_with_a_changed_byte_is_a_frame_or_a_wire_error(frame: wire.Frame, data: st.DataObject) -> None:
    changed = bytearray(encode(frame)[4:])
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        again = decode(bytes(changed))
    except WireError:
        return
    assert decode(encode(again)[4:]) == again


HOSTILE = {
    "empty": b"",
    "binary": bytes(range(256)),
    "not an object": b"[]",
    "a number": b"1",
    "no kind": body({"cell": "c"}),
    "unknown kind": body({**CALL, "kind": "Shell"}),
    "kind of another module": body({"kind": "Parameter", "name": "a"}),
    "kind that is not text": body({**CALL, "kind": ["Call"]}),
    "kind nested deep": b'{"kind":' + b"[" * 900 + b"]" * 900 + b"}",
    "truth for a number": body({**CALL, "call": True}),
    "number for text": body({**CALL, "cell": 1}),
    "null for text": body({**CALL, "target": None}),
    "list for an object": body({**CALL, "arguments": []}),
    "object for a list": body({**DONE, "removed": {}}),
    "text for a list": body({**DONE, "removed": "abc"}),
    "number in a list of text": body({**DONE, "removed": [1]}),
    "text for a nested frame": body({**DONE, "set": ["x"]}),
    "nested frame with a wrong type": body({**DONE, "set": [{"name": "x", "type": 1}]}),
    "nested frame with one field more": body({**DONE, "set": [{"name": "x", "type": "int", "more": 1}]}),
    "NaN": b'{"kind":"Result","call":1,"value":NaN}',
    "infinity": b'{"kind":"Result","call":1,"value":-Infinity}',
    "infinity by overflow": b'{"kind":"Result","call":1,"value":[1e999]}',
    "negative zero": b'{"kind":"Result","call":1,"value":-0.0}',
    "integer over 64 bits": body({"kind": "Result", "call": 1, "value": 2**63}),
    "call over 64 bits": body({**CALL, "call": 2**70}),
    "endless digits": b'{"kind":"Result","call":1,"value":' + b"9" * 10_000 + b"}",
    "lone surrogate in a value": b'{"kind":"Result","call":1,"value":"\\ud800"}',
    "lone surrogate in text": b'{"kind":"Ready","interrupts":"\\ud800"}',
    "surrogate as bytes": b'{"kind":"Ready","interrupts":"\xed\xa0\x80"}',
    "deep": b'{"kind":"Result","call":1,"value":' + b"[" * 200 + b"]" * 200 + b"}",
    "very deep": b"[" * 1_000_000,
    "UTF-16": json.dumps({"kind": "Ready", "interrupts": "x"}).encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf" + body({"kind": "Ready", "interrupts": "x"}),
    "two values": body({"kind": "Ready", "interrupts": "x"}) * 2,
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_body_is_a_wire_error(data: bytes) -> None:
    with pytest.raises(WireError):
        decode(data)


def test_a_length_over_the_limit_is_refused_before_anything_is_read() -> None:
    assert wire.length(struct.pack(">I", wire.FRAME_LIMIT)) == wire.FRAME_LIMIT
    with pytest.raises(WireError, match="over the limit"):
        wire.length(struct.pack(">I", wire.FRAME_LIMIT + 1))


def test_a_frame_over_the_limit_is_not_sent() -> None:
    with pytest.raises(WireError, match="pass the data in a file"):
        encode(wire.Result(1, "x" * wire.FRAME_LIMIT))


UNSENDABLE = {"lone surrogate": "\ud800", "NaN": float("nan"), "set": {1}, "bytes": b"x"}


@pytest.mark.parametrize("value", UNSENDABLE.values(), ids=UNSENDABLE.keys())
def test_what_is_not_json_is_not_sent(value: Any) -> None:
    with pytest.raises(WireError, match="cannot be written as JSON"):
        encode(wire.Result(1, [value]))


def test_a_cycle_is_not_sent() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(WireError, match="cannot be written as JSON"):
        encode(wire.Result(1, value))
