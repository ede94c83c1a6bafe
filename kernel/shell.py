"""The interactive shell of a kernel: what it shows, and how it says that a cell failed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from ipykernel.displayhook import ZMQShellDisplayHook
from ipykernel.zmqshell import ZMQDisplayPublisher, ZMQInteractiveShell
from IPython.core.compilerop import CachingCompiler
from IPython.core.error import UsageError
from IPython.core.formatters import DisplayFormatter
from IPython.utils.dir2 import get_real_method
from IPython.utils.text import LSString, SList
from traitlets import Type

from . import commands, display, failure, forks, lease, magics
from .bridge import Bridge, Call
from .interrupt import CELL_FILE
from .wire import CALL_KEY

_IMAGES = ("image/png", "image/jpeg")
_SVG = "image/svg+xml"
#: matplotlib's back ends that open windows.
_NEEDS_SCREEN = re.compile("qt|gtk|tk|wx|osx|macosx", re.IGNORECASE)
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class CellCompiler(CachingCompiler):
    """Gives the code of cells file names that :mod:`interrupt` and :mod:`failure` recognise."""

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
        return f"{CELL_FILE}{number}>"


class Formatter(DisplayFormatter):
    """Bounded plain text for everything, and the image forms of what has one."""

    def format(self, obj: Any, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a bundle of ``text/plain`` and at most one image, empty when the object displays itself."""
        if self._displays_itself(obj):
            return {}, {}
        plain = self.formatters["text/plain"]
        printers = {
            "singleton_pprinters": plain.singleton_printers,
            "type_pprinters": plain.type_printers,
            "deferred_pprinters": plain.deferred_printers,
        }
        data: dict[str, Any] = {"text/plain": display.text(obj, printers)}
        if type(obj).__module__ != "builtins":
            for mime in (*_IMAGES, _SVG):
                image = self._image(mime, obj)
                if image is not None:
                    data[mime] = image
                    break
        return data, {}

    def _displays_itself(self, obj: Any) -> bool:
        method = get_real_method(obj, "_ipython_display_")
        if method is None:
            return False
        return display.guarded(obj, lambda: str(method())) == "None"

    def _image(self, mime: str, obj: Any) -> str | bytes | None:
        formatter = self.formatters[mime]
        found: list[Any] = []

        def render() -> str:
            try:
                printer = formatter.lookup(obj)
            except KeyError:
                method = get_real_method(obj, formatter.print_method)
                found.append(self._bundled(mime, obj) if method is None else method())
            else:
                found.append(printer(obj))
            return ""

        display.guarded(obj, render)
        image = found[0] if found else None
        image = image[0] if isinstance(image, tuple) and image else image
        return image if isinstance(image, (str, bytes)) else None

    def _bundled(self, mime: str, obj: Any) -> Any:
        method = get_real_method(obj, "_repr_mimebundle_")
        bundle = method(include={mime}) if method is not None else None
        bundle = bundle[0] if isinstance(bundle, tuple) and bundle else bundle
        return bundle.get(mime) if isinstance(bundle, dict) else None


def admitted(data: dict[str, Any]) -> dict[str, Any]:
    """Return what may be published of a bundle: text and an image, as far as the cell's output limit allows."""
    kept: dict[str, Any] = {}
    text = data.get("text/plain", "")
    if not isinstance(text, str):
        text = ""
    meter = lease.meter()
    for mime in _IMAGES:
        image = data.get(mime)
        if isinstance(image, (str, bytes)):
            if meter is None or meter.take(len(image)):
                kept[mime] = image
            else:
                text += f"\n[{mime} of {len(image):,} bytes dropped: this cell's output is over its limit]"
            break
    if not kept:
        others = [mime for mime in data if mime != "text/plain"]
        if _SVG in data:
            text += f"\n[svg image of {len(data[_SVG]):,} characters, not shown; save it to a file or render a png]"
        elif not text and others:
            text = f"[{', '.join(map(str, others))[:200]}: no text form]"
    kept["text/plain"] = text if meter is None else meter.admit(text)
    return kept if kept["text/plain"] or len(kept) > 1 else {}


class Publisher(ZMQDisplayPublisher):
    """Publishes ``display(...)`` within the limits."""

    # a deprecated positional argument is left out, as in ipykernel
    def publish(self, data: dict[str, Any], metadata: Any = None, **options: Any) -> None:  # type: ignore[override]
        kept = admitted(data)
        if kept:
            super().publish(kept, {}, **options)


class Hook(ZMQShellDisplayHook):
    """Shows the completion of a cell once and keeps it in ``_``."""

    shell: Any

    def __call__(self, result: Any = None) -> None:
        if isinstance(result, Call):
            result = result.result()
        if result is None:
            return
        self.shell.user_ns["_"] = result
        if self.quiet():
            return
        data, _ = self.shell.display_formatter.format(result)
        kept = admitted(data)
        if not kept:
            return
        call = self.shell.origin(result)
        self.start_displayhook()
        self.write_output_prompt()
        self.write_format_data(kept, {} if call is None else {CALL_KEY: call})
        self.finish_displayhook()

    def quiet(self) -> bool:
        cell = self.shell.transformed
        return ";" in cell and bool(self.semicolon_at_end_of_expression(cell))


