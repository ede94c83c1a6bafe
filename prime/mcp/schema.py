"""JSON Schemas of servers' tools as signatures."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import Annotated, Any

from prime_kernel.lossless import NotLossless, lossless
from prime_kernel.wire import Parameter
from pydantic import Field, TypeAdapter, WithJsonSchema, create_model

from prime.tools.signature import Arguments, Signature, type_text

#: Depth beyond which a schema says nothing any more.
_DEPTH = 12

#: What some keywords must be.
_KINDS: dict[str, type] = {
    "properties": dict,
    **dict.fromkeys(("required", "enum", "anyOf", "oneOf", "allOf", "prefixItems"), list),
}

#: What lets a schema without properties take some.
_OPEN = ("additionalProperties", "patternProperties", "anyOf", "oneOf", "allOf", "$ref")

#: What a tool gives that declares nothing: its text, and its pictures.
CONTENT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "images": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"media_type": {"type": "string"}, "image": {"type": "string"}},
                "required": ["media_type", "image"],
            },
        },
        "structured": {"type": "object"},
    },
    "required": ["text", "images"],
}


def read_schema(
    title: str, schema: Mapping[str, Any], output: Mapping[str, Any] | None
) -> tuple[Signature, dict[str, str]]:
    """Return the signature of a tool, and for each parameter the name that the server calls it.

    A parameter that may be left out and has no default shows ``None``. Where the schema names no properties but allows
    any, the one parameter ``arguments`` takes them all, and its name of the server's is empty.
    """
    schema = _sound(schema)
    properties = schema.get("properties") or {}
    required = schema.get("required") or ()
    names: dict[str, str] = {}
    parameters: list[Parameter] = []
    fields: dict[str, Any] = {}
    if whole := not properties and any(schema.get(key) for key in _OPEN):
        properties = {"arguments": {"type": "object"}}
    for given, described in properties.items():
        name = _free(given, names)
        names[name] = "" if whole else given
        plain = resolved(described, schema)
        annotation = type_text(plain)
        default: Any = ...
        if given not in required:
            default = _default(plain)
            if default is None and "None" not in annotation and annotation != "Any":
                annotation = f"{annotation} | None"
        shown = None if default is ... else repr(default)
        parameters.append(Parameter(name, annotation, shown, False))
        fields[f"p{len(fields)}"] = (Annotated[Any, WithJsonSchema(plain)], Field(default, alias=name))
    model = create_model(title, __base__=Arguments, **fields)
    value = resolved(output, output) if output is not None else CONTENT
    returns: TypeAdapter[Any] = TypeAdapter(Annotated[dict[str, Any], WithJsonSchema(value)])
    return Signature(tuple(parameters), model, None, returns), names


def resolved(schema: Any, root: Mapping[str, Any], inside: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a schema without references and titles, and with types one by one; what refers to itself, or into another
    document, says nothing."""
    if not isinstance(schema, Mapping) or len(inside) > _DEPTH:
        return {}
    reference = schema.get("$ref")
    if isinstance(reference, str):
        found = _found(reference, root) if reference not in inside else None
        rest = {key: item for key, item in schema.items() if key != "$ref"}
        return {**resolved(found, root, (*inside, reference)), **resolved(rest, root, (*inside, ""))}
    schema, deeper = _sound(schema), (*inside, "")
    plain = {
        key: item for key, item in schema.items() if key not in ("$defs", "definitions", "title", "$schema", "$id")
    }
    if isinstance(members := plain.get("properties"), Mapping):
        plain["properties"] = {name: resolved(item, root, deeper) for name, item in members.items()}
    for key in ("items", "additionalProperties"):
        if isinstance(plain.get(key), Mapping):
            plain[key] = resolved(plain[key], root, deeper)
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if isinstance(plain.get(key), list):
            plain[key] = [resolved(item, root, deeper) for item in plain[key]]
    if isinstance(kinds := plain.get("type"), list):
        del plain["type"]
        plain["anyOf"] = [{**plain, "type": kind} for kind in kinds]
    whole = plain.get("allOf")
    if isinstance(whole, list) and len(whole) == 1:
        plain = {**whole[0], **{key: item for key, item in plain.items() if key != "allOf"}}
    return plain


def _sound(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema without what is not of the kind that it must be: a server may send anything."""
    return {key: item for key, item in schema.items() if isinstance(item, _KINDS.get(key, object))}


def _found(reference: str, root: Mapping[str, Any]) -> Any:
    """Return what a reference within the document means, or None."""
    place: Any = root
    if not reference.startswith("#"):
        return None
    for part in reference.removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        place = place.get(key) if isinstance(place, Mapping) else None
    return place


def _default(plain: Mapping[str, Any]) -> Any:
    try:
        return lossless(plain.get("default"))
    except NotLossless:
        return None


def _free(given: str, taken: Mapping[str, str]) -> str:
    """Return a name for Python that is not taken."""
    name = word(given)
    return next(each for each in (name, *(f"{name}_{n}" for n in range(2, len(taken) + 3))) if each not in taken)


def word(given: str) -> str:
    """Return the nearest public name that Python allows."""
    name = re.sub(r"\W", "_", given).strip("_") or "value"
    name = f"n{name}" if name[0].isdigit() else name
    return f"{name}_" if keyword.iskeyword(name) else name
