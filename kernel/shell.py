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

from . import commands, display, failure, forks, forms, lease, magics
from .bridge import Bridge, Call
from .interrupt import CELL_FILE
from .names import is_builtin
from .source import tree
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

    def ast_parse(self, source: str, filename: str = "<unknown>", symbol: str = "exec") -> Any:
        return tree(source, filename, symbol, self.flags)


class Formatter(DisplayFormatter):
    """Bounded plain text for everything, and the image forms of what has one."""

    def format(self, obj: Any, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a bundle of ``text/plain`` and at most one image, empty when the object displays itself."""
        data: dict[str, Any] = {}
        stub = display.guarded(obj, lambda: self._fill(data, obj))
        if stub:  # even to look at it raised
            data.setdefault("text/plain", stub)
        return data, {}

    def _fill(self, data: dict[str, Any], obj: Any) -> str:
        if is_builtin(obj):
            data["text/plain"] = self._text(obj)
        elif not self._displays_itself(obj):
            bundle = self._bundle(obj)
            text = bundle.get("text/plain")
            data["text/plain"] = text[: display.TEXT_LIMIT] if isinstance(text, str) else self._text(obj)
            shown = forms.scaled(obj)
            if shown is not obj:
                data["text/plain"] += f"\n[shown scaled down to {shown.size[0]}x{shown.size[1]}]"
            for mime in (*_IMAGES, _SVG):
                image, stub = self._form(mime, shown, bundle)
                if stub and stub not in data["text/plain"]:
                    data["text/plain"] += f"\n[{mime}: {stub}]"
                if isinstance(image, (str, bytes)):
                    data[mime] = image
                    return ""
            if forms.bare(data["text/plain"]):
                found = {mime: self._form(mime, obj, bundle)[0] for mime in forms.FORMS}
                words = forms.words({mime: form for mime, form in found.items() if form is not None})
                data["text/plain"] = words or data["text/plain"]
        return ""

    def _text(self, obj: Any) -> str:
        plain = self.formatters["text/plain"]
        printers = {
            "singleton_pprinters": plain.singleton_printers,
            "type_pprinters": plain.type_printers,
            "deferred_pprinters": plain.deferred_printers,
        }
        return display.text(obj, printers)

    def _displays_itself(self, obj: Any) -> bool:
        method = get_real_method(obj, "_ipython_display_")
        if method is None:
            return False
        return display.guarded(obj, lambda: str(method())) == "None"

    def _form(self, mime: str, obj: Any, bundle: dict[str, Any]) -> tuple[Any, str]:
        """Return one form of an object: of its bundle, of a registered printer, of its method; None without one. And
        what went wrong, if anything."""
        if mime in bundle:
            return bundle[mime], ""
        formatter = self.formatters[mime]
        form: Any = None

        def render() -> str:
            nonlocal form
            try:
                printer = formatter.lookup(obj)
            except KeyError:
                method = get_real_method(obj, formatter.print_method)
                form = None if method is None else method()
            else:
                form = printer(obj)
            return ""

        stub = display.guarded(obj, render, display.IMAGE_LIMIT_S)
        return _data(form), stub

    def _bundle(self, obj: Any) -> dict[str, Any]:
        method = get_real_method(obj, "_repr_mimebundle_")
        bundle: Any = None

        def render() -> str:
            nonlocal bundle
            bundle = _data(method(include=None, exclude=None))  # type: ignore[misc]
            return ""

        if method is not None:
            display.guarded(obj, render, display.TIME_LIMIT_S)
        return bundle if isinstance(bundle, dict) else {}


def _data(form: Any) -> Any:
    """Return a form without the metadata that may come with it."""
    return form[0] if isinstance(form, tuple) and form else form


def admitted(data: dict[str, Any]) -> dict[str, Any]:
    """Return what may be published of a bundle: text and an image, as far as the cell's output limit allows."""
    kept: dict[str, Any] = {}
    text = data.get("text/plain", "")
    if not isinstance(text, str):
        text = ""
    meter = lease.meter()
    for mime in (*_IMAGES, _SVG):
        image = data.get(mime)
        if isinstance(image, (str, bytes)):
            if meter is None or meter.take(len(image)):
                kept[mime] = image
            else:
                text += f"\n[{mime} of {len(image):,} bytes dropped: this cell's output is over its limit]"
            break
    if not kept and not text:
        text = forms.words({mime: form for mime, form in data.items() if mime != "text/plain"})
    if meter is not None:
        text = meter.admit(f"\n{text}\n" if meter.full and text else text)
    kept["text/plain"] = text
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
        if type(result) is Call:
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
