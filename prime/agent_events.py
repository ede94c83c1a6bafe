"""The events of queries: requests beside the conversation."""

from __future__ import annotations

from typing import Literal

from prime.messages import Frozen, Header, Reply


class QueryAsked(Frozen):
    """A request with one prompt goes out beside the conversation, for a cell or for the host itself.

    Attributes:
        query: number of this entry; the other entries about the query name it.
        request: digest of what is sent (``projection.digest``).
        about: what the host asks for, a stable word; None for a cell's.
    """

    type: Literal["query_asked"] = "query_asked"
    query: int
    header: Header
    prompt: str
    request: str
    about: str | None = None


class QueryError(Frozen):
    """How a query failed."""

    code: str
    message: str


class QueryEnded(Frozen):
    """A query has its ``reply``, or its ``error``. Its usage counts as that of ``model``, the name in its header."""

    type: Literal["query_ended"] = "query_ended"
    query: int
    model: str
    reply: Reply | None = None
    error: QueryError | None = None
