"""Whoever switches off one rule of the copies is noticed."""

from __future__ import annotations

import pytest

from tests.seeds import noted
from tests.simulation_replication.mutants import SEEDS_MAX, TABLE, applied, hunt_all
from tests.simulation_replication.world import World
from tests.sweep import MUTANT_TIMES


@pytest.mark.sweep
def test_every_mutant_is_caught(sweep_seconds: float) -> None:
    catches = list(hunt_all(list(TABLE), jobs=1, seconds=sweep_seconds * MUTANT_TIMES))
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
