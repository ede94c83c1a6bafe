"""Arguments against the schema of a server's tool, before they leave."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jsonschema import exceptions
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable


def problem(arguments: Mapping[str, Any], schema: dict[str, Any]) -> str | None:
    """Return what is wrong with the arguments, on one line. A schema that is none is left to the server, and so is one
    that refers to another document: nothing is fetched for it."""
    kind = validator_for(schema)
    try:
        kind.check_schema(schema)
        error = exceptions.best_match(kind(schema, registry=Registry()).iter_errors(arguments))
    except (exceptions.SchemaError, Unresolvable, re.error):
        return None
    if error is None:
        return None
    where = "".join(f"[{part!r}]" for part in list(error.absolute_path)[1:])
    name = str(error.absolute_path[0]) if error.absolute_path else "arguments"
    return f"{name}{where}: {' '.join(error.message.split()):.300}"
