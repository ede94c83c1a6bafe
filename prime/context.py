"""From the surface to the next request, and the check that it is what the log says."""

from __future__ import annotations

from prime import events as ev
from prime import projection
from prime.errors import RequestMismatch
from prime.log import Log
from prime.messages import Header, Message, Request
from prime.policies.overflow import shrink
from prime.surface import visible
from prime.tokens import MARGIN, estimate, estimate_message


class Context:
    """Builds requests of one session. Messages are kept as they are appended; :meth:`check` trusts none of them."""

    def __init__(self, log: Log) -> None:
        self._log = log
        seqs = log.state.surface.seqs
        self._messages = {entry.seq: projection.message(entry.event) for entry in log.pick(seqs)}
        log.observe(self._keep)

    def request(self, header: Header) -> Request:
        """Return the next request. Logs the header first when it is another one than the last."""
        if self._log.state.header != header:
            self._log.append(ev.HeaderChanged(header=header))
        return Request(header=header, messages=tuple(self._surface()))

    def check(self, request: Request) -> str:
        """Return the digest of a request after comparing it with one projected anew from the stored entries.

        The cost is linear in the surface, whatever the length of the log.

        Raises:
            RequestMismatch: it is not what the log says; it must not be sent.
        """
        stored = self._log.pick(self._log.state.surface.seqs)
        *_, header = self._log.entries(types=("header_changed",))
        anew = projection.digest(projection.request(header.event.header, stored))
        if anew != projection.digest(request):
            raise RequestMismatch("the request is not what the log says: something model-visible was never logged")
        return anew

    def shrink(self) -> bool:
        """Make the surface smaller after the model found it too large; return whether it is."""
        operations = shrink(self._log.pick(self._log.state.surface.seqs))
        for operation in operations:
            self._log.append(operation)
        return bool(operations)

    def used(self) -> int:
        """Return the estimated tokens of a request sent now: the last reported usage plus what is new since, or an
        estimate of the whole with a margin."""
        state = self._log.state
        seqs = state.surface.seqs
        if state.replied is not None and state.replied.seq in seqs and state.header is not None:
            usage = state.replied.usage
            new = seqs[seqs.index(state.replied.seq) + 1 :]
            return usage.prompt + usage.output + round(sum(self._size(seq) for seq in new))
        header = state.header
        fixed = estimate(header.system) + sum(estimate(str(tool)) for tool in header.tools) if header else 0.0
        return round((fixed + sum(map(self._size, seqs))) * MARGIN)

    def _surface(self) -> list[Message]:
        found = (self._messages[seq] for seq in self._log.state.surface.seqs)
        return [item for item in found if item is not None]

    def _size(self, seq: int) -> float:
        message = self._messages[seq]
        return estimate_message(message) if message is not None else 0.0

    def _keep(self, entry: ev.Entry) -> None:
        if visible(entry.seq, entry.event):
            self._messages[entry.seq] = projection.message(entry.event)
