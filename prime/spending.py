"""What the replies of a recorded session were: when, by which model, and how many tokens. Pure over a store."""

from __future__ import annotations

from prime import events as ev
from prime.log import read
from prime.messages import Usage
from prime.pricing import Spent
from prime.replayed import recorded
from prime.store.base import Store

_TYPES = ("session_forked", "header_changed", "step_started", "model_replied", "query_asked", "query_ended")


def spent(store: Store) -> list[Spent]:
    """Return the replies of a session in order, without those that a fork has from its parent.

    What a provider did not report is estimated by the rules of the ledger; of a reply that was interrupted only the
    prompt is. A request that failed was not billed.

    Raises:
        CorruptLog, UnsupportedLog: as far as reading gets there.
    """
    found: list[Spent] = []
    missing: dict[int, int] = {}  # place in found -> number of the request
    requests, step, header = 0, 0, ""
    queries: dict[int, int] = {}
    for entry in read(store, types=_TYPES):
        event = entry.event
        if isinstance(event, ev.SessionForked):
            found, missing = [], {}
        elif isinstance(event, ev.HeaderChanged):
            header = event.header.model
        elif isinstance(event, ev.StepStarted):
            step, requests = requests, requests + 1
        elif isinstance(event, ev.QueryAsked):
            queries[event.query], requests = requests, requests + 1
        elif isinstance(event, ev.ModelReplied):
            missing |= {len(found): step} if event.usage is None else {}
            found.append(Spent(entry.at, header, event.usage or Usage(), estimated=event.usage is None))
        elif event.reply is not None:
            usage = event.reply.usage
            missing |= {len(found): queries[event.query]} if usage is None else {}
            found.append(Spent(entry.at, event.model, usage or Usage(), estimated=usage is None))
    lines = recorded(store).lines if missing else []
    for place, number in missing.items():
        line = lines[number]
        found[place] = found[place]._replace(usage=Usage(input=line.miss, cache_read=line.hit, output=line.output))
    return found
