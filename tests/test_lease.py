"""Leases and meters."""

from __future__ import annotations

import contextvars

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prime_kernel import lease
from prime_kernel.lease import Lease, Meter


@given(st.lists(st.text(st.characters())), st.integers(0, 60))
def test_a_meter_admits_a_prefix_of_what_is_written_and_counts_the_rest(pieces: list[str], limit: int) -> None:
    meter = Meter(limit)
    admitted = "".join(meter.admit(piece) for piece in pieces)
    whole = "".join(piece.encode("utf-8", "backslashreplace").decode() for piece in pieces)
    assert len(admitted.encode()) <= limit
    assert whole.startswith(admitted)
    assert meter.dropped == len(whole.encode()) - len(admitted.encode())


def test_a_meter_takes_things_whole_or_not_at_all() -> None:
    meter = Meter(10)
    assert meter.take(8)
    assert not meter.take(3)
    assert meter.take(2)
    assert meter.dropped == 3


@pytest.fixture
def held() -> Lease:
    return Lease("cell", 10, 100)


def test_a_lease_ends_only_without_pending_calls(held: Lease) -> None:
    held.pending[1] = None  # type: ignore[assignment]
    assert not held.end()
    held.pending.clear()
    assert held.end()
    assert held.ended


def test_abandoning_hands_out_what_was_pending(held: Lease) -> None:
    held.pending[1] = "call"  # type: ignore[assignment]
    assert held.abandon() == ["call"]
    assert held.ended
    assert held.pending == {}


def test_a_lease_is_carried_by_context_and_output_without_one_counts_for_the_latest(held: Lease) -> None:
    inside = contextvars.copy_context()
    inside.run(lease.begin, held)
    assert inside.run(lease.carried) is held
    assert lease.carried() is None
    assert lease.meter() is held.meter
