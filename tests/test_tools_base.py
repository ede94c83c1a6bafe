"""The contract every tool keeps, shown on small tools of the kind a user writes."""

import ast
import asyncio
import enum
import json
import threading
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal, NotRequired

import pytest
from pydantic import BaseModel, TypeAdapter
from typing_extensions import TypedDict

from prime.errors import ConfigError, ToolFailed
from prime.tools.base import Tool, tool, waiting
from prime.tools.catalogue import BUILTIN, Catalogue
from prime.tools.signature import type_text
from prime.tools.workspace import Workspace

pytestmark = pytest.mark.anyio


class Customer(BaseModel):
    id: int
    name: str = "nobody"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@tool
def lookup(id: int) -> Customer:
    "One customer by id."
    return Customer(id=id, name="Ada")


@tool
def everything(
    model_config: int,
    when: date,
    rate: float = 1,
    colour: Colour = Colour.RED,
    mode: Literal["a", "b"] = "a",
    *,
    pair: tuple[int, str] = (1, "x"),
    who: Customer | None = None,
) -> dict[str, Any]:
    """Every kind of parameter."""
    return {"types": [type(item).__name__ for item in (model_config, when, rate, colour, mode, pair, who)]}


async def refused(item: Tool, arguments: dict[str, Any]) -> tuple[str, str]:
    with pytest.raises(ToolFailed) as caught:
        await item.run(Workspace("."), arguments)
    assert "\n" not in str(caught.value)
    return caught.value.code, str(caught.value)


async def test_a_function_stays_an_ordinary_function():
    assert lookup(3).name == "Ada"


async def test_the_value_is_canonical_json():
    assert await lookup.run(Workspace("."), {"id": 3}) == {"id": 3, "name": "Ada"}


async def test_arguments_get_their_python_types_and_defaults():
    value = await everything.run(
        Workspace("."), {"model_config": 1, "when": "2026-11-30", "pair": [2, "y"], "who": {"id": 1}, "rate": 2}
    )
    assert value == {"types": ["int", "date", "float", "Colour", "str", "tuple", "Customer"]}


async def test_validated_arguments_are_json_with_every_default_and_validate_to_themselves():
    once = everything.validate({"model_config": 1, "when": "2026-11-30"})
    assert once == {
        "model_config": 1,
        "when": "2026-11-30",
        "rate": 1.0,
        "colour": "red",
        "mode": "a",
        "pair": [1, "x"],
        "who": None,
    }
    assert everything.validate(once) == once


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["missing argument 'id'", "int"]),
        ({"id": 1, "idd": 2}, ["unknown argument 'idd'", "did you mean 'id'"]),
        ({"id": "1"}, ["id: expected a valid integer", "'1'"]),
        ({"id": 1.0}, ["id: expected a valid integer"]),
        ({"id": True}, ["id: expected a valid integer"]),
        ({"id": float("nan")}, ["arguments['id']", "nan"]),
    ],
)
async def test_bad_arguments_name_the_argument_and_what_is_expected(arguments: dict[str, Any], words: list[str]):
    code, message = await refused(lookup, arguments)
    assert code == "bad_arguments"
    assert all(word in message for word in words), message


async def test_a_bad_member_is_named_with_its_place():
    code, message = await refused(everything, {"model_config": 1, "when": "2026-11-30", "who": {"id": "x"}})
    assert code == "bad_arguments"
    assert message.startswith("who['id']: expected a valid integer")


async def test_the_binding_has_names_types_and_defaults_as_python_source():
    binding = everything.binding()
    assert binding.target == "tools.everything"
    assert binding.doc == "Every kind of parameter."
    assert [(item.name, item.annotation, item.default, item.keyword_only) for item in binding.parameters] == [
        ("model_config", "int", None, False),
        ("when", "str", None, False),
        ("rate", "float", "1.0", False),
        ("colour", "Literal['red', 'blue']", "'red'", False),
        ("mode", "Literal['a', 'b']", "'a'", False),
        ("pair", "list[int | str]", "[1, 'x']", True),
        ("who", "{id: int, name: NotRequired[str]} | None", "None", True),
    ]
    assert lookup.binding().returns == "{id: int, name: str}"
    for item in binding.parameters:
        ast.parse(item.annotation, mode="eval")


async def test_the_schema_is_closed_deterministic_and_in_order():
    assert list(everything.schema["properties"])[:3] == ["model_config", "when", "rate"]
    assert everything.schema["additionalProperties"] is False
    assert everything.schema["required"] == ["model_config", "when"]
    assert json.dumps(tool(everything.function).schema) == json.dumps(everything.schema)


async def test_type_text_of_recursive_odd_and_missing_types():
    class Odd(TypedDict("Odd", {"media-type": str, "class": int})):  # type: ignore[misc]
        more: NotRequired[bool]

    class Tree(BaseModel):
        children: list["Tree"]

    assert type_text(TypeAdapter(Odd).json_schema()) == "{'media-type': str, 'class': int, more: NotRequired[bool]}"
    assert type_text(TypeAdapter(Tree).json_schema()) == "{children: list[dict]}"
    assert type_text(TypeAdapter(dict[str, int]).json_schema()) == "dict[str, int]"
    assert type_text(TypeAdapter(Any).json_schema()) == "Any"


async def test_the_workspace_is_injected_and_not_shown(tmp_path: Path):
    @tool
    def here(place: Workspace, suffix: str = "") -> str:
        """Where am I."""
        return str(place.cwd) + suffix

    assert [item.name for item in here.binding().parameters] == ["suffix"]
    assert await here.run(Workspace(tmp_path), {"suffix": "!"}) == f"{tmp_path}!"
    assert (await refused(here, {"place": "x"}))[0] == "bad_arguments"


