"""One cell, from its code to its result in the log."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from prime import events as ev
from prime import raster, shown
from prime.approvals import Gate
from prime.caps import Limits
from prime.dispatch import CellCalls
from prime.errors import KernelStartFailed
from prime.log import Log
from prime.messages import ImagePart, plain, thaw
from prime.repair import closers
from prime.repl.signals import CallCancelled, Ended, Failed, HostCall, Image, Lost, Output, Repl, Started
from prime.tools.catalogue import Catalogue
from prime.tools.workspace import Workspace


@dataclass(frozen=True)
class Cells:
    """Runs cells of one session in its kernel.

    ``context_line`` gives the line that ends a result shown to the model; ``gate`` decides about the calls.
    """

    log: Log
    repl: Repl
    catalogue: Catalogue
    workspace: Workspace
    limits: Limits
    context_line: Callable[[], str]
    gate: Gate = field(default_factory=Gate)

    async def run(self, code: str, call_id: str | None, cancel: asyncio.Event) -> ev.CellEnded:
        """Run a cell and return its result, which is in the log. ``call_id`` is None for a cell run by hand.

        When ``cancel`` is set the cell is interrupted, and its result says what came of that.
        """
        code = plain(code)  # a model can escape half of a character, which neither log nor kernel can carry
        # the place in the log makes the lease unique in the session, also after a restart
        cell = f"{self.log.session}.{len(self.log)}"
        line = self.context_line() if call_id is not None else ""
        (started,) = self.log.append(ev.CellStarted(cell=cell, call_id=call_id, code=code), durable=True)
        run = _Run(self, started.seq, cell)
        stopper = asyncio.create_task(run.stop_on(cancel))
        try:
            try:
                ended = await run.follow(code, cancel)
            finally:
                stopper.cancel()
                await run.calls.close(stop=True)
            return self._ended(run, ended, call_id, line)
        except BaseException:
            if call_id is None:  # the brackets around a call are closed by its turn
                self.log.append(*closers(self.log.state.trace, self.log.state.kernel.running))
            raise

    def _ended(self, run: _Run, ended: Ended, call_id: str | None, line: str) -> ev.CellEnded:
        finished = self._shown(run, ended, line)
        (entry,) = self.log.append(
            ev.CellEnded(
                cell=run.cell,
                call_id=call_id,
                status=ended.status,
                generation=ended.generation,
                shown=finished.parts,
                error=_error(ended.error) if ended.error is not None else None,
                set={name.name: name.type for name in ended.set},
                removed=ended.removed,
                calls=run.calls.count,
                dropped=ended.dropped,
                duration_s=ended.duration_s,
                before=finished.before,
                after=finished.after,
            ),
            durable=True,
        )
        result: ev.CellEnded = entry.event
        return result

    def _shown(self, run: _Run, ended: Ended, line: str) -> shown.Finished:
        kernel = self.log.state.kernel
        # a cell that did not run says nothing of the loss: the notice is for the first one that misses names
        told = kernel.restoration
        if ended.generation is None:
            before = ""
        elif told is not None and told.restored.generation == ended.generation:
            before = shown.restored_notice(told)
        else:
            before = shown.loss_notice(kernel.names) if kernel.ran not in (0, ended.generation) else ""
        after = "\n".join(filter(None, (shown.outcome(ended, run.calls.count > 0), line)))
        return run.shown.finish(before, after, len(self.log))


class _Run:
    """The state of one running cell."""

    def __init__(self, cells: Cells, start: int, cell: str) -> None:
        self._cells = cells
        self._start = start
        self.cell = cell
        repl = cells.repl
        self.calls = CellCalls(cell, cells.log, cells.catalogue, cells.workspace, repl.answer, cells.gate, repl.hold)
        self.shown = shown.Shown(cells.limits.visible_output_bytes)

    async def stop_on(self, cancel: asyncio.Event) -> None:
        await cancel.wait()
        await asyncio.gather(self.calls.close(stop=True), self._cells.repl.interrupt())

    async def follow(self, code: str, cancel: asyncio.Event) -> Ended:
        log, repl, timeout_s = self._cells.log, self._cells.repl, self._cells.limits.cell_timeout_s
        ended = None
        try:
            async with aclosing(repl.run(code, cell=self.cell, timeout_s=timeout_s)) as signals:
                async for signal in signals:
                    match signal:
                        case Output():
                            self._output(await _drawn(signal) if signal.svg is not None else signal)
                        case HostCall():
                            self.calls.submit(signal)
                        case CallCancelled():
                            self.calls.cancel(signal.call)
                        case Started():
                            log.append(_kernel_started(signal), *self._restored(signal))
                            if cancel.is_set():  # while the kernel started there was nothing to interrupt
                                return Ended("interrupted", None, None, (), (), (), 0, 0.0)
                        case Lost():
                            log.append(ev.KernelLost(generation=signal.generation, reason=plain(signal.reason)))
                        case Ended():
                            ended = signal
        except KernelStartFailed as error:
            failed = Failed("KernelStartFailed", str(error), "")
            return Ended("died", None, failed, (), (), (), 0, 0.0)
        assert ended is not None, "the last signal of a cell is its end"
        return replace(ended, generation=None) if ended.status == "refused" else ended

    def _restored(self, started: Started) -> tuple[ev.NamespaceRestored, ...]:
        restored, snapshot = started.restored, self._cells.log.state.kernel.snapshot
        if restored is None or snapshot is None:
            return ()
        event = ev.NamespaceRestored(
            generation=restored.generation,
            snapshot=snapshot.seq,
            restored={each.name: plain(each.type) for each in restored.names},
            missing={each.name: plain(each.reason) for each in restored.missing},
        )
        return (event,)

    def _output(self, output: Output) -> None:
        self.calls.commit()  # the log keeps the order of calls and output
        output, call = self._rendered(output)
        image = None
        if output.image is not None:
            image = ImagePart(media_type=output.image.media_type, data=output.image.data)
        self._cells.log.append(
            ev.CellOutput(
                cell=self.cell,
                stream=output.stream,
                text=output.text,
                image=image,
                late=output.late,
                target=call.target if call is not None else None,
                arguments=call.arguments if call is not None else None,
                svg=output.svg,
            )
        )
        if not output.late:
            self.shown.add(output)

    def _rendered(self, output: Output) -> tuple[Output, ev.DispatchStarted | None]:
        """Return the output in the tool's own form, with its call, when it is the untouched value of a call."""
        output = replace(output, text=plain(output.text))
        if output.call is None:
            return output, None
        # nearly always it is a call of this cell; a value of an earlier one is as old as the kernel at most
        dispatch = self._dispatch(output.call, self._start) or self._dispatch(output.call, self._kernel_start())
        if dispatch is None:  # its end waits in the log for an earlier call that still runs: the plain form will do
            return output, None
        begun, value = dispatch
        tool = self._cells.catalogue.get(begun.target)
        pictures = (Image(picture.media_type, picture.data) for picture in tool.images(value))
        text = plain(tool.for_model(thaw(begun.arguments), value))
        return replace(output, text=text, image=next(pictures, output.image)), begun

    def _dispatch(self, call: int, start: int) -> tuple[ev.DispatchStarted, Any] | None:
        """Return the start and the value of a call that was made at entry ``start`` or later."""
        begun: ev.DispatchStarted | None = None
        for entry in self._cells.log.entries(start, types=("dispatch_started", "dispatch_ended")):
            if entry.event.call != call:
                continue
            if isinstance(entry.event, ev.DispatchStarted):
                begun = entry.event
            elif begun is not None and entry.event.error is None:
                return begun, thaw(entry.event.value)
        return None

    def _kernel_start(self) -> int:
        *_, entry = self._cells.log.entries(types=("kernel_started",))
        return entry.seq


async def _drawn(output: Output) -> Output:
    """Return an output with its svg image as a picture, or with a line that says why there is none."""
    svg = plain(output.svg or "")
    picture = await raster.png(svg)
    if picture is not None:
        return replace(output, svg=svg, image=Image("image/png", b64encode(picture).decode()))
    line = f"[svg image of {len(svg):,} characters, not shown: it cannot be drawn here; render a png]"
    return replace(output, svg=svg, text=f"{output.text}\n{line}".lstrip("\n"))


def _error(failed: Failed) -> ev.CellError:
    return ev.CellError(name=plain(failed.name), message=plain(failed.message), traceback=plain(failed.traceback))


def _kernel_started(started: Started) -> ev.KernelStarted:
    return ev.KernelStarted(
        generation=started.generation,
        pid=started.pid,
        executable=started.executable,
        python=started.python,
        ipython=started.ipython,
        ipykernel=started.ipykernel,
        interrupts=started.interrupts,
        sandbox=started.sandbox,
    )
