"""The snapshots of a session's variables: written beside its log, signed, restored into the next kernel.

A snapshot is run when it is read. It is therefore signed with a key that only this user has, and a file that was not
written with it is refused before a kernel sees it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import secrets
from pathlib import Path

from prime import events as ev
from prime.errors import SnapshotFailed
from prime.log import Log
from prime.messages import plain
from prime.repl.signals import Repl, Saved, Snapshot

_logger = logging.getLogger(__name__)

#: Stands behind the variables in a file, before the code that authenticates them.
_MAGIC = b"\nprime-repl snapshot 1\n"
_CODE_BYTES = hashlib.sha256().digest_size

_PIECE = 1024 * 1024


class Snapshots:
    """Saves and restores the variables of one session. ``folder`` is the session's, ``home`` the data directory."""

    def __init__(self, log: Log, repl: Repl, folder: Path, home: Path) -> None:
        self._log = log
        self._repl = repl
        self._folder = folder
        self._home = home

    async def offer(self) -> None:
        """Have the next kernel restore the newest snapshot, if there is one."""
        await asyncio.to_thread(self._tidy)
        snapshot = self._log.state.kernel.snapshot
        if snapshot is None:
            return
        saved = snapshot.saved
        path = self._folder / Path(saved.file).name
        refused = await asyncio.to_thread(self._objection, path, saved.size)
        self._repl.restore(Snapshot(path, saved.size, tuple(saved.names), refused))

    async def take(self, *, again: bool = False) -> Saved | None:
        """Save the variables if cells have run that no snapshot covers, or ``again`` anyhow; return what was saved,
        None when nothing was.

        The file of the snapshot before it is deleted, unless a restore of it has left names out.
        """
        kernel = self._log.state.kernel
        if not (kernel.unsaved or again) or not kernel.alive or not self._log.state.trace.quiet:
            return None
        if not kernel.names and kernel.snapshot is None:
            return None
        draft = self._folder / f".{secrets.token_hex(8)}.snapshot"
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            saved = await self._repl.save(draft)
            if saved is None or saved.generation != kernel.generation:
                return None
            file, size = await asyncio.to_thread(self._seal, draft)
        except (SnapshotFailed, OSError) as error:
            _logger.warning("no snapshot of session %s: %s", self._log.session, error)
            self._log.append(ev.SnapshotSkipped(reason=plain(str(error))))
            return None
        finally:
            draft.unlink(missing_ok=True)
        event = ev.SnapshotSaved(
            file=file,
            size=size,
            generation=saved.generation,
            names={each.name: plain(each.type) for each in saved.names},
            left_out={each.name: plain(each.reason) for each in saved.left_out},
        )
        self._log.append(event, durable=True)
        self._repl.restore(Snapshot(self._folder / file, size, tuple(event.names)))
        older = kernel.snapshot
        if older is not None and not older.failed and older.saved.file != file:
            (self._folder / Path(older.saved.file).name).unlink(missing_ok=True)
        return saved

    def _tidy(self) -> None:
        """Delete what processes have left that died while they saved."""
        for draft in self._folder.glob(".*.snapshot"):
            draft.unlink(missing_ok=True)

    def _seal(self, draft: Path) -> tuple[str, int]:
        """Sign a written file and give it its name; return that and the number of bytes before the signature."""
        size = draft.stat().st_size
        digest, code = self._codes(draft, size)
        with draft.open("ab") as file:
            file.write(_MAGIC + code)
            file.flush()
            os.fsync(file.fileno())
        name = f"{digest}.snapshot"
        draft.rename(self._folder / name)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return name, size

    def _objection(self, path: Path, size: int) -> str | None:
        """Return why a file must not be restored."""
        try:
            if path.stat().st_size != size + len(_MAGIC) + _CODE_BYTES:
                return "its file is not whole"
            digest, code = self._codes(path, size)
            with path.open("rb") as file:
                file.seek(size)
                end = file.read()
        except OSError as error:
            return f"its file cannot be read: {error.strerror or error}"
        if not hmac.compare_digest(end, _MAGIC + code) or path.stem != digest:
            return "its file was changed, or written by somebody else"
        return None

    def _codes(self, path: Path, size: int) -> tuple[str, bytes]:
        """Return the digest of the first ``size`` bytes of a file and the code that authenticates them."""
        digest, code = hashlib.sha256(), hmac.new(_key(self._home), digestmod=hashlib.sha256)
        with path.open("rb") as file:
            while size > 0 and (piece := file.read(min(size, _PIECE))):
                digest.update(piece)
                code.update(piece)
                size -= len(piece)
        return digest.hexdigest(), code.digest()


def _key(home: Path) -> bytes:
    """Return the user's key, made when it is first needed."""
    path = home / "snapshot.key"
    if not path.exists():
        draft = home / f".{secrets.token_hex(8)}.key"
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(secrets.token_bytes(32))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass  # another process was faster: its key is the key
        finally:
            draft.unlink()
    return path.read_bytes()
