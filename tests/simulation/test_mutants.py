"""Whoever switches off one rule of the broker is noticed."""

from __future__ import annotations

import pytest

from tests.seeds import NO_TIME, noted
from tests.simulation.mutant_table import TABLE, Mutant, Patch, applied
from tests.simulation.mutants import SEEDS_MAX, Catch, hunt_all, missed
from tests.simulation.world import World
from tests.sweep import MUTANT_TIMES

PARTS = 4


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(PARTS))
def test_every_mutant_is_caught(part: int, sweep_seconds: float) -> None:
    names = [m.name for m in TABLE][part::PARTS]
    catches = list(hunt_all(names, jobs=1, seconds=sweep_seconds * MUTANT_TIMES))
    for catch in catches:
        print(f"{catch.name:32} {catch.seeds or '-':>5}  {catch.how}")
    assert missed(catches) == [], f"not caught within {SEEDS_MAX} seeds"
    noted(catches)


def test_a_mutant_is_gone_when_its_block_ends() -> None:
    for mutant in TABLE:
        with applied(mutant):
            pass
    World(3).run()


def test_mutants_have_names_and_rules_of_their_own() -> None:
    assert len({m.name for m in TABLE}) == len(TABLE) >= 30
    assert len({m.rule for m in TABLE}) > 0.9 * len(TABLE)


def test_a_mutant_nobody_notices_is_missed_unless_it_is_called_equivalent(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(patch: Patch) -> None: ...

    table = [Mutant("harmless", "none", nothing), Mutant("excused", "none", nothing, equivalent="it does nothing")]
    monkeypatch.setattr("tests.simulation.mutants.TABLE", table)
    assert missed([Catch("harmless", 0, ""), Catch("excused", 0, "")]) == ["harmless"]
    assert missed([Catch("harmless", 3, ""), Catch("excused", 3, "")]) == ["excused"]
    assert missed([Catch("harmless", 0, NO_TIME), Catch("excused", 0, NO_TIME)]) == []


def test_a_hunt_without_time_is_unfinished_and_noted() -> None:
    catches = list(hunt_all([m.name for m in TABLE[:2]], jobs=1, seconds=0.0))
    assert [catch.unfinished for catch in catches] == [True, True]
    with pytest.warns(UserWarning, match="2 of 2 mutants"):
        noted(catches)
