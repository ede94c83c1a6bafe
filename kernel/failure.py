"""An exception as plain text: the cell's frames with their lines, library frames collapsed, bounded."""

from __future__ import annotations

import builtins
import linecache
import os
from collections.abc import Iterator
from types import TracebackType

from .interrupt import CELL_FILE

#: Most characters of one traceback.
LIMIT = 4_000

#: Most exceptions shown of a chain or a group.
_CHAIN = 4
_GROUP = 8

#: Frames of one round of a recursion that is recognised.
_PERIOD = 8

_OWN = os.path.dirname(__file__) + os.sep
_STDLIB = os.path.dirname(os.__file__) + os.sep
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
#: Python 3.10 has no exception groups.
_GROUPS: tuple[type, ...] = tuple(filter(None, (getattr(builtins, "BaseExceptionGroup", None),)))

_LOOP_RUNS = "; a cell already runs in the event loop: write `await main()` instead"
_HINTS = (
    ("asyncio.run() cannot be called from a running event loop", _LOOP_RUNS),
    ("This event loop is already running", _LOOP_RUNS),
    ("'Call'", "; a Call is not its value: write `await` before it"),
    ("IProgress not found", "; there are no widgets here: write `from tqdm import tqdm` instead"),
    ("type Call ", "; a Call is not its value: write `await` before it"),
)


def message(error: BaseException) -> str:
    """Return ``str(error)``, whatever that does, at most 2,000 characters long, with a hint where one is known."""
    try:
        text = str(error)
    except Exception as problem:
        text = f"<its text raised {type(problem).__name__}>"
    if type(error) in {RuntimeError, TypeError, ImportError}:
        text += next((hint for words, hint in _HINTS if words in text), "")
    return _sendable(text if len(text) <= 2_000 else f"{text[:1_990]} ... [cut]")


def render(error: BaseException, cell_file: str | None) -> str:
    """Return the traceback of ``error`` and of what led to it, newest last, in at most :data:`LIMIT` characters.

    ``cell_file`` is the file name of the running cell, of which those of others are told apart; None when unknown.
    """
    parts: list[str] = []
    current: BaseException | None = error
    while current is not None and len(parts) < _CHAIN:
        parts.append(_one(current, cell_file))
        if current.__cause__ is not None:
            current, link = current.__cause__, "The error above caused this one:"
        elif current.__context__ is not None and not current.__suppress_context__:
            current, link = current.__context__, "While handling the error above, another one occurred:"
        else:
            break
        parts[-1] = f"{link}\n{parts[-1]}"
    text = _sendable("\n\n".join(reversed(parts)))
    if len(text) <= LIMIT:
        return text
    tail = LIMIT * 2 // 3
    return f"{text[: LIMIT - tail - 60]}\n... {len(text) - LIMIT + 60:,} characters cut ...\n{text[-tail:]}"


def _sendable(text: str) -> str:
    """Return ``text`` with each lone surrogate escaped: a reply with one never arrives, and its cell would not end."""
    return text.encode(errors="backslashreplace").decode()


def _one(error: BaseException, cell_file: str | None, depth: int = 0) -> str:
    lines = _folded(list(_frames(error.__traceback__, cell_file)))
    name = type(error).__name__
    text = message(error)
    lines.append(f"{name}: {text}" if text else name)
    if isinstance(error, SyntaxError) and error.lineno and not (error.filename or "").startswith(CELL_FILE):
        lines.append(f"  at {error.filename}:{error.lineno}")
        if error.text:
            lines.append(f"    {error.text.strip()[:300]}")
    notes = getattr(error, "__notes__", ())
    lines.extend(str(note)[:500] for note in (notes if isinstance(notes, (list, tuple)) else ())[:5])
    if isinstance(error, _GROUPS) and depth < _CHAIN:
        group = error.exceptions  # type: ignore[attr-defined]
        for number, member in enumerate(group[:_GROUP], 1):
            lines.append(f"  {number}. " + _one(member, cell_file, depth + 1).replace("\n", "\n     "))
        if len(group) > _GROUP:
            lines.append(f"  ... and {len(group) - _GROUP} more")
    return "\n".join(lines)


def _folded(frames: list[str]) -> list[str]:
    """Return the frames with what a recursion repeats shown once."""
    folded: list[str] = []
    at = 0
    while at < len(frames):
        for period in range(1, _PERIOD + 1):
            block = frames[at : at + period]
            times = 1
            while frames[at + times * period : at + (times + 1) * period] == block:
                times += 1
            if times > 2:
                lines = "this line" if period == 1 else f"these {period} lines"
                folded += [*block, f"... {lines} {times - 1:,} more times ..."]
                at += times * period
                break
        else:
            folded.append(frames[at])
            at += 1
    return folded


def _frames(trace: TracebackType | None, cell_file: str | None) -> Iterator[str]:
    hidden = 0
    in_code = False  # frames above the first user frame are the interpreter's own
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file.startswith(CELL_FILE) or not _is_library(file):
            if hidden and in_code:
                yield _collapsed(hidden)
            hidden, in_code = 0, True
            yield _frame(trace, file, cell_file)
        elif not file.startswith(_OWN):
            hidden += 1
        trace = trace.tb_next
    if hidden and in_code:
        yield _collapsed(hidden)


def _is_library(file: str) -> bool:
    return file.startswith(("<", _OWN, _STDLIB)) or any(part in file for part in _PACKAGES)


def _frame(trace: TracebackType, file: str, cell_file: str | None) -> str:
    code = trace.tb_frame.f_code
    function = "" if code.co_name == "<module>" else f", in {code.co_name}"
    line = linecache.getline(file, trace.tb_lineno).strip()
    return f"{place(file, cell_file)} line {trace.tb_lineno}{function}" + (f"\n    {line[:300]}" if line else "")


def place(file: str, cell_file: str | None = None) -> str:
    """Return what a file of code is called: a cell, a path relative to the working directory if it is below that."""
    if file.startswith(CELL_FILE):
        return "cell" if cell_file in (None, file) else "earlier cell"
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):  # the working directory is gone, or the name is no path
        return file
    return file if relative.startswith("..") else relative


def _collapsed(count: int) -> str:
    return f"... {count} library frame{'s' if count > 1 else ''} ..."
