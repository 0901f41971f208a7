"""Seeds of the simulation of copies: the same number every time, and the same seed is the same run."""

from __future__ import annotations

import pytest

from tests.simulation_replication.run import SIMULATION
from tests.simulation_replication.world import World

SEEDS = 1_000_000
EACH_TIME = 2_000
"""Seeds that every run of the sweeps looks at, however long that takes; others as long as there is time."""
PARTS = 8
SHORT_S = 3.0
CONFIRMED_MIN = 50
"""Confirmed batches of a seed on the average; with less than that the world has gone quiet."""


def look(seeds: range, seconds: float | None) -> None:
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
    first = EACH_TIME + part * (SEEDS - EACH_TIME) // 2
    look(range(first, first + (SEEDS - EACH_TIME) // 2), sweep_seconds * 3)


@pytest.mark.sweep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_so_many_seeds_find_no_violation_each_time(part: int) -> None:
    look(range(part * EACH_TIME // PARTS, (part + 1) * EACH_TIME // PARTS), None)


def test_a_seed_is_one_run() -> None:
    first, second = World(7), World(7)
    first.run()
    second.run()
    assert first.loop.count == second.loop.count
    assert first.counts == second.counts
    assert first.watch.register == second.watch.register
