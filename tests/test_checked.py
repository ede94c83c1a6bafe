"""The comparison of each request with what is stored, over real files."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from logs import FILE, fresh_store
from strategies import Commit, walks

from prime import events as ev
from prime import projection
from prime.checked import Checked
from prime.errors import CorruptLog, RequestMismatch
from prime.log import Log
from prime.messages import Header, Message, Request, TextPart
from prime.store.base import Row
from prime.store.sqlite import SqliteStore

HEADER = Header(model="scripted/x", system="Work.", tools=())


class Counting(SqliteStore):
    """A store that says which rows it was asked for."""

    asked: list[int]

    def pick(self, seqs: Sequence[int]) -> dict[int, Row]:
        self.asked = list(seqs)
        return super().pick(seqs)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A log with a header and three turns of a question and an answer."""
    with Log(Counting.create(tmp_path / FILE, ev.FORMAT)) as log:
        log.append(ev.SessionCreated(session="s", cwd="/", version="0"), ev.HeaderChanged(header=HEADER))
        for number in range(3):
            turn(log, number)
        yield log


def turn(log: Log, number: int) -> None:
    name, parts = f"i{number}", (TextPart(text=f"question {number}"),)
    log.append(ev.InputQueued(input_id=name, kind="ask", parts=parts))
    said = ev.UserSaid(input_id=name, kind="ask", parts=parts)
    log.append(ev.TurnStarted(), ev.InputClaimed(input_id=name), said, ev.StepStarted(request="", messages=1))
    answer = (TextPart(text=f"answer {number}"),)
    log.append(ev.ModelReplied(parts=answer, stop="end", model="x", usage=None), ev.StepEnded(outcome="done"))
    log.append(ev.TurnEnded(reason="completed"))


def asked_of(log: Log) -> list[int]:
    assert isinstance(log.store, Counting)
    return log.store.asked


def projected(log: Log) -> Request:
    """Return the request that the stored log has now, by the other way: from the whole surface."""
    return projection.request(HEADER, log.pick(log.state.surface.seqs))


def changed(request: Request, place: int, text: str) -> Request:
    """Return a request with another text at one place, all other messages being the same objects."""
    messages = list(request.messages)
    messages[place] = Message(role=messages[place].role, parts=(TextPart(text=text),))
    return request.model_copy(update={"messages": tuple(messages)})


def test_the_digest_is_that_of_the_whole_request_however_much_was_read_before(log: Log) -> None:
    checked = Checked(log)
    for number in range(3, 6):
        request = projected(log)
        assert checked.digest(request) == projection.digest(request)
        turn(log, number)


def test_only_what_is_new_is_read(log: Log) -> None:
    checked = Checked(log)
    checked.digest(projected(log))
    turn(log, 3)
    new = list(log.state.surface.seqs[-2:])
    request = projected(log)
    checked.digest(request)
    assert asked_of(log) == new


@given(walks())
@settings(max_examples=60, deadline=None)
def test_along_any_log_the_digest_is_that_of_the_whole_request(walk: tuple[Commit, ...]) -> None:
    with fresh_store() as store:
        log = Log(store)
        checked = Checked(log)
        for commit in walk:
            log.append(*commit)
            if log.state.header is not None:
                request = projection.request(log.state.header, log.pick(log.state.surface.seqs))
                assert checked.digest(request) == projection.digest(request)


@pytest.mark.parametrize("place", [0, 3, -1])
def test_a_changed_message_is_refused_also_when_it_was_compared_before(log: Log, place: int) -> None:
    checked = Checked(log)
    request = projected(log)
    checked.digest(request)
    with pytest.raises(RequestMismatch):
        checked.digest(changed(request, place, "never logged"))
    assert checked.digest(request) == projection.digest(request)


def test_a_message_less_or_more_is_refused(log: Log) -> None:
    checked = Checked(log)
    request = projected(log)
    for messages in (request.messages[1:], request.messages[:-1], (*request.messages, request.messages[-1]), ()):
        with pytest.raises(RequestMismatch):
            checked.digest(request.model_copy(update={"messages": messages}))
    assert checked.digest(request)


def test_another_header_is_refused_until_it_is_logged(log: Log) -> None:
    checked = Checked(log)
    checked.digest(projected(log))
    other = HEADER.model_copy(update={"system": "Play."})
    request = projected(log).model_copy(update={"header": other})
    with pytest.raises(RequestMismatch):
        checked.digest(request)
    log.append(ev.HeaderChanged(header=other))
    assert checked.digest(request) == projection.digest(request)


def test_what_left_the_surface_may_not_come_back(log: Log) -> None:
    checked = Checked(log)
    before = projected(log)
    checked.digest(before)
    first, second, *_ = log.state.surface.seqs
    entry = Message(role="user", parts=(TextPart(text="one turn"),))
    log.append(ev.SurfaceReplaced(policy="tape", start=first, end=second, sources=(first, second), message=entry))
    with pytest.raises(RequestMismatch):
        checked.digest(before)
    after = projected(log)
    assert checked.digest(after) == projection.digest(after)


def test_a_reply_without_words_is_no_message(log: Log) -> None:
    log.append(ev.TurnStarted(), ev.StepStarted(request="", messages=1))
    log.append(ev.ModelReplied(parts=(), stop="end", model="x", usage=None, interrupted=True))
    checked = Checked(log)
    for _ in range(2):
        request = projected(log)
        assert len(request.messages) == len(log.state.surface.seqs) - 1
        assert checked.digest(request) == projection.digest(request)


def test_without_a_header_nothing_is_sent(tmp_path: Path) -> None:
    with Log(SqliteStore.create(tmp_path / FILE, ev.FORMAT)) as log:
        log.append(ev.SessionCreated(session="s", cwd="/", version="0"))
        with pytest.raises(RequestMismatch):
            Checked(log).digest(Request(header=HEADER, messages=()))


def test_when_somebody_else_writes_to_the_file_everything_is_read_again(log: Log, tmp_path: Path) -> None:
    checked = Checked(log)
    request = projected(log)
    checked.digest(request)
    seq = log.state.surface.seqs[0]
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as other, other:
        other.execute("DROP TRIGGER entries_keep")
        other.execute("UPDATE entries SET body = replace(body, 'question', 'Question') WHERE seq = ?", (seq,))
    with pytest.raises(RequestMismatch):
        checked.digest(request)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as other, other:
        other.execute("UPDATE entries SET body = 'x' WHERE seq = ?", (seq,))
    with pytest.raises(CorruptLog):
        checked.digest(request)
