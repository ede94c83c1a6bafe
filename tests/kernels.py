"""A real kernel for tests, with a few host calls that tests answer in known ways."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from prime_kernel.wire import Binding, Parameter

from prime import guest
from prime.bubblewrap import Bubblewrap, Wanted
from prime.repl.kernel import KernelRepl
from prime.repl.pool import Pool
from prime.repl.process import Launch
from prime.repl.signals import (
    CallCancelled,
    Ended,
    Error,
    HostCall,
    Lost,
    Outcome,
    Output,
    Signal,
    Started,
    Value,
)
from prime.repl.template import Template
from prime.sandbox import OFF, Sandbox

_VALUE = Parameter("value", "Any", None, False)

#: ``echo`` gives its argument back; ``fail`` fails; ``never`` is not answered; ``slow`` is answered by a later
#: ``release`` or when it is cancelled; ``read`` has a signature worth reading.
BINDINGS = (
    Binding("tools.echo", (_VALUE,), "Call", "Give the value back."),
    Binding("tools.fail", (), "Call", "Fail."),
    Binding("tools.never", (), "Call", "Stay open."),
    Binding("tools.slow", (_VALUE,), "Call", "Be answered late."),
    Binding("tools.release", (), "Call", "Have the slow ones answered."),
    Binding(
        "tools.read",
        (Parameter("path", "str", None, False), Parameter("limit", "int", "2000", False)),
        "Call",
        "Read a file.",
    ),
    Binding("history.search", (Parameter("query", "str", None, False),), "Call", "Search."),
)


@dataclass(frozen=True)
class Seen:
    """What one cell said."""

    signals: tuple[Signal, ...]

    @property
    def ended(self) -> Ended:
        last = self.signals[-1]
        assert isinstance(last, Ended)
        return last

    @property
    def status(self) -> str:
        return self.ended.status

    @property
    def error(self) -> str:
        assert self.ended.error is not None
        return f"{self.ended.error.name}: {self.ended.error.message}"

    @property
    def calls(self) -> list[HostCall]:
        return [signal for signal in self.signals if isinstance(signal, HostCall)]

    @property
    def outputs(self) -> list[Output]:
        """The outputs; what was printed in one go may come in pieces, which are joined here."""
        joined: list[Output] = []
        for signal in self.signals:
            if not isinstance(signal, Output):
                continue
            last = joined[-1] if joined else None
            printed = signal.stream in {"stdout", "stderr"}
            if printed and last is not None and (last.stream, last.late) == (signal.stream, signal.late):
                joined[-1] = replace(last, text=last.text + signal.text)
                continue
            joined.append(signal)
        return joined

    @property
    def started(self) -> list[Started]:
        return [signal for signal in self.signals if isinstance(signal, Started)]

    @property
    def lost(self) -> list[Lost]:
        return [signal for signal in self.signals if isinstance(signal, Lost)]

    @property
    def result(self) -> str:
        """The completion's text."""
        (output,) = (output for output in self.outputs if output.stream == "result")
        return output.text

    def text(self, stream: str = "stdout") -> str:
        return "".join(output.text for output in self.outputs if output.stream == stream and not output.late)


#: Whether kernels are forked from a template: the whole suite has to run on those too (``pytest --forked``).
FORKED = False

#: Whether kernels run in a sandbox, which must change nothing that does not need the network (``pytest --sandboxed``).
SANDBOXED = False


def needs_numbers_of_the_host() -> None:
    """Skip a test that finds processes by the numbers that a cell has told: in a sandbox they are others."""
    if SANDBOXED:
        pytest.skip("in a sandbox processes have numbers of its own")


class ForkedRepl(KernelRepl):
    """A repl with a pool of its own, which ends with it."""

    async def close(self) -> None:
        await super().close()
        await self._pool.close()


class Kernel:
    """A repl whose host calls are answered."""

    def __init__(self, repl: KernelRepl) -> None:
        self.repl = repl
        self._count = 0
        self._slow: dict[int, Any] = {}

    async def cell(
        self, code: str, *, timeout_s: float | None = None, on: Callable[[Signal], None] | None = None
    ) -> Seen:
        """Run a cell to its end. ``on`` sees each signal as it comes."""
        self._count += 1
        signals = []
        async for signal in self.repl.run(code, cell=f"cell-{self._count}", timeout_s=timeout_s):
            signals.append(signal)
            if on is not None:
                on(signal)
            if isinstance(signal, HostCall):
                await self._answer(signal)
            elif isinstance(signal, CallCancelled):
                self._slow.pop(signal.call, None)
                await self.repl.answer(signal.call, Error("cancelled", "cancelled"))
        return Seen(tuple(signals))

    async def value(self, code: str) -> str:
        """Run a cell that succeeds and return its completion's text."""
        seen = await self.cell(code)
        assert seen.status == "ok", seen.ended
        return seen.result

    async def interrupted(self, code: str, *, mark: str = "ready") -> Seen:
        """Run a cell and interrupt it once it has printed ``mark``."""
        stopping: list[asyncio.Future[None]] = []

        def on(signal: Signal) -> None:
            if isinstance(signal, Output) and mark in signal.text and not stopping:
                stopping.append(asyncio.ensure_future(self.repl.interrupt()))

        seen = await self.cell(code, on=on)
        await asyncio.gather(*stopping)
        assert stopping
        return seen

    async def _answer(self, call: HostCall) -> None:
        name = call.target.partition(".")[2]
        outcome: Outcome | None
        if name == "never":
            outcome = None
        elif name == "slow":
            self._slow[call.call] = call.arguments["value"]
            outcome = None
        elif name == "fail":
            outcome = Error("not_found", "there is nothing")
        else:
            outcome = Value(call.arguments.get("value", call.arguments))
        if outcome is not None:
            await self.repl.answer(call.call, outcome)
        if name == "release":
            for number, value in self._slow.items():
                await self.repl.answer(number, Value(value))
            self._slow.clear()


def kernel(
    cwd: Path,
    *,
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
    patience_s: float = 30.0,
    sandbox: Sandbox = OFF,
    **options: Any,
) -> Kernel:
    """Return a kernel that is started by its first cell."""
    environment = guest.environment(os.environ) if environment is None else environment
    if SANDBOXED and sandbox is OFF and "pool" not in options:
        sandbox = Bubblewrap(Wanted("net-off", cwd, cwd, python, environment))
    launch = Launch(python, cwd, environment, patience_s, sandbox)
    if FORKED and "pool" not in options:
        return Kernel(ForkedRepl(BINDINGS, launch, pool=Pool(template=Template(python, environment)), **options))
    return Kernel(KernelRepl(BINDINGS, launch, **options))
