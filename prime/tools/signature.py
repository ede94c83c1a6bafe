"""A function's signature as data: the model that checks arguments, and the texts that describe it."""

from __future__ import annotations

import difflib
import functools
import inspect
import json
import keyword
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from prime_kernel.lossless import NotLossless, lossless
from prime_kernel.wire import Parameter
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails, PydanticSerializationError

from prime.errors import ToolFailed
from prime.tools.workspace import Workspace

_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
#: Nesting beyond which a type's text says ``dict`` or ``list`` only.
_TEXT_DEPTH = 6


class _Schema(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # a title that repeats the name costs tokens and says nothing

    def field_is_required(self, field: Any, total: bool) -> bool:
        # a value is written with all its fields, those that have a default included
        written = self.mode == "serialization" and field["type"] in ("model-field", "dataclass-field")
        return written or super().field_is_required(field, total)


class Arguments(BaseModel):
    """Base of the models of arguments."""

    # Strict in JSON mode: an int is taken for a float, a list for a tuple, text for an enum or a date; "5" is no int.
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=False)


@dataclass(frozen=True)
class Signature:
    """What a tool takes and gives.

    Attributes:
        parameters: in order, without the injected one.
        arguments: model with one field per parameter, reached by its alias.
        injected: name of the parameter that takes the :class:`Workspace`, else None.
        returns: checks the value.
    """

    parameters: tuple[Parameter, ...]
    arguments: type[BaseModel]
    injected: str | None
    returns: TypeAdapter[Any]

    @functools.cached_property
    def returned(self) -> str:
        """The type of the value, as :func:`type_text` writes it."""
        return type_text(self.returns.json_schema(schema_generator=_Schema, mode="serialization"))

    def parse(self, arguments: dict[str, Any]) -> BaseModel:
        """Return the checked arguments.

        Raises:
            ToolFailed: ``bad_arguments``, one line that names the argument and what is expected.
        """
        try:
            return self.arguments.model_validate_json(json.dumps(lossless(arguments)))
        except NotLossless as error:
            raise ToolFailed("bad_arguments", f"arguments{error.path}: {error.reason}") from None
        except ValidationError as error:
            problems = [self._problem(detail) for detail in error.errors(include_url=False)[:3]]
            raise ToolFailed("bad_arguments", "; ".join(problems)) from None

    def values(self, parsed: BaseModel) -> dict[str, Any]:
        """Return the checked arguments as the Python values that the function takes."""
        fields = type(parsed).model_fields
        return {str(field.alias): getattr(parsed, name) for name, field in fields.items()}

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments; the same function gives the same bytes."""
        schema = self.arguments.model_json_schema(schema_generator=_Schema)
        return {"type": "object", "properties": schema.get("properties", {})} | {
            key: item for key, item in schema.items() if key not in ("title", "description")
        }

    def _problem(self, detail: ErrorDetails) -> str:
        where, names = detail["loc"], [parameter.name for parameter in self.parameters]
        name = str(where[0]) if where else "arguments"
        if detail["type"] == "extra_forbidden" and len(where) == 1:
            return f"unknown argument {name!r}{nearest(name, names)}; it takes {', '.join(names) or 'none'}"
        if detail["type"] == "missing" and len(where) == 1:
            wanted = next(item.annotation for item in self.parameters if item.name == name)
            return f"missing argument {name!r} ({wanted})"
        place = name + "".join(f"[{part!r}]" for part in where[1:])
        expected = detail["msg"].replace("Input should be", "expected", 1)
        return f"{place}: {expected}, got {detail['input']!r:.80}"


#: Signatures by method: each session binds the same ones anew, and to read one takes milliseconds.
_methods: WeakKeyDictionary[Any, Signature] = WeakKeyDictionary()


def read_signature(function: Callable[..., Any]) -> Signature:
    """Return the signature of a function or bound method.

    Raises:
        TypeError: one line, for a signature that a tool cannot have.
    """
    if not inspect.ismethod(function):
        return _read(function)
    found = _methods.get(function.__func__)
    if found is None:
        found = _methods[function.__func__] = _read(function)
    return found


def _read(function: Callable[..., Any]) -> Signature:
    label = f"tool {getattr(function, '__name__', function)!s}"
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError as error:
        raise TypeError(
            f"{label}: an annotation cannot be resolved: {error}; define the type at module level"
        ) from None
    injected: str | None = None
    fields: dict[str, Any] = {}
    parameters: list[Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.kind not in _KINDS:
            raise TypeError(f"{label}: {parameter} is not supported; give each argument a name that callers can use")
        if parameter.annotation is Workspace:
            injected = parameter.name
            continue
        if parameter.annotation is inspect.Parameter.empty:
            raise TypeError(f"{label}: parameter {parameter.name!r} has no annotation; write {parameter.name}: TYPE")
        parameters.append(_describe(label, parameter))
        # A field's own name must not clash with what BaseModel defines, so the real one is its alias.
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[f"p{len(fields)}"] = (parameter.annotation, Field(default, alias=parameter.name))
    model = create_model(function.__name__, __base__=Arguments, **fields)
    returns = signature.return_annotation
    adapter = _adapter(label, "the return value", Any if returns is inspect.Signature.empty else returns)
    return Signature(tuple(parameters), model, injected, adapter)


def _describe(label: str, parameter: inspect.Parameter) -> Parameter:
    adapter = _adapter(label, f"parameter {parameter.name!r}", parameter.annotation)
    annotation = type_text(adapter.json_schema())
    default: str | None = None
    if parameter.default is not inspect.Parameter.empty:
        try:
            plain = lossless(adapter.dump_python(parameter.default, mode="json", warnings="none"))
            adapter.validate_json(json.dumps(plain))
        except (NotLossless, PydanticSerializationError, ValidationError):
            wanted = f"the default of {parameter.name!r} is not a JSON value of its type {annotation}"
            raise TypeError(f"{label}: {wanted}; change the default or the annotation") from None
        default = repr(plain)
    keyword_only = parameter.kind is inspect.Parameter.KEYWORD_ONLY
    return Parameter(parameter.name, annotation, default, keyword_only)


def _adapter(label: str, what: str, annotation: Any) -> TypeAdapter[Any]:
    try:
        adapter: TypeAdapter[Any]
        try:
            # by default pydantic writes NaN as null; here it must reach the check that refuses it
            adapter = TypeAdapter(annotation, config=ConfigDict(ser_json_inf_nan="constants"))
        except PydanticUserError as error:
            if error.code != "type-adapter-config-unused":
                raise
            adapter = TypeAdapter(annotation)  # a model decides such things by its own configuration
        adapter.json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError):
        shown = inspect.formatannotation(annotation)
        wanted = "use JSON types, dataclasses, TypedDicts or pydantic models"
        raise TypeError(f"{label}: {what} has the type {shown}, which has no JSON form; {wanted}") from None
    return adapter


def type_text(schema: dict[str, Any]) -> str:
    """Return a JSON Schema as a compact type, written as a Python expression: ``{path: str, lines: list[int]}``.

    It describes the JSON value, so a tuple shows as a list and a date as ``str``. A member that may be missing is
    ``NotRequired[...]``. Recursive and very deep types end in ``dict`` or ``list``.
    """
    return _text(schema, schema.get("$defs", {}), ())


def _text(schema: Any, defs: dict[str, Any], inside: tuple[str, ...]) -> str:
    if not isinstance(schema, dict):
        return "Any"
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return "dict" if name in inside else _text(defs.get(name, {}), defs, (*inside, name))
    if "const" in schema or "enum" in schema:
        return f"Literal[{', '.join(repr(item) for item in schema.get('enum', [schema.get('const')]))}]"
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " | ".join(dict.fromkeys(_text(item, defs, inside) for item in schema[union]))
    kind = schema.get("type")
    if kind == "array":
        return _list_text(schema, defs, inside)
    if kind == "object":
        return _object_text(schema, defs, inside)
    return _SCALARS.get(str(kind), "Any")


def _list_text(schema: dict[str, Any], defs: dict[str, Any], inside: tuple[str, ...]) -> str:
    items = [*schema.get("prefixItems", ()), *([schema["items"]] if schema.get("items") else [])]
    if not items or len(inside) >= _TEXT_DEPTH:
        return "list"
    return f"list[{' | '.join(dict.fromkeys(_text(item, defs, (*inside, '')) for item in items))}]"


def _object_text(schema: dict[str, Any], defs: dict[str, Any], inside: tuple[str, ...]) -> str:
    if len(inside) >= _TEXT_DEPTH:
        return "dict"
    if not schema.get("properties"):
        extra = schema.get("additionalProperties")
        return f"dict[str, {_text(extra, defs, (*inside, ''))}]" if isinstance(extra, dict) and extra else "dict"
    required = schema.get("required", ())
    members = []
    for name, item in schema["properties"].items():
        key = name if name.isidentifier() and not keyword.iskeyword(name) else repr(name)
        text = _text(item, defs, (*inside, ""))
        members.append(f"{key}: {text if name in required else f'NotRequired[{text}]'}")
    return f"{{{', '.join(members)}}}"


def nearest(name: str, names: Sequence[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest of ``names``, or nothing when none is close."""
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
