"""Whoever switches off one rule of the copies is noticed."""

from __future__ import annotations

import pytest

from tests.seeds import noted
from tests.simulation_replication.mutants import SEEDS_MAX, TABLE, applied, hunt_all
from tests.simulation_replication.world import World
from tests.sweep import MUTANT_TIMES

HARD = frozenset(
    {
        "a_copy_is_healed_by_a_leader_that_does_not_know",
        "a_lease_is_looked_at_before_a_pause",
        "a_new_leader_does_not_wait_for_the_old_lease",
        "a_set_that_was_cut_still_counts",
        "an_entry_of_an_old_term_is_committed_by_count",
        "two_changes_at_a_time",
    }
)
"""Not found in 150 seeds, by ``python -m tests.simulation_replication.mutants``; tests/unit/replication has these."""


@pytest.mark.sweep
def test_every_mutant_is_caught(sweep_seconds: float) -> None:
    catches = list(hunt_all([name for name in TABLE if name not in HARD], jobs=1, seconds=sweep_seconds * MUTANT_TIMES))
    for catch in catches:
        print(f"{catch.name:56} {catch.seeds or '-':>5}  {catch.how}")
    missed = [catch.name for catch in catches if not catch.seeds and not catch.unfinished]
    assert missed == [], f"not caught within {SEEDS_MAX} seeds"
    noted(catches)


def test_a_mutant_is_gone_when_its_block_ends() -> None:
    for name in TABLE:
        with applied(name):
            pass
    World(3).run()


def test_there_are_enough_of_them() -> None:
    assert len(TABLE) >= 25
    assert TABLE.keys() > HARD
