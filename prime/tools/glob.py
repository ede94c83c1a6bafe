"""``tools.glob``: files by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from prime.messages import Frozen
from prime.tools.base import tool
from prime.tools.files import existing_folder
from prime.tools.threads import abandoned
from prime.tools.walk import Wildcard, walk
from prime.tools.workspace import Workspace


class Found(Frozen):
    """Files, sorted by path. ``truncated``: there are more than the limit."""

    root: str
    paths: tuple[str, ...]
    truncated: bool


def _for_model(arguments: dict[str, Any], value: Any) -> str:
    if not value["paths"]:
        return f"[no file matches in {value['root']}]"
    more = "\n[there are more; narrow the pattern or raise limit]" if value["truncated"] else ""
    return "\n".join(value["paths"]) + more


def _for_human(arguments: dict[str, Any], value: Any) -> str:
    more = "+" if value["truncated"] else ""
    return f"glob {arguments['pattern']} in {value['root']}: {len(value['paths']):,}{more} files"


@tool(parallel=True, effects=False, for_model=_for_model, for_human=_for_human)
def glob(workspace: Workspace, pattern: str, path: str = ".", limit: Annotated[int, Field(ge=1)] = 1000) -> Found:
    """Find files by name below a folder, sorted by path.

    `**` stands for any number of folders ("**/*.py"), `{a,b}` for either. What .gitignore leaves out is not found, nor
    are hidden files, unless a part of the pattern begins with a dot (".github/**"). Folders themselves are not listed.
    """
    wanted = Wildcard(pattern)
    root = existing_folder(workspace, path, below=True)
    prefix = len(str(root).rstrip("/")) + 1
    paths: list[str] = []
    for entry in walk(root, hidden=wanted.hidden, depth=wanted.depth):
        if abandoned():
            break
        if wanted.matches(entry.path[prefix:]) and entry.is_file():
            if len(paths) == limit:
                return Found(root=workspace.name(root), paths=tuple(paths), truncated=True)
            paths.append(workspace.name(Path(entry.path)))
    return Found(root=workspace.name(root), paths=tuple(paths), truncated=False)