class Farewell:
    """Stands in for ``exit`` and ``quit``, which would end the kernel and everything in it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"{self._name}() would end the kernel and lose its variables; just end the cell instead"

    def __call__(self, *args: object, **kwargs: object) -> None:
        raise RuntimeError(repr(self))


class Shell(ZMQInteractiveShell):
    """The shell of a kernel.

    Attributes:
        transformed: the running cell after IPython's transformations.
        failed: the error that was shown last, None at the start of a cell.
        bridge: the connection to the host, once there is one.
    """

    displayhook_class = Type(Hook)
    display_pub_class = Type(Publisher)
    transformed = ""
    failed: BaseException | None = None
    bridge: Bridge | None = None
    _raw: str | None = None

    def init_display_formatter(self) -> None:
        self.display_formatter = Formatter(parent=self)
        self.configurables.append(self.display_formatter)  # type: ignore[arg-type]

    def init_hooks(self) -> None:
        super().init_hooks()
        self.set_hook("show_in_pager", _print_page, 0)

    def init_magics(self) -> None:
        super().init_magics()
        magics.register(self)

    def init_environment(self) -> None:
        """Leave the environment as the host has set it; ipykernel would ask every program for colours."""

    def system(self, cmd: str) -> None:
        """Run ``!cmd``; its exit code is in ``_exit_code``."""
        self._command(self.var_expand(cmd, depth=1))

    def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> SList | LSString:
        """Run ``out = !cmd``, ``!!cmd`` or ``%sx cmd`` and return what it writes, as lines or (``split=False``) as one
        string; its exit code is in ``_exit_code``."""
        pieces: list[str] = []
        self._command(self.var_expand(cmd, depth=depth + 1), pieces.append)
        text = "".join(pieces)
        return SList(text.splitlines()) if split else LSString(text)

    def _command(self, command: str, out: commands.Writer | None = None) -> None:
        code = self.user_ns["_exit_code"] = commands.run([commands.shell_program(), "-c", command], None, out, out)
        if code and self.system_raise_on_error:
            raise subprocess.CalledProcessError(code, command)

    @property
    def debugger_cls(self) -> Any:
        return magics.no_debugger  # what `%run -d` would start

    def ask_yes_no(self, prompt: str, *args: Any, **kwargs: Any) -> NoReturn:
        raise UsageError(f"nobody can answer {prompt.strip()!r} here; add -f if you mean yes")

    def set_next_input(self, text: str, replace: bool = False) -> NoReturn:
        raise UsageError(
            "no cell can be put before you here; show files with `%cat PATH`, or run them with `%run PATH`"
        )

    def enable_matplotlib(self, gui: str | None = None) -> Any:
        """Show figures inline, or write them with a back end that needs no screen."""
        if gui is not None and _NEEDS_SCREEN.match(gui):
            raise UsageError(f"%matplotlib {gui}: {magics.REFUSED['gui']}")
        return super().enable_matplotlib(gui)

    def init_user_ns(self) -> None:
        super().init_user_ns()
        for name in ("exit", "quit"):
            self.user_ns[name] = self.user_ns_hidden[name] = Farewell(name)

    def transform_cell(self, raw_cell: str) -> str:
        """Transform a cell; asked again about the same one, the answer is the same (ipykernel asks three times)."""
        if raw_cell != self._raw:
            self._raw = None
            self.transformed = str(super().transform_cell(raw_cell))
            self._raw = raw_cell
        return self.transformed

    def begin_cell(self) -> None:
        """Forget the cell before."""
        self._raw = None
        self.transformed = ""
        self.failed = None

    def origin(self, value: Any) -> int | None:
        """Return the number of the host call whose untouched value this is, else None."""
        return None if self.bridge is None else self.bridge.origin(value)

    async def run_ast_nodes(self, *args: Any, **options: Any) -> bool:
        """Run the cell's code; a child that it forked ends here at the latest."""
        try:
            return bool(await super().run_ast_nodes(*args, **options))
        finally:
            if forks.forked():
                forks.leave(getattr(options.get("result"), "error_in_exec", None))

    def showtraceback(self, exc_tuple: Any = None, *args: Any, **kwargs: Any) -> None:
        error = (exc_tuple or sys.exc_info())[1]
        if error is None:
            return
        self.failed = error
        file = f"{CELL_FILE}{self.execution_count - 1}>"
        self._last_traceback = [failure.render(error, file)]
        if forks.forked():  # only the parent has a channel for errors
            if not isinstance(error, SystemExit):
                print(*self._last_traceback, file=sys.stderr)
            return
        self.kernel.send_response(
            self.kernel.iopub_socket,
            "error",
            {"ename": type(error).__name__, "evalue": failure.message(error), "traceback": self._last_traceback},
        )

    @contextmanager
    def _tee(self, channel: str) -> Iterator[None]:
        # IPython keeps a copy of everything printed in its history, for ever and before any cap
        yield

    def _format_exception_for_storage(self, exception: BaseException, *args: Any, **kwargs: Any) -> dict[str, Any]:
        # IPython keeps a rich traceback of each error in its history, which costs 100 ms the first time
        return {"ename": type(exception).__name__, "evalue": failure.message(exception), "traceback": []}

    def showsyntaxerror(self, *args: Any, **kwargs: Any) -> None:
        self.showtraceback()

    def showindentationerror(self) -> None:
        self.showtraceback()


def _print_page(shell: Any, data: Any, start: int = 0, screen_lines: int = 0, pager_cmd: Any = None) -> None:
    text = data.get("text/plain", "") if isinstance(data, dict) else str(data)
    print(_ESCAPES.sub("", text))
