"""Logs on a real disk for tests."""

from __future__ import annotations

import contextlib
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prime import events as ev
from prime.state import State
from prime.store.base import Store
from prime.store.sqlite import SqliteStore

#: Name of a log's file.
FILE = "log.sqlite3"


@contextlib.contextmanager
def fresh_store() -> Iterator[Store]:
    """Give an empty store in a folder of its own: a property test wants a new one for each example."""
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(SqliteStore.create(Path(folder) / FILE, ev.FORMAT)) as store,
    ):
        yield store


def facts(state: State) -> dict[str, Any]:
    """Return everything that a state says, for comparison."""
    fields = {name: getattr(state, name) for name in State.__dataclass_fields__}
    return {**fields, "surface": state.surface.nodes}


@contextlib.contextmanager
def full_disk(path: Path, room: int) -> Iterator[None]:
    """Let no file of this process grow beyond the size of ``path`` and ``room`` bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
