"""What goes on in a kernel, for people."""

from __future__ import annotations

from pydantic import TypeAdapter

from prime import peek
from prime.cli import recorded
from prime.errors import SessionNotOpen
from prime.repl.signals import Snapshot
from prime.views.terminal import plain

_SILENT = "the kernel does not answer now: a long call of C code holds its interpreter"


def show(name: str, *, as_json: bool) -> None:
    """Print what goes on in the kernel of a session that a process holds."""
    snapshot = peek.look(recorded.folder(name))
    if as_json:
        print(TypeAdapter(Snapshot | None).dump_json(snapshot).decode())
    else:
        print("\n".join(lines(snapshot)))


def connection(name: str) -> None:
    """Print the path of the connection file of a session's kernel.

    Raises:
        SessionNotOpen: no process holds the session, or it has no kernel.
    """
    snapshot = peek.look(recorded.folder(name))
    if snapshot is None:
        raise SessionNotOpen("the session has no kernel now; its next cell starts one")
    print(snapshot.connection)


def lines(snapshot: Snapshot | None) -> list[str]:
    """Return a snapshot as lines of text: what runs, where, and the names alive."""
    if snapshot is None:
        return ["no kernel now"]
    found = [_running(snapshot)]
    for place in snapshot.stack:
        function = "" if place.function == "<module>" else f" in {place.function}"
        found.append(f"  {place.file.strip('<>')} line {place.line}{function}: {place.source}")
    if snapshot.calls:
        found.append(f"waits for {', '.join(snapshot.calls[:10])}" + _rest(len(snapshot.calls) - 10))
    return [plain(line) for line in (*found, *names(snapshot))]


def names(snapshot: Snapshot) -> list[str]:
    """Return the names alive, one or more on a line as the terminal has room."""
    if not snapshot.answered:
        return [_SILENT]
    if not snapshot.names:
        return ["no names yet"]
    shown = ", ".join(f"{each.name}: {each.text}" for each in snapshot.names)
    return [plain(f"names: {shown}" + _rest(snapshot.further))]


def _running(snapshot: Snapshot) -> str:
    if snapshot.elapsed_s is not None:
        return f"a cell runs for {snapshot.elapsed_s:.1f} s"
    return "a cell of another client runs" if snapshot.stack else "no cell runs"


def _rest(count: int) -> str:
    return f" and {count:,} more" if count > 0 else ""
