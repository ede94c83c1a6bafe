"""The file format of a scripted model: what each reply says, and how it is read from YAML or JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, field_validator

from prime.errors import ConfigError
from prime.messages import Frozen, Json, StopReason, Usage, thaw
from prime.providers.failures import CODES

M = TypeVar("M", bound=BaseModel)


def _several(value: Any) -> Any:
    """One item may stand for a list of one; YAML and JSON lists become tuples."""
    if isinstance(value, list):
        return tuple(value)
    return value if isinstance(value, tuple) else (value,)


class Pattern(Frozen):
    """A regular expression (Python syntax, searched anywhere, ``.`` stops at line ends)."""

    regex: str

    @field_validator("regex")
    @classmethod
    def _compiles(cls, regex: str) -> str:
        try:
            re.compile(regex)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return regex


class RawCall(Frozen):
    """A call exactly as a model might write it: any tool name, and arguments that are an object or raw text.

    Raw text is passed on unparsed, so that malformed JSON can be played.
    """

    name: str
    arguments: Json = ""

    @property
    def text(self) -> str:
        """The arguments as the text that a model would have written."""
        arguments = thaw(self.arguments)
        return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


class Fault(Frozen):
    """How the request fails. ``code`` is one of the codes of :class:`prime.errors.ProviderError`."""

    code: str
    message: str | None = None
    retry_after_s: float | None = Field(default=None, ge=0)
    status: int | None = None

    @field_validator("code")
    @classmethod
    def _known(cls, code: str) -> str:
        if code not in CODES:
            raise ValueError(f"no such code; one of {', '.join(sorted(CODES))}")
        return code


class ScriptedReply(Frozen):
    """One entry of a script. An entry answers one request, or ``repeat`` requests.

    Attributes:
        text: what the model says.
        reasoning: private reasoning, streamed before the text.
        code: one cell or a list of cells; each becomes a call of ``repl``.
        call: one raw call or a list of them, after the cells.
        usage: token counts; fields left out are 0. Without it the counts are estimated, see ``estimate``.
        stop: why the reply ended; by default ``calls`` when it has calls, else ``end``.
        expect: texts, or ``{regex: ...}``, that must all occur in the messages after the last reply; else the request
            fails with ``bad_request`` and says what was there.
        error: the request fails this way, after streaming whatever the entry says (a reply that breaks off).
        hang: after streaming, wait until cancelled.
        delay_s: seconds to wait before each delta.
        chunk: characters of one delta.
        repeat: how many requests in a row get this entry.
    """

    text: str = ""
    reasoning: str = ""
    code: Annotated[tuple[str, ...], BeforeValidator(_several)] = ()
    call: Annotated[tuple[RawCall, ...], BeforeValidator(_several)] = ()
    usage: Usage | None = None
    stop: StopReason | None = None
    expect: Annotated[tuple[str | Pattern, ...], BeforeValidator(_several)] = ()
    error: Fault | None = None
    hang: bool = False
    delay_s: float = Field(default=0.0, ge=0)
    chunk: int = Field(default=24, ge=1)
    repeat: int = Field(default=1, ge=1)


class Script(Frozen):
    """A whole script file: the replies in order, and what the model says about itself.

    Attributes:
        about: a line for people; ignored.
        context_window: tokens the model claims to take, None for unknown.
        images: whether the model claims to take images.
    """

    about: str = ""
    context_window: int | None = Field(default=None, ge=1)
    images: bool = False
    replies: Annotated[tuple[ScriptedReply, ...], BeforeValidator(_several)]


def read_script(path: str | Path) -> Script:
    """Read a script from a YAML or JSON file. A bare list stands for ``replies``.

    Raises:
        ConfigError: one line with the file and the place in it.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{path}: cannot read this script: {reason}") from None
    try:
        # JSON is read as JSON: YAML takes no tab between tokens, which JSON files may have.
        data = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {_yaml_problem(error)}") from None
    if isinstance(data, list):
        data = {"replies": data}
    return parse(Script, data, str(path))


def parse(model: type[M], data: object, source: str, place: str = "") -> M:
    """Validate ``data`` as ``model``.

    Raises:
        ConfigError: one line that names ``source``, the place in it and the nearest valid key.
    """
    if not isinstance(data, (Mapping, model)):
        where = f"{place}: " if place else ""
        raise ConfigError(f"{source}: {where}expected a mapping, found {type(data).__name__}")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        # Of a union every branch complains; the deepest complaint is that of the branch which was meant.
        first = max(error.errors(include_url=False), key=lambda found: len(found["loc"]))
        where = _place(place, first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            message = f"unknown key{_nearest(str(first['loc'][-1]), model)}"
        raise ConfigError(f"{source}: {where}: {message}") from None


def _place(place: str, location: Sequence[int | str]) -> str:
    for item in location:
        place += f"[{item}]" if isinstance(item, int) else f".{item}"
    return place.lstrip(".")


def _nearest(key: str, model: type[BaseModel]) -> str:
    keys = {name for shape in (model, ScriptedReply, RawCall, Fault, Usage) for name in shape.model_fields}
    near = get_close_matches(key, sorted(keys), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "not YAML"
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else str(problem)


#: What :class:`ScriptedReply` takes when written in Python.
ReplyLike = ScriptedReply | Mapping[str, Any]
