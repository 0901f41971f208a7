"""Seeds of the simulation: the same number every time, and the same seed is the same run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.run import SIMULATION
from tests.simulation.twin_commands import HANDLERS
from tests.simulation.world import World

SEEDS = 100_000
SHORT_S = 5.0
EVENTS_MIN = 1000
"""What happens in a seed on the average; with less than that the world has gone quiet."""


def look(seeds: range, seconds: float) -> None:
    looked_at = events = 0
    for batch in SIMULATION.batches(seeds, jobs=1, seconds=seconds):
        assert batch.failure is None, batch.failure
        looked_at += batch.seeds
        events += batch.events
    print(f"{looked_at} seeds from {seeds.start}")
    assert events / looked_at > EVENTS_MIN, f"only {events / looked_at:.0f} events a seed: the world has gone quiet"


def test_a_short_run_finds_no_violation() -> None:
    look(range(SEEDS), SHORT_S)


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(2))
def test_no_seed_finds_a_violation(part: int, sweep_seconds: float) -> None:
    look(range(part * SEEDS // 2, (part + 1) * SEEDS // 2), sweep_seconds * 3)


def _fingerprint(seed: int) -> tuple[int, int, int]:
    world = World(seed)
    world.run()
    return world.watch.history.fingerprint, world.loop.count, world.loop.now


@pytest.mark.parametrize("seed", [0, 1, 7, 42])
def test_the_same_seed_is_the_same_run(seed: int) -> None:
    assert _fingerprint(seed) == _fingerprint(seed)


def test_other_seeds_are_other_runs() -> None:
    assert len({_fingerprint(seed)[0] for seed in range(8)}) == 8


def test_a_failing_seed_says_how_to_run_it_again() -> None:
    try:
        raise AssertionError("a message was lost")
    except AssertionError as error:
        text = SIMULATION.describe(4711, error)
    assert "a message was lost" in text
    assert text.endswith("seed 4711 failed; run it again with: python -m tests.simulation --seeds 1 --start 4711")


def _full_runs(seeds: int) -> Iterator[World]:
    """Runs of these seeds, those with the most features first: what happens at all happens soon."""
    for seed in sorted(range(seeds), key=lambda seed: len(World(seed).plan.features), reverse=True):
        world = World(seed)
        world.run()
        yield world


def test_every_fault_happens_in_some_seed() -> None:
    seen: set[str] = set()
    wanted = World(0).plan.rates.keys() | {"retry", "drain", "publish"}
    for world in _full_runs(40):
        seen |= world.counts.keys()
        if seen >= wanted:
            break
    assert seen == wanted


def test_every_command_every_death_and_every_kind_of_restart_happens_in_some_seed() -> None:
    wanted = {kind.__name__ for kind in HANDLERS} | {"OLDEST", "LOW_PRIORITY", "EXPIRED", "UNDELIVERABLE", "ERROR"}
    wanted |= {"large sends", "large deliveries", "bodies refused", "bodies that are gone", "bodies that had not come"}
    wanted |= {"prepared at a restart", "subscriptions at a restart", "resting at a restart"}
    for world in _full_runs(60):
        wanted -= {name for name, count in world.watch.seen.items() if count}
        if not wanted:
            break
    assert not wanted, f"never happened: {sorted(wanted)}"
