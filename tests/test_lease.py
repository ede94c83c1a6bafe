"""Leases and meters."""

from __future__ import annotations

import contextvars

import pytest
from prime_kernel import lease
from prime_kernel.lease import Lease


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
