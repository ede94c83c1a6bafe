"""The tool contract: an ordinary function with typed arguments becomes a callable of the cell.

A tool gives one canonical JSON value. The program gets that value itself; ``for_model`` and ``for_human`` are pure
functions of (arguments, value), so any of them can be made again from a stored log.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import keyword
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, overload

from prime_kernel.lossless import NotLossless, lossless
from prime_kernel.wire import Binding
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError
from typing_extensions import ParamSpec, TypeVar

from prime.errors import ToolFailed
from prime.messages import ImagePart
from prime.tools.signature import Signature, read_signature
from prime.tools.threads import in_thread
from prime.tools.workspace import Workspace

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)

#: ``(arguments, value) -> text``, pure.
Projection = Callable[[dict[str, Any], Any], str]

#: Characters of an unexpected exception's message that reach the program.
_MESSAGE_LIMIT = 4_000
#: Characters of one value in a line for a person.
_BRIEF = 60


@dataclass(frozen=True)
class Tool(Generic[P, R]):
    """One callable of the cell. Make it with :func:`tool`.

    Attributes:
        target: ``"namespace.name"``, such as ``"tools.read"``.
        doc: the docstring.
        function: the body, as it was written.
        parallel: whether it may run beside other calls of the cell; else it waits for all and blocks later ones.
        effects: whether it changes the world, so that the log must be durable before it starts.
        waits: whether it waits for something that has limits of its own (another agent, a job, a person), so that the
            time does not count towards the cell's deadline; see :func:`waiting`.
    """

    target: str
    doc: str
    function: Callable[P, R]
    parallel: bool
    effects: bool
    signature: Signature
    model_view: Projection | None
    human_view: Projection | None
    waits: bool = False

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the body as the ordinary function it is: nothing is checked, no thread, no workspace given."""
        return self.function(*args, **kwargs)

    @functools.cached_property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments; deterministic, member order is parameter order."""
        return self.signature.schema()

    def binding(self) -> Binding:
        """Return what the kernel needs to offer this tool."""
        return Binding(self.target, self.signature.parameters, self.signature.returned, self.doc)

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as JSON with every default filled in. Validating the result again changes nothing.

        Raises:
            ToolFailed: ``bad_arguments``, one line that names the argument and what is expected.
        """
        return self.signature.parse(arguments).model_dump(mode="json", by_alias=True)

    async def run(self, workspace: Workspace, arguments: dict[str, Any]) -> Any:
        """Check the arguments, run the body and return its canonical JSON value.

        A body that is not a coroutine function runs in a worker thread. When the call is cancelled such a thread cannot
        be stopped: it runs on to its end and its value is dropped (see :func:`prime.tools.threads.abandoned`).

        Raises:
            ToolFailed: what the body raised, ``bad_arguments``, ``invalid_value`` when the value is not of the declared
                type, or ``failed`` for any other exception.
        """
        values = self.signature.values(self.signature.parse(arguments))
        if self.signature.injected is not None:
            values[self.signature.injected] = workspace
        body: Callable[..., Any] = self.function
        try:
            if inspect.iscoroutinefunction(inspect.unwrap(body)):
                value = await body(**values)
            else:
                value = await in_thread(functools.partial(body, **values))
        except ToolFailed:
            raise
        except (Exception, SystemExit) as error:  # a tool that exits ends its call, not the host
            message = f"{type(error).__name__}: {error}"[:_MESSAGE_LIMIT].removesuffix(": ")
            raise ToolFailed("failed", message) from error
        return self.canonical(value)

    def canonical(self, value: Any) -> Any:
        """Return a value of the declared type as fresh lossless JSON.

        Raises:
            ToolFailed: ``invalid_value``, saying where and why.
        """
        adapter = self.signature.returns
        try:
            return lossless(adapter.dump_python(adapter.validate_python(value), mode="json", warnings="error"))
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            where = "".join(f"[{part!r}]" for part in detail["loc"])
            reason = f"value{where}: {detail['msg']}, got {detail['input']!r:.80}"
        except NotLossless as error:
            reason = f"value{error.path}: {error.reason}"
        except PydanticSerializationError as error:
            reason = f"value: {error}"
        raise ToolFailed("invalid_value", f"{self.target} returned what it does not declare: {reason}")

    def for_model(self, arguments: dict[str, Any], value: Any) -> str:
        """Return what the model sees when this value, untouched, is a cell's completion."""
        return _projected(self.model_view or _pretty, _pretty, arguments, value)

    def for_human(self, arguments: dict[str, Any], value: Any) -> str:
        """Return one line for a person who follows along."""
        default = functools.partial(_line, self.target)
        text = _projected(self.human_view or default, default, arguments, value)
        return text.replace("\n", "\u21b5")  # a file name may contain one

    def images(self, value: Any) -> tuple[ImagePart, ...]:
        """Return the picture that a value of the shape ``{media_type: "image/...", image: BASE64, ...}`` is, and those
        in its list ``images``."""
        if not isinstance(value, dict):
            return ()
        further = value.get("images")
        return tuple(filter(None, map(_image, [value, *(further if isinstance(further, list) else ())])))


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = ...,
    namespace: str = ...,
    parallel: bool = ...,
    effects: bool = ...,
    for_model: Projection | None = ...,
    for_human: Projection | None = ...,
) -> Tool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = ...,
    namespace: str = ...,
    parallel: bool = ...,
    effects: bool = ...,
    for_model: Projection | None = ...,
    for_human: Projection | None = ...,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    namespace: str = "tools",
    parallel: bool = False,
    effects: bool = True,
    for_model: Projection | None = None,
    for_human: Projection | None = None,
) -> Any:
    """Make a tool of a function, a coroutine function or a bound method. Also a decorator, with or without arguments.

    The annotations are the schema: pydantic checks the arguments before the body runs and the value after it. A
    parameter annotated :class:`Workspace` is given by the host and not shown. The docstring is what the model reads.

        @prime.tool
        def lookup(id: int) -> Customer:
            "One customer by id."

    Raises:
        TypeError: one line, for a function that cannot be a tool.
    """
    if function is None:
        return functools.partial(
            tool,
            name=name,
            namespace=namespace,
            parallel=parallel,
            effects=effects,
            for_model=for_model,
            for_human=for_human,
        )
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise TypeError(f"a tool is made of a function or a bound method, not of {type(function).__name__}")
    name = name or function.__name__
    for word in (namespace, name):
        if not word.isidentifier() or keyword.iskeyword(word) or word.startswith("_"):
            raise TypeError(f"tool {name}: {word!r} is not a public Python name; pass name=... or namespace=...")
    doc = inspect.getdoc(function)
    if not doc:
        raise TypeError(f"tool {name}: it has no docstring, which is all the model knows about it; write one")
    signature = read_signature(function)
    return Tool(f"{namespace}.{name}", doc, function, parallel, effects, signature, for_model, for_human)


def waiting(item: Tool[P, R]) -> Tool[P, R]:
    """Make a tool one that waits for something that has limits of its own: while a call of it is open, the cell's
    deadline counts computing only. Also a decorator, above ``@tool``."""
    return dataclasses.replace(item, waits=True)


def _image(value: Any) -> ImagePart | None:
    if not isinstance(value, dict):
        return None
    media_type, image = value.get("media_type"), value.get("image")
    if not isinstance(media_type, str) or not isinstance(image, str) or not media_type.startswith("image/"):
        return None
    return ImagePart(media_type=media_type, data=image)


def _projected(view: Projection, default: Projection, arguments: dict[str, Any], value: Any) -> str:
    try:
        return view(arguments, value)
    except Exception:
        # the view is anybody's code, and a log may hold values of an older version of the tool: it stays readable
        return default(arguments, value)


def _pretty(arguments: dict[str, Any], value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)


def _line(target: str, arguments: dict[str, Any], value: Any) -> str:
    given = ", ".join(f"{key}={_brief(item)}" for key, item in arguments.items())
    return f"{target}({given}) -> {_brief(value)}"


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _BRIEF else text[: _BRIEF - 1] + "…"
