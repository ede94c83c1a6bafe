"""Every request compared with what the log has stored, before it is sent."""

from __future__ import annotations

from prime import projection
from prime.errors import RequestMismatch
from prime.log import Log
from prime.messages import Header, Message, Request


class Checked:
    """What was read back from the store of a session's surface, and projected anew.

    A stored row cannot change: the database refuses it. So each is read back once, after its commit, and not again for
    every request that repeats it. When another connection has written to the file all of them are read again.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._version: int | None = None
        self._header: tuple[int, Header, bytes] | None = None
        self._messages: dict[int, tuple[Message, bytes] | None] = {}

    def digest(self, request: Request) -> str:
        """Return the digest of a request that is what the stored entries say.

        Reading and hashing is linear in what is new since the last request, comparing in the surface.

        Raises:
            RequestMismatch: it is something else; it must not be sent.
            CorruptLog: an entry cannot be read back.
        """
        version = self._log.store.version
        if version != self._version:
            self._version, self._header, self._messages = version, None, {}
        header, header_digest = self._read_header()
        seqs = self._log.state.surface.seqs
        self._read([seq for seq in seqs if seq not in self._messages])
        anew = {seq: self._messages[seq] for seq in seqs}
        said = [each for each in anew.values() if each is not None]
        if header != request.header or tuple(message for message, _ in said) != request.messages:
            raise RequestMismatch("the request is not what the log says: something model-visible was never logged")
        sent = iter(request.messages)  # the equal ones: they are compared by identity next time
        self._messages = {seq: None if each is None else (next(sent), each[1]) for seq, each in anew.items()}
        return projection.join_digests(header_digest, (digest for _, digest in said))

    def _read_header(self) -> tuple[Header, bytes]:
        newest = self._log.store.last(("header_changed",))
        if newest is None:
            raise RequestMismatch("no header was logged")
        if self._header is None or self._header[0] != newest.seq:
            (entry,) = self._log.pick([newest.seq])
            self._header = newest.seq, entry.event.header, projection.part_digest(entry.event.header)
        return self._header[1:]

    def _read(self, seqs: list[int]) -> None:
        for entry in self._log.pick(seqs):
            message = projection.message(entry.event)
            self._messages[entry.seq] = None if message is None else (message, projection.part_digest(message))
