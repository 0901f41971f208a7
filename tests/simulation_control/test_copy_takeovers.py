"""Takeovers where brokers keep copies of each other's logs: seeds with faults, and rules that are switched off."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.seeds import noted
from tests.simulation_control.copy_takeover_mutants import SEEDS_MAX, TABLE, hunt_all
from tests.simulation_control.copy_takeovers import SIMULATION, CopyWorld
from tests.sweep import MUTANT_TIMES

SHORT_S = 4.0
SEEDS = 100_000


def look(seconds: float) -> None:
    looked_at, counts = 0, Counter[str]()
    for batch in SIMULATION.batches(range(SEEDS), jobs=1, seconds=seconds):
        assert batch.failure is None, batch.failure
        looked_at += batch.seeds
        counts += batch.counts
    print(f"{looked_at} seeds")
    for what, least in (("takeovers", 2), ("own starts", 2), ("levelled", 0.5)):
        assert counts[what] / looked_at > least, f"{what} are seldom: {counts}"


def test_a_short_run_finds_no_violation() -> None:
    look(SHORT_S)


@pytest.mark.sweep
def test_no_seed_finds_a_violation(sweep_seconds: float) -> None:
    look(sweep_seconds * 2)


def test_the_same_seed_is_the_same_run() -> None:
    runs = []
    for _ in range(2):
        world = CopyWorld(5)
        world.run()
        runs.append((world.loop.count, world.counts, world.confirmed))
    assert runs[0] == runs[1]


@pytest.mark.sweep
def test_every_mutant_is_caught(sweep_seconds: float) -> None:
    catches = list(hunt_all(list(TABLE), jobs=1, seconds=sweep_seconds * MUTANT_TIMES))
    for catch in catches:
        print(f"{catch.name:64} {catch.seeds or '-':>5}  {catch.how}")
    missed = [catch.name for catch in catches if not catch.seeds and not catch.unfinished]
    assert missed == [], f"not caught within {SEEDS_MAX} seeds"
    noted(catches)
