"""Check a stored log: its bytes, its brackets, and every request that was ever sent. Pure over a store."""

from __future__ import annotations

from dataclasses import dataclass

from prime import events as ev
from prime.errors import AppendRefused, CorruptLog, RequestMismatch
from prime.log import read
from prime.projection import digest, join_digests, message, part_digest, query
from prime.state import State
from prime.store.base import Store
from prime.surface import visible


@dataclass(frozen=True, slots=True)
class Report:
    """What was checked: entries read and requests rebuilt."""

    entries: int
    requests: int


def verify(store: Store) -> Report:
    """Fold the log once from its start and compare each request with the digest logged when it was sent.

    Every message is projected and hashed once, so the cost is linear in the log, plus 32 bytes of hashing for each
    message of each request.

    Raises:
        CorruptLog: bytes or brackets are not what was written.
        RequestMismatch: a request that was sent is not what the log says.
    """
    store.check()
    state, digests = State(), dict[int, bytes | None]()
    header = b""
    entries = requests = 0
    for entry in read(store):
        event = entry.event
        if isinstance(event, ev.StepStarted):
            said = [found for seq in state.surface.seqs if (found := digests[seq]) is not None]
            if join_digests(header, said) != event.request:
                raise RequestMismatch(
                    f"entry {entry.seq}: the request of turn {entry.turn}, step {entry.step} is not what the log says"
                )
            requests += 1
        elif isinstance(event, ev.QueryAsked):
            if digest(query(event.header, event.prompt)) != event.request:
                raise RequestMismatch(f"entry {entry.seq}: the query that was sent is not what the log says")
            requests += 1
        try:
            state.apply(entry.seq, event)
        except AppendRefused as error:
            raise CorruptLog(
                f"entry {entry.seq} does not follow from those before it: {error}", seq=entry.seq
            ) from error
        if isinstance(event, ev.HeaderChanged):
            header = part_digest(event.header)
        elif visible(entry.seq, event):
            said_now = message(event)
            digests[entry.seq] = part_digest(said_now) if said_now is not None else None
        entries += 1
    return Report(entries, requests)
