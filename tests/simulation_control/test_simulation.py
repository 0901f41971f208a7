"""Seeds of the control simulation: the same number every time, and the same seed is the same run."""

from __future__ import annotations

import pytest

from tests.simulation_control.run import SIMULATION
from tests.simulation_control.world import World
from tests.sweep import Deadline, until

SEEDS = 100_000
SHORT_S = 5.0
CHANGES_MIN = 10
"""Acknowledged changes of a seed on the average; with less than that the world has gone quiet."""


def look(seeds: range, seconds: float) -> None:
    acknowledged = looked_at = 0
    for batch in SIMULATION.batches(seeds, jobs=1, seconds=seconds):
        assert batch.failure is None, batch.failure
        looked_at += batch.seeds
        acknowledged += batch.counts["acknowledged"]
    print(f"{looked_at} seeds from {seeds.start}")
    assert acknowledged / looked_at > CHANGES_MIN, f"only {acknowledged / looked_at:.0f} changes a seed"


def test_a_short_run_finds_no_violation() -> None:
    look(range(SEEDS), SHORT_S)


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(2))
def test_no_seed_finds_a_violation(part: int, sweep_seconds: float) -> None:
    look(range(part * SEEDS // 2, (part + 1) * SEEDS // 2), sweep_seconds * 3)


@pytest.mark.sweep
def test_no_seed_finds_a_violation_where_brokers_share_a_table(sweep_seconds: float) -> None:  # K-20
    acknowledged = refused = looked_at = 0
    for seed in until(Deadline(sweep_seconds), range(SEEDS)):
        world = World(seed, share=True)
        try:
            world.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed} with share=True: {error}") from error
        looked_at += 1
        acknowledged += world.clients.acknowledged
        assert world.database is not None
        refused += world.database.table.refused
    assert acknowledged / looked_at > CHANGES_MIN, "the world has gone quiet"
    assert refused / looked_at > 2 or looked_at < 20, "brokers are hardly ever second"


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_the_same_seed_is_the_same_run(seed: int) -> None:
    runs = []
    for _ in range(2):
        world = World(seed)
        world.run()
        runs.append((world.watch.trail, world.loop.count, world.loop.now))
    assert runs[0] == runs[1]


def test_other_seeds_are_other_runs() -> None:
    trails = set()
    for seed in range(6):
        world = World(seed)
        world.run()
        trails.add(world.watch.trail)
    assert len(trails) == 6


def test_a_failing_seed_says_how_to_run_it_again() -> None:
    text = SIMULATION.describe(4711, AssertionError("the record has forked"))
    assert text.endswith("failed; run it again with: python -m tests.simulation_control --seeds 1 --start 4711")


@pytest.mark.sweep
def test_every_fault_every_state_and_every_answer_happens_in_some_seed() -> None:
    seen: set[str] = set()
    for seed in range(60):
        world = World(seed)
        world.run()
        seen |= world.counts.keys()
    wanted = set(World(0).plan.rates) | {"restored", "apply failed", "host away", "died while deciding"}
    wanted |= {"the end of a call was not seen"}
    wanted |= {f"state {state}" for state in ("REPLAYING", "EXCHANGING", "OPERATING", "MASTER_LOST", "STOPPED")}
    wanted |= {f"change master: {answer}" for answer in ("OK", "BAD_REQUEST", "NOT_ALLOWED", "UNAVAILABLE")}
    assert wanted <= seen, f"never happened: {sorted(wanted - seen)}"
