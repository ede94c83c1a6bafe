"""Which results are no longer folded, because those that were folded have mostly been asked back whole. Pure."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from prime import events as ev
from prime.messages import thaw
from prime.policies.base import Entries

#: Distinct results of a scope asked back whole from which it is left alone, if they are half of those folded.
EXPANSIONS = 2
#: Characters of a scope that are written out; a longer one is named by its digest.
_WRITTEN = 200


class Backoff:
    """Counts what was folded in each scope and what of it was asked back whole. Parts and repetitions do not count."""

    def __init__(self) -> None:
        self._scopes: dict[int, str] = {}
        self._asked: set[int] = set()

    @classmethod
    def of(cls, entries: Entries) -> Backoff:
        """Return the counts of a stored log. Calls are read only after the first fold."""
        found = cls()
        for entry in entries(types=("surface_replaced",)):
            found.take(entry)
        if found._scopes:
            for entry in entries(min(found._scopes), types=("dispatch_started",)):
                found.take(entry)
        return found

    def take(self, entry: ev.Entry) -> None:
        """Take in one more entry of the log, in order."""
        event = entry.event
        if isinstance(event, ev.SurfaceReplaced) and event.scope is not None:
            self._scopes[event.sources[0]] = event.scope
        elif isinstance(event, ev.DispatchStarted) and event.target == "history.expand":
            arguments: Mapping[str, Any] = event.arguments
            whole = arguments.get("lines") is None and arguments.get("grep") is None
            if whole and arguments.get("format") == ev.FORMAT and arguments.get("seq") in self._scopes:
                self._asked.add(arguments["seq"])

    def scopes(self) -> frozenset[str]:
        """Return the scopes that are left alone."""
        folded, asked = Counter(self._scopes.values()), Counter(self._scopes[seq] for seq in self._asked)
        return frozenset(scope for scope, count in asked.items() if count >= EXPANSIONS and 2 * count >= folded[scope])


def scope(kind: str, target: str | None, arguments: Mapping[str, Any] | None) -> str:
    """Return what belongs together: results of one call with the same arguments, of reads of one file, and, of what is
    no single call's, results of one kind."""
    if target is None:
        return f"cell {kind}"
    given = thaw(arguments) or {}
    text = given["path"] if target == "tools.read" and "path" in given else json.dumps(given, sort_keys=True)
    name = text if len(text) <= _WRITTEN else hashlib.sha256(text.encode()).hexdigest()
    return f"{target} {name}"
