"""What the commands about recorded sessions do."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from prime import events as ev
from prime import log
from prime import recoverable as recoverability
from prime import verify as verification
from prime.cli.images import keep
from prime.config import load
from prime.errors import LogError, PrimeError
from prime.pricing import Prices, shown
from prime.sessions import Sessions
from prime.views import jsonl, markdown, summary
from prime.views.transcript import Transcript, transcript


def table(*, as_json: bool, children: bool) -> None:
    """Print a row for each session, newest first, with ``children`` each followed by those of its children."""
    found = rows(_sessions(), children=children)
    if as_json:
        for row in found:
            print(json.dumps(row.as_json(), ensure_ascii=False))
        return
    lines = [
        (
            row.id,
            f"{row.started.astimezone():%m-%d %H:%M}",
            str(row.turns),
            str(row.cells),
            shown(row.price),
            row.title,
        )
        for row in found
    ]
    if not lines:
        print("no sessions yet; `prime-repl demo` makes the first", file=sys.stderr)
        return
    print_table([("id", "started", "turns", "cells", "price", "title"), *lines])


def print_table(lines: Sequence[Sequence[str]]) -> None:
    """Print lines of cells as columns, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in lines:
        aligned = (
            cell.rjust(width) if cell.replace(",", "").isdigit() else cell.ljust(width)
            for cell, width in zip(line, widths, strict=True)
        )
        print("  ".join(aligned)[:columns].rstrip())


def show(name: str, *, as_json: bool) -> None:
    """Print a session: for people, or every entry."""
    from prime.views import terminal

    sessions = _sessions()
    with sessions.read(sessions.resolve(name)) as store:
        if as_json:
            sys.stdout.writelines(jsonl.lines(log.read(store)))
            return
        whole = transcript(log.read(store))
    if sys.stdout.isatty():
        terminal.console().print(terminal.document(whole, prices=_prices()))
    else:
        print(markdown.markdown(whole, prices=_prices()), end="")


def export(name: str, to: str, output: Path | None) -> None:
    """Write a session as ``md`` or ``jsonl`` to stdout or to a file."""
    sessions = _sessions()
    export_from(sessions, sessions.resolve(name), to, output)


def export_from(sessions: Sessions, session: str, to: str, output: Path | None) -> None:
    """Write a session of ``sessions`` as ``md`` or ``jsonl`` to stdout or to a file."""
    with sessions.read(session) as store:
        if to == "md":
            _export_markdown(transcript(log.read(store)), output)
        elif output is None:
            sys.stdout.writelines(jsonl.lines(log.read(store)))
        else:
            with output.open("w", encoding="utf-8") as file:
                file.writelines(jsonl.lines(log.read(store)))


def fork(name: str, turn: int | None, at: int | None) -> str:
    """Copy a session up to the end of ``turn``, or up to the entry ``at``, or whole; return the copy's id."""
    sessions = _sessions()
    session = sessions.resolve(name)
    if turn is not None:
        with sessions.read(session) as store:
            ends = {entry.turn: entry.seq for entry in log.read(store, types=("turn_ended",))}
            if turn not in ends:
                raise LogError(f"{session} has no finished turn {turn}; it has {len(ends)}")
            at = ends[turn]
            # a snapshot that was taken right at its end belongs to it
            at += sum(isinstance(entry.event, ev.SnapshotSaved) for entry in log.read(store, at + 1, at + 2))
    return sessions.fork(session, at)


def verify(name: str | None, *, recoverable: bool) -> bool:
    """Check one session, or all of them, and say what was found; return whether all is well. ``recoverable``: also
    whether everything in it can be got back from its next request."""
    sessions = _sessions()
    well = True
    for session in sessions.all() if name is None else [sessions.resolve(name)]:
        try:
            with sessions.read(session) as store:
                report = verification.verify(store)
                found = asyncio.run(recoverability.check(store)) if recoverable else None
        except PrimeError as error:
            well = False
            print(f"error: {session}: {error}", file=sys.stderr)
            continue
        print(f"{session}: {report.entries:,} entries and {report.requests:,} requests checked, all as written")
        if found is not None:
            well &= _recovered(session, found)
    return well


def _recovered(session: str, found: recoverability.Report) -> bool:
    print(
        f"{session}: {found.originals:,} texts and pictures: {found.whole:,} in the next request, "
        f"{found.one:,} one call away, {found.two:,} two calls away, {found.listed:,} by listing the log; "
        f"{found.calls:,} calls made"
    )
    for failed in found.failed[:3]:
        print(f"{session}: a call that the request names fails: {failed}", file=sys.stderr)
    if not found.misses:
        return True
    first = found.misses[0]
    print(
        f"error: {session}: nothing leads to {len(found.misses):,} texts or pictures; the first is entry {first.seq}, "
        f"{first.kind}, {first.size:,} characters",
        file=sys.stderr,
    )
    return False


def resolve(name: str) -> str:
    """Return the id that ``name`` means."""
    return _sessions().resolve(name)


def folder(name: str) -> Path:
    """Return the folder of the session that ``name`` means."""
    sessions = _sessions()
    return sessions.folder(sessions.resolve(name))


def delete(session: str) -> None:
    """Delete a session for good."""
    _sessions().delete(session)


def rows(sessions: Sessions, *, children: bool = False) -> Iterator[summary.Row]:
    """Yield a row for each readable session, newest first, with ``children`` each followed by those of its children;
    say on stderr which one is not readable."""
    prices = _prices()
    for session in sessions.all() if children else sessions.ids():
        try:
            with sessions.read(session) as store:
                yield summary.row(log.read(store, types=summary.TYPES), prices=prices)
        except PrimeError as error:
            print(f"error: {session}: {error}", file=sys.stderr)


def _prices() -> Prices:
    return Prices(load(Path.cwd()).prices)


def _sessions() -> Sessions:
    return Sessions(load(Path.cwd()).home)


def _export_markdown(whole: Transcript, output: Path | None) -> None:
    if output is None:
        print(markdown.markdown(whole, prices=_prices()), end="")
        return
    folder = output.with_name(f"{output.stem}-images")
    output.write_text(markdown.markdown(whole, folder.name, prices=_prices()), encoding="utf-8")
    for image in whole.images:
        keep(folder, image)
