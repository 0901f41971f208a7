"""Seeds of the simulation of copies: the same number every time, and the same seed is the same run."""

from __future__ import annotations

import pytest

from tests.simulation_replication.run import SIMULATION
from tests.simulation_replication.world import World

SEEDS = 1_000_000
SHORT_S = 3.0
CONFIRMED_MIN = 50
"""Confirmed batches of a seed on the average; with less than that the world has gone quiet."""


def look(seeds: range, seconds: float) -> None:
    confirmed = looked_at = 0
    for batch in SIMULATION.batches(seeds, jobs=1, seconds=seconds):
        assert batch.failure is None, batch.failure
        looked_at += batch.seeds
        confirmed += batch.counts["confirmed"]
    print(f"{looked_at} seeds from {seeds.start}")
    assert confirmed / looked_at > CONFIRMED_MIN, f"only {confirmed / looked_at:.0f} batches a seed"


def test_a_short_run_finds_no_violation() -> None:
    look(range(SEEDS), SHORT_S)


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(2))
def test_no_seed_finds_a_violation(part: int, sweep_seconds: float) -> None:
    look(range(part * SEEDS // 2, (part + 1) * SEEDS // 2), sweep_seconds * 3)


def test_a_seed_is_one_run() -> None:
    first, second = World(7), World(7)
    first.run()
    second.run()
    assert first.loop.count == second.loop.count
    assert first.counts == second.counts
    assert first.watch.register == second.watch.register
