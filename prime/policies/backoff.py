"""Which results are no longer folded, because those that were folded have mostly been asked back whole. Pure."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from prime import events as ev
from prime.messages import thaw

#: Distinct results of a scope asked back whole from which it is left alone, if they are half of those folded.
EXPANSIONS = 2
#: Characters of a scope that are written out; a longer one is named by its digest.
_WRITTEN = 200


class Backoff:
    """Counts what was folded in each scope and what of it was asked back whole. Parts and repetitions do not count."""

    def __init__(self) -> None:
        self._scopes: dict[int, str] = {}
        self._folded: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()

    def fold(self, replaced: ev.SurfaceReplaced) -> None:
        """Count a result that was folded; a replacement without a scope is none."""
        if replaced.scope is not None:
            self._scopes[replaced.sources[0]] = replaced.scope
            self._folded[replaced.scope] += 1

    def expand(self, arguments: Mapping[str, Any], seq: int) -> None:
        """Count a call of ``history.expand`` that gave back entry ``seq``, however the call named it."""
        if arguments.get("lines") is None and arguments.get("grep") is None:
            # what was asked back once is forgotten: it counts no second time
            of = self._scopes.pop(seq, None)
            self._asked.update([of] if of is not None else [])

    def holds(self, scope: str) -> bool:
        """Tell whether results of a scope are left alone."""
        return self._asked[scope] >= EXPANSIONS and 2 * self._asked[scope] >= self._folded[scope]


def scope(kind: str, target: str | None, arguments: Mapping[str, Any] | None) -> str:
    """Return what belongs together: results of one call with the same arguments, of reads of one file, and, of what is
    no single call's, results of one kind."""
    if target is None:
        return f"cell {kind}"
    given = thaw(arguments) or {}
    text = given["path"] if target == "tools.read" and "path" in given else json.dumps(given, sort_keys=True)
    name = text if len(text) <= _WRITTEN else hashlib.sha256(text.encode()).hexdigest()
    return f"{target} {name}"
