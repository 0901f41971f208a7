"""Whoever switches off one rule of the control plane is noticed."""

from __future__ import annotations

import pytest

from tests.seeds import noted
from tests.simulation_control.mutants import SEEDS_MAX, TABLE, applied, hunt_all
from tests.simulation_control.world import World
from tests.sweep import MUTANT_TIMES

HARD = frozenset(
    {
        "a_change_of_master_is_told_before_it_is_on_disk",
        "changes_are_taken_during_a_change_of_master",
        "a_replaced_master_goes_on",
    }
)
"""Found after a hundred seeds or more, by ``python -m tests.simulation_control.mutants``; test_masters has them."""


PARTS = 2


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(PARTS))
def test_every_mutant_is_caught(part: int, sweep_seconds: float) -> None:
    names = [name for name in TABLE if name not in HARD][part::PARTS]
    catches = list(hunt_all(names, jobs=1, seconds=sweep_seconds * MUTANT_TIMES))
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
    assert len(TABLE) >= 20
    assert TABLE.keys() > HARD
