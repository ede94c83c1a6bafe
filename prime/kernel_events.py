"""The events of the kernel and of its variables."""

from __future__ import annotations

from typing import Literal

from prime.messages import Frozen, Json
from prime.sandbox import Level


class KernelStarted(Frozen):
    """A kernel process with an empty namespace is ready. ``sandbox`` is the level that is really in force."""

    type: Literal["kernel_started"] = "kernel_started"
    generation: int
    pid: int
    executable: str
    python: str
    ipython: str
    ipykernel: str
    interrupts: str
    sandbox: Level = "off"


class KernelLost(Frozen):
    """The kernel process is gone, and its namespace with it."""

    type: Literal["kernel_lost"] = "kernel_lost"
    generation: int
    reason: str


class SnapshotSaved(Frozen):
    """The variables, as they are here, are on the disk.

    Attributes:
        file: name of the file, in the session's folder.
        size: bytes of it that hold the variables.
        generation: the kernel process that has them.
        names: what was saved, name to type.
        left_out: what could not be, name to reason.
    """

    type: Literal["snapshot_saved"] = "snapshot_saved"
    file: str
    size: int
    generation: int
    names: Json
    left_out: Json


class SnapshotSkipped(Frozen):
    """The variables should have been saved here and were not."""

    type: Literal["snapshot_skipped"] = "snapshot_skipped"
    reason: str


class NamespaceRestored(Frozen):
    """A new kernel process got the variables of the entry ``snapshot``.

    Attributes:
        generation: the process.
        snapshot: seq of the ``SnapshotSaved``.
        restored: the names that it has now, to their types.
        missing: the names of the snapshot that it has not, to the reasons.
    """

    type: Literal["namespace_restored"] = "namespace_restored"
    generation: int
    snapshot: int
    restored: Json
    missing: Json
