"""``tools.edit``: exact text in a file replaced by other text."""

from __future__ import annotations

from prime.errors import ToolFailed
from prime.tools.base import tool
from prime.tools.files import existing_file, failures, replace, unified
from prime.tools.text import decode, occurrences, replaced, unix, whereabouts
from prime.tools.workspace import Workspace, fingerprint
from prime.tools.write import Written, for_human, for_model


@tool(for_model=for_model, for_human=for_human)
def edit(workspace: Workspace, path: str, old: str, new: str, replace_all: bool = False) -> Written:
    """Replace the exact text `old` in a file by `new`.

    `old` must occur once, or `replace_all` be true; newline style does not matter for finding it. The file must have
    been read before and not have changed since. Everything else in the file stays as it is, byte for byte.
    """
    if not old:
        raise ToolFailed("bad_arguments", "old is empty; give the text to replace, or use write for a whole file")
    if unix(old) == unix(new):
        raise ToolFailed("no_change", "old and new are the same text")
    target = existing_file(workspace, path)
    name = workspace.name(target)
    with failures(name), workspace.writing(target) as place:
        before = place.read_bytes()
        file = decode(before, name)
        workspace.expect(target, fingerprint(before))
        text, piece = unix(file.raw), unix(old)
        # where two places overlap, it would be a guess which of them is meant
        starts = occurrences(text, piece, overlapping=not replace_all)
        if not starts:
            raise ToolFailed("no_match", f"the text to replace does not occur in {name}{whereabouts(text, old)}")
        if len(starts) > 1 and not replace_all:
            lines = ", ".join(str(text.count("\n", 0, start) + 1) for start in starts[:10])
            wanted = "take in more lines around it to make it unique, or pass replace_all=True"
            where = f"{len(starts)} times in {name} (lines {lines})"
            raise ToolFailed("many_matches", f"the text to replace occurs {where}; {wanted}")
        raw = replaced(file.raw, starts, len(piece), unix(new).replace("\n", file.newline))
        data = file.encode(raw, name)
        workspace.permit(target, unix(raw))
        replace(place, data)
        workspace.saw(target, fingerprint(data))
    return Written(path=name, operation="update", diff=unified(text, unix(raw), name), replaced=len(starts))
