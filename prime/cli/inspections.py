"""What goes on in a kernel, for people."""

from __future__ import annotations

from pydantic import TypeAdapter

from prime import peek
from prime.cli import recorded
from prime.errors import SessionNotOpen
from prime.repl.signals import Inspection
from prime.screen import collapsed

_SILENT = "the kernel does not answer now: a long call of C code holds its interpreter"


def show(name: str, *, as_json: bool) -> None:
    """Print what goes on in the kernel of a session that a process holds."""
    inspection = peek.look(recorded.folder(name))
    if as_json:
        print(TypeAdapter(Inspection | None).dump_json(inspection).decode())
    else:
        print("\n".join(lines(inspection)))


def connection(name: str) -> None:
    """Print the path of the connection file of a session's kernel.

    Raises:
        SessionNotOpen: no process holds the session, or it has no kernel.
    """
    inspection = peek.look(recorded.folder(name))
    if inspection is None:
        raise SessionNotOpen("the session has no kernel now; its next cell starts one")
    print(inspection.connection)


def lines(inspection: Inspection | None) -> list[str]:
    """Return an inspection as lines of text: what runs, where, and the names alive."""
    if inspection is None:
        return ["no kernel now"]
    found = [_running(inspection)]
    for place in inspection.stack:
        function = "" if place.function == "<module>" else f" in {place.function}"
        found.append(f"  {place.file.strip('<>')} line {place.line}{function}: {place.source}")
    if inspection.calls:
        found.append(f"waits for {', '.join(inspection.calls[:10])}" + _rest(len(inspection.calls) - 10))
    return [collapsed(line) for line in (*found, *names(inspection))]


def names(inspection: Inspection) -> list[str]:
    """Return the names alive, one or more on a line as the terminal has room."""
    if not inspection.answered:
        return [_SILENT]
    if not inspection.names:
        return ["no names yet"]
    shown = ", ".join(f"{each.name}: {each.text}" for each in inspection.names)
    return [collapsed(f"names: {shown}" + _rest(inspection.further))]


def _running(inspection: Inspection) -> str:
    if inspection.elapsed_s is not None:
        return f"a cell runs for {inspection.elapsed_s:.1f} s"
    return "a cell of another client runs" if inspection.stack else "no cell runs"


def _rest(count: int) -> str:
    return f" and {count:,} more" if count > 0 else ""
