"""The sessions of a data directory: create, open, read, list, fork, delete.

A session is one folder: ``log.sqlite3``, the lock that its owning process holds for as long as it lives, and a readable
record of that owner. Copying or sharing a session is copying its folder. The id of a child's session is that of its
parent's, a point, and a number; it is deleted with it.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock, Timeout

from prime import events as ev
from prime import running
from prime.errors import AppendRefused, CorruptLog, LogError, SessionBusy, SessionNotFound
from prime.log import Log, read
from prime.repair import closers
from prime.store.base import Store
from prime.store.sqlite import SqliteStore
from prime.trace import Trace

VERSION = version("prime-repl")


class Sessions:
    """All sessions below ``home``."""

    def __init__(self, home: Path) -> None:
        self._root = home / "sessions"

    def ids(self) -> list[str]:
        """Return the ids of all sessions but those of children, newest first (an id begins with the time of its
        creation)."""
        return [each for each in reversed(self._every()) if "." not in each]

    def all(self) -> list[str]:
        """Return the ids of all sessions: those of :meth:`ids`, each followed by those of its children."""
        return [each for root in self.ids() for each in (root, *self.children(root))]

    def children(self, session: str) -> list[str]:
        """Return the ids of the sessions of a session's children and of their children, in the order of their start."""
        found = [each for each in self._every() if each.startswith(f"{session}.")]
        return sorted(found, key=lambda each: [int(number) for number in each.split(".")[1:]])

    def resolve(self, name: str) -> str:
        """Return the id that ``name`` means: an id, the unique start of one, or ``last``.

        Raises:
            SessionNotFound: none, or more than one; names the nearest.
        """
        ids = self.ids()
        if name == "last" and ids:
            return ids[0]
        known = self._every() if "." in name else ids
        found = [name] if name in known else [each for each in known if name and each.startswith(name)]
        if len(found) == 1:
            return found[0]
        if found:
            raise SessionNotFound(f"{name!r} begins several sessions: {', '.join(found[:5])}; write more of the id")
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.3) or ids[:3]
        hint = f"the nearest: {', '.join(near)}" if near else "there are none yet"
        raise SessionNotFound(f"no session {name!r}; {hint}")

    @contextlib.contextmanager
    def create(self, cwd: Path) -> Iterator[Log]:
        """Create a session, hold its lock, and close it at the end."""
        session = _new_id()
        with self._draft(session) as store, Log(store) as log:
            created = ev.SessionCreated(session=session, cwd=str(cwd.resolve()), version=VERSION)
            log.append(created, durable=True)
        with self._owned(session) as log:
            yield log

    @contextlib.contextmanager
    def open(self, session: str) -> Iterator[Log]:
        """Open a session for writing: hold its lock, repair what a dead process left open, and close it at the end.

        Raises:
            SessionBusy: another process holds it.
            CorruptLog, UnsupportedLog: it cannot be read whole; nothing was written.
        """
        with self._owned(session) as log:
            mend(log)
            log.append(ev.SessionResumed(version=VERSION), durable=True)
            yield log

    @contextlib.contextmanager
    def read(self, session: str) -> Iterator[Store]:
        """Open a session's store read-only, whoever writes to it.

        Raises:
            SessionNotFound: there is none.
            CorruptLog, UnsupportedLog: it is not readable.
        """
        if not _file(self.folder(session)).is_file():
            raise SessionNotFound(f"no session {session!r}")
        store = SqliteStore.read(_file(self.folder(session)), ev.FORMAT)
        try:
            yield store
        finally:
            store.close()

    def fork(self, parent: str, boundary: int | None = None) -> str:
        """Copy a session's entries up to and including seq ``boundary`` (by default all) into a new session.

        Pending inputs and the kernel of the parent are not inherited; a snapshot of its variables is, when the newest
        one within the boundary is still there.

        Raises:
            LogError: the boundary lies inside an open turn or cell, or beyond the end.
        """
        session = _new_id()
        self._fork(boundary, ev.SessionForked(session=session, parent=parent, version=VERSION))
        return session

    def beget(self, order: ev.ChildSpawned, cwd: str, *words: ev.InputQueued) -> None:
        """Create the session of a child with its first inputs, as its parent's log has it; nothing when it is there.

        Raises:
            LogError: see :meth:`fork`.
        """
        session, parent = order.agent_id, order.agent_id.rpartition(".")[0]
        if _file(self.folder(session)).is_file():
            return
        shutil.rmtree(self._hidden(session), ignore_errors=True)  # of a process that died while it did this
        if order.fork is not None:
            forked = ev.SessionForked(session=session, parent=parent, version=VERSION, child=True)
            self._fork(order.fork, forked, *words)
            return
        with self._draft(session) as store, Log(store) as log:
            created = ev.SessionCreated(session=session, cwd=cwd, version=VERSION, parent=parent)
            log.append(created, *words, durable=True)

    def _fork(self, boundary: int | None, forked: ev.SessionForked, *words: ev.InputQueued) -> None:
        with self.read(forked.parent) as source:
            last = source.last()
            end = last.seq if last else -1
            boundary = end if boundary is None else boundary
            if not 0 <= boundary <= end:
                raise LogError(f"{forked.parent} has entries 0 to {end}; a fork cannot end at {boundary}")
            _check_boundary(source, forked.parent, boundary)
            with self._draft(forked.session) as store:
                for row in source.rows(0, boundary + 1):
                    store.append([row], {digest: source.blob(digest) for digest in row.blobs.values()}, durable=False)
                with Log(store) as log:
                    if (snapshot := log.state.kernel.snapshot) is not None:
                        self._share(Path(snapshot.saved.file).name, forked.parent, self._hidden(forked.session))
                    log.append(forked, *words, durable=True)

    def delete(self, session: str) -> None:
        """Delete a session's folder, and those of its children.

        Raises:
            SessionBusy: a process holds one of them; what was deleted before it is.
        """
        for child in reversed(self.children(session)):
            self._delete(child)
        self._delete(session)

    def _delete(self, session: str) -> None:
        with self._locked(session):
            doomed = self._hidden(session)  # half of a deleted session is never seen
            self.folder(session).rename(doomed)
            shutil.rmtree(doomed)

    def folder(self, session: str) -> Path:
        """Return a session's folder."""
        return self._root / session

    def _share(self, file: str, parent: str, folder: Path) -> None:
        """Give ``folder`` a file of the parent's that never changes, if it is there."""
        try:
            os.link(self.folder(parent) / file, folder / file)
        except FileNotFoundError:  # deleted for a newer one; whoever opens the fork says that it is gone
            return
        except OSError:  # a file system without links
            shutil.copyfile(self.folder(parent) / file, folder / file)

    def _every(self) -> list[str]:
        if not self._root.is_dir():
            return []
        return sorted(found.name for found in self._root.glob("[!.]*") if _file(found).is_file())

    def _hidden(self, session: str) -> Path:
        return self._root / f".{session}"

    @contextlib.contextmanager
    def _draft(self, session: str) -> Iterator[Store]:
        """Give a new store whose folder takes its place when it is complete: half a session is never seen."""
        draft = self._hidden(session)
        draft.mkdir(mode=0o700, parents=True)
        store = SqliteStore.create(_file(draft), ev.FORMAT)
        try:
            yield store
        except BaseException:
            store.close()
            shutil.rmtree(draft)
            raise
        store.close()
        draft.rename(self.folder(session))

    @contextlib.contextmanager
    def _owned(self, session: str) -> Iterator[Log]:
        with self._locked(session):
            store = SqliteStore.open(_file(self.folder(session)), ev.FORMAT)
            try:
                with Log(store) as log:
                    yield log
                    if log.state.trace.quiet:
                        log.append(ev.SessionClosed(), durable=True)
            finally:
                store.close()

    @contextlib.contextmanager
    def _locked(self, session: str) -> Iterator[None]:
        folder = self.folder(session)
        if not folder.is_dir():
            raise SessionNotFound(f"no session {session!r}")
        record = folder / "owner.json"
        lock = FileLock(folder / "lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            owner = record.read_text() if record.is_file() else ""
            pid = json.loads(owner)["pid"] if owner else "unknown"
            raise SessionBusy(
                f"session {session} is open in process {pid}; end it or fork the session", owner
            ) from None
        try:
            record.write_text(json.dumps({"pid": os.getpid(), "since": time.strftime("%Y-%m-%dT%H:%M:%S%z")}))
            yield
        finally:
            record.unlink(missing_ok=True)
            lock.release()


def mend(log: Log) -> None:
    """Close what a dead process left open, and say which jobs are lost with it. Deterministic and idempotent: the
    entries bear the time of the last real one."""
    kernel = log.state.kernel
    events = closers(log.state.trace, kernel.running)
    if kernel.alive:
        lost = ev.KernelLost(generation=kernel.generation, reason="the process that ran it is gone")
        events = (*events, lost)
    events = (*events, *running.lost(log.state.running))
    if events:
        (last,) = log.entries(len(log) - 1)
        log.append(*events, durable=True, at=last.at)


def _check_boundary(source: Store, parent: str, boundary: int) -> None:
    trace = Trace()
    try:
        for entry in read(source, 0, boundary + 1):
            trace = trace.after(entry.event)
    except AppendRefused as error:
        raise CorruptLog(f"the log of {parent} is damaged: {error}") from error
    if not trace.quiet:
        raise LogError(f"entry {boundary} of {parent} lies inside an open turn; fork at the end of a turn")


def _new_id() -> str:
    now = datetime.now()
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03d}{secrets.token_hex(2)}"


def _file(folder: Path) -> Path:
    return folder / "log.sqlite3"
