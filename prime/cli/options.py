"""Options that several commands have in common, and how a command takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

if TYPE_CHECKING:
    from prime.config import Config

_CWD = "Folder to work in: the session's own, or the current one."
_MODEL = "The model: openai/…, anthropic/…, deepseek/…, compatible/… with --base-url, local/…, scripted/FILE."
_RULE = "Allow, ask or deny calls, such as 'deny tools.bash command=*git push*'; may be given again."
_APPROVALS = "With --json: take answers from standard input when a rule asks; see docs/safety.md."
_SANDBOX = "Keep cells and commands in a sandbox: full (workspace only, no network), net-off, or off."
_POLICY = "How a long session is kept within the window: auto, fold, slice, window, transcript or stream."


@dataclass(frozen=True, slots=True)
class KernelOptions:
    """Where cells run. ``timeout`` is seconds."""

    cwd: Annotated[Path | None, typer.Option("--cwd", metavar="DIR", help=_CWD)] = None
    python: Annotated[
        str | None, typer.Option("--python", metavar="PATH", help="Interpreter of the kernel; it needs ipykernel.")
    ] = None
    timeout: Annotated[
        float | None, typer.Option("--cell-timeout", metavar="S", help="Seconds that one cell may run.")
    ] = None

    ask: Annotated[bool, typer.Option("--ask", help="Ask before each call with effects or to the network.")] = False
    rule: Annotated[list[str] | None, typer.Option("--rule", metavar="RULE", help=_RULE)] = None
    sandbox: Annotated[str | None, typer.Option("--sandbox", metavar="LEVEL", help=_SANDBOX)] = None

    def config(self, **others: Any) -> Config:
        """Return the configuration with these options over it.

        Raises:
            ConfigError: it is wrong; one line.
        """
        from prime.config import load

        given = {"python": self.python, "cell_timeout_s": self.timeout, "sandbox": self.sandbox, **others}
        given |= {"gate": self.rule or None, "gate_default": "ask" if self.ask else None}
        return load(self.cwd or Path.cwd(), given)


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Which model works, and how much of it. ``budget`` is US dollars."""

    model: Annotated[str | None, typer.Option("--model", "-m", metavar="PROVIDER/NAME", help=_MODEL)] = None
    base_url: Annotated[str | None, typer.Option("--base-url", metavar="URL", help="Address of the model.")] = None
    max_steps: Annotated[int | None, typer.Option("--max-steps", metavar="N", help="Model requests in a turn.")] = None
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="USD", help="Dollars a session may cost, for priced models.")
    ] = None
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", metavar="N", help="Tokens of one reply.")] = None
    context_policy: Annotated[str | None, typer.Option("--context-policy", metavar="POLICY", help=_POLICY)] = None

    def config(self, kernel: KernelOptions) -> Config:
        """Return the configuration with these options over it.

        Raises:
            ConfigError: it is wrong; one line.
        """
        return kernel.config(**{each.name: getattr(self, each.name) for each in fields(self)})


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """What a run prints for a program, and whether it listens to one."""

    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")] = False
    deltas: Annotated[bool, typer.Option("--deltas", help="With --json: the pieces of replies too.")] = False
    approvals: Annotated[str | None, typer.Option("--approvals", metavar="stdin", help=_APPROVALS)] = None

    @property
    def form(self) -> Literal["json", "deltas"] | None:
        """What is printed: entries, entries and pieces of replies, or words."""
        return "deltas" if self.deltas else "json" if self.as_json else None


def flat(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take dataclasses of options: each of their fields becomes an option of the command."""
    given = inspect.signature(command, eval_str=True).parameters
    groups: dict[str, Any] = {name: one.annotation for name, one in given.items() if is_dataclass(one.annotation)}
    flattened: list[inspect.Parameter] = []
    for name, one in given.items():
        if name not in groups:
            flattened.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(groups[name], include_extras=True)
        flattened += [
            inspect.Parameter(
                each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name]
            )
            for each in fields(groups[name])
        ]

    @wraps(command)
    def gathered(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{each.name: values.pop(each.name) for each in fields(group)})
        command(**values)

    gathered.__signature__ = inspect.Signature(flattened)  # type: ignore[attr-defined]
    gathered.__annotations__ = {one.name: one.annotation for one in flattened}
    return gathered