async def test_bound_methods_and_coroutine_functions_work():
    @dataclass
    class History:
        turns: list[str]

        async def turn(self, n: int, view: str = "dialogue") -> str:
            """One turn."""
            await asyncio.sleep(0)
            return self.turns[n]

    turn = tool(History(["first"]).turn, namespace="history", parallel=True, effects=False)
    assert (turn.target, turn.parallel, turn.effects) == ("history.turn", True, False)
    assert await turn.run(Workspace("."), {"n": 0}) == "first"


async def test_a_blocking_body_does_not_block_the_host():
    released = threading.Event()

    @tool
    def wait() -> bool:
        """Blocks until the host has done something else."""
        return released.wait(10)

    running = asyncio.create_task(wait.run(Workspace("."), {}))
    await asyncio.sleep(0)
    released.set()
    assert await running is True


async def test_failures_of_a_body_are_values():
    @tool
    def failing(how: str) -> int:
        """Fails."""
        if how == "own":
            raise ToolFailed("not_found", "no such thing; list them first")
        if how == "bug":
            return {}["x"]
        return "text"  # type: ignore[return-value]

    assert await refused(failing, {"how": "own"}) == ("not_found", "no such thing; list them first")
    assert await refused(failing, {"how": "bug"}) == ("failed", "KeyError: 'x'")
    code, message = await refused(failing, {"how": "type"})
    assert code == "invalid_value"
    assert "tools.failing" in message
    assert "valid integer" in message


@pytest.mark.parametrize("value", [float("nan"), -0.0, "\ud800", 2**64, {"a": [object()]}])
async def test_a_value_that_json_cannot_carry_is_refused(value: object):
    @tool
    def odd() -> Any:
        """Odd."""
        return value

    assert (await refused(odd, {}))[0] == "invalid_value"


async def test_projections_have_defaults():
    value = {"id": 3, "name": "Ada"}
    assert json.loads(lookup.for_model({"id": 3}, value)) == value
    assert lookup.for_human({"id": 3}, value) == 'tools.lookup(id=3) -> {"id": 3, "name": "Ada"}'
    assert "\n" not in lookup.for_human({"id": 3}, {"text": "long\n" * 1000})


async def test_a_view_that_meets_an_older_value_falls_back():
    @tool(for_model=lambda arguments, value: value["new"], for_human=lambda arguments, value: value["new"])
    def changed() -> dict[str, str]:
        """Changed."""
        return {"new": "x"}

    assert changed.for_model({}, {"new": "shown"}) == "shown"
    assert "old" in changed.for_model({}, {"old": "y"})
    assert "old" in changed.for_human({}, {"old": "y"})


async def test_images_of_a_value():
    assert lookup.images({"media_type": "image/png", "image": "aGk="})[0].data == "aGk="
    assert lookup.images({"media_type": "text/plain", "image": "x"}) == ()
    assert lookup.images("text") == ()


def unannotated(x) -> None:  # type: ignore[no-untyped-def]
    """x"""


def starred(*x: int) -> None:
    """x"""


def keywords(**x: int) -> None:
    """x"""


def positional(x: int, /) -> None:
    """x"""


def undocumented(x: int) -> None: ...


def bad_default(x: int = "one") -> None:  # type: ignore[assignment]
    """x"""


def no_json(x: threading.Thread) -> None:
    """x"""


def unknown_type(x: "Missing") -> None:  # type: ignore[name-defined]  # noqa: F821
    """x"""


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (unannotated, "'x' has no annotation"),
        (starred, "*x: int is not supported"),
        (keywords, "**x: int is not supported"),
        (positional, "x: int is not supported"),
        (undocumented, "no docstring"),
        (bad_default, "default of 'x'"),
        (no_json, "threading.Thread, which has no JSON form"),
        (unknown_type, "'Missing' is not defined"),
        (3, "not of int"),
        (lambda: None, "not a public Python name"),
    ],
)
async def test_a_function_that_cannot_be_a_tool_says_why_in_one_line(function: Any, words: str):
    with pytest.raises(TypeError) as caught:
        tool(function)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_catalogue_is_ordered_and_finds_the_nearest():
    turn = tool(lookup.function, name="turn", namespace="history")
    catalogue = Catalogue([turn, lookup, everything])
    assert [item.target for item in catalogue] == ["history.turn", "tools.everything", "tools.lookup"]
    assert [item.target for item in catalogue.bindings()] == [item.target for item in catalogue]
    assert len(catalogue) == 3
    assert catalogue.get("tools.lookup") is lookup
    with pytest.raises(ToolFailed, match=r"there is no tools.lokup; did you mean 'tools.lookup'\?"):
        catalogue.get("tools.lokup")
    with pytest.raises(ConfigError, match=r"two tools are called tools.lookup"):
        Catalogue([lookup, lookup])


@pytest.mark.parametrize("item", BUILTIN, ids=lambda item: item.target)
async def test_built_in_tools_describe_themselves(item: Tool):
    binding = item.binding()
    assert binding.returns.startswith("{")
    ast.parse(binding.returns, mode="eval")
    assert item.schema["additionalProperties"] is False


async def test_the_tools_that_wait_are_known_by_their_targets():
    @waiting
    @tool(parallel=True)
    async def patient() -> None:
        """Wait for somebody."""

    assert Catalogue([lookup, patient]).waits() == {"tools.patient"}
    assert await patient.run(Workspace("."), {}) is None
