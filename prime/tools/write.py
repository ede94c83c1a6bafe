"""``tools.write``: a whole file, new or replaced."""

from __future__ import annotations

from typing import Any, Literal

from prime.messages import Frozen
from prime.tools.base import tool
from prime.tools.files import existing_file, failures, replace, unified
from prime.tools.text import decode, unix
from prime.tools.workspace import Workspace, fingerprint


class Written(Frozen):
    """A file that was written. ``replaced`` counts the places that changed: one for a file replaced whole."""

    path: str
    operation: Literal["create", "update"]
    diff: str
    replaced: int


def for_model(arguments: dict[str, Any], value: Any) -> str:
    """Return the diff of a change; of a new file, which the model has just written, only that it is there."""
    if value["operation"] == "create":
        return f"created {value['path']}"
    return value["diff"] or f"{value['path']} has that content already"


def for_human(arguments: dict[str, Any], value: Any) -> str:
    """Return the path with the lines added and removed."""
    lines = value["diff"].split("\n")[2:]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    done = "created" if value["operation"] == "create" else "changed"
    return f"{done} {value['path']} (+{added} -{removed} lines)"


@tool(for_model=for_model, for_human=for_human)
def write(workspace: Workspace, path: str, content: str) -> Written:
    """Write a whole file, in one step; missing folders are made.

    An existing file must have been read before and not have changed since. It keeps its encoding and newline style; a
    new file is UTF-8 with the newlines of `content`.
    """
    target = workspace.resolve(path)
    name = workspace.name(target)
    with failures(name), workspace.writing(target) as place:
        if not place.exists():
            data = content.encode()
            workspace.permit(target, unix(content))
            replace(place, data)
            workspace.saw(target, fingerprint(data))
            return Written(path=name, operation="create", diff=unified("", content, name), replaced=0)
        existing_file(workspace, path)
        before = place.read_bytes()
        old = decode(before, name)
        workspace.expect(target, fingerprint(before))
        data = old.encode(unix(content).removeprefix("\ufeff").replace("\n", old.newline), name)
        workspace.permit(target, unix(content))
        replace(place, data)
        workspace.saw(target, fingerprint(data))
        diff = unified(unix(old.raw), unix(content), name)
        return Written(path=name, operation="update", diff=diff, replaced=1)
