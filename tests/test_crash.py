"""A host killed at any instant loses nothing that it had acknowledged, and leaves nothing behind."""

from __future__ import annotations

from bench.kill import sweep

TRIALS, SEED = 20, 20_261


def test_a_killed_host_loses_nothing_and_its_session_goes_on() -> None:
    done = list(sweep(TRIALS, SEED, workers=3))
    assert len(done) == TRIALS
    # the instants are spread: some kills hit a kernel, some an open bracket, some neither
    assert sum(each.processes for each in done) >= TRIALS // 4
    assert sum(each.repaired > 0 for each in done) >= TRIALS // 4
    assert len({each.killed_in for each in done}) >= 4
