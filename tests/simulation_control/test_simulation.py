"""Seeds of the control simulation: the same number every time, and the same seed is the same run."""

from __future__ import annotations

import pytest

from tests.simulation_control.run import SIMULATION
from tests.simulation_control.world import World

SEEDS = 200
TABLE_SEEDS = 100


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", [0, SEEDS // 2])
def test_no_seed_finds_a_violation(start: int) -> None:
    acknowledged = seeds = 0
    for batch in SIMULATION.batches(range(start, start + SEEDS // 2), jobs=2):
        assert batch.failure is None, batch.failure
        seeds += batch.seeds
        acknowledged += batch.counts["acknowledged"]
    assert seeds == SEEDS // 2
    assert acknowledged / seeds > 10, f"only {acknowledged / seeds:.0f} changes a seed: the world has gone quiet"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_seed_finds_a_violation_where_brokers_share_a_table() -> None:  # K-20
    acknowledged = refused = 0
    for seed in range(TABLE_SEEDS):
        world = World(seed, share=True)
        try:
            world.run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed} with share=True: {error}") from error
        acknowledged += world.clients.acknowledged
        assert world.database is not None
        refused += world.database.table.refused
    assert acknowledged / TABLE_SEEDS > 10, "the world has gone quiet"
    assert refused / TABLE_SEEDS > 2, "brokers are hardly ever second"


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


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_fault_every_state_and_every_answer_happens_in_some_seed() -> None:
    seen: set[str] = set()
    for seed in range(60):
        world = World(seed)
        world.run()
        seen |= world.counts.keys()
    wanted = set(World(0).plan.rates) | {"restored", "apply failed", "died while deciding"}
    wanted |= {"the end of a call was not seen"}
    wanted |= {f"state {state}" for state in ("REPLAYING", "EXCHANGING", "OPERATING", "MASTER_LOST", "STOPPED")}
    wanted |= {f"change master: {answer}" for answer in ("OK", "BAD_REQUEST", "NOT_ALLOWED", "UNAVAILABLE")}
    assert wanted <= seen, f"never happened: {sorted(wanted - seen)}"
