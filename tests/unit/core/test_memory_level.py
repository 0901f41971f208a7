"""Levels by what is used: exact thresholds, hysteresis on the way back, and what each level demands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.config import Config
from raybroker.core.memory_level import FALL_PERCENT, Level, Levels, actions_at, level_of, levels_of

THRESHOLDS = st.lists(st.integers(0, 100), min_size=4, max_size=4).map(tuple)
BYTES = st.integers(1, 1 << 50)


@pytest.mark.parametrize(
    ("used", "level"),
    [
        (0, "GREEN"),
        (799, "GREEN"),
        (800, "YELLOW"),
        (899, "YELLOW"),
        (900, "ORANGE"),
        (979, "ORANGE"),
        (980, "RED"),
        (5000, "RED"),
    ],
)
def test_a_level_begins_at_its_threshold(used: int, level: str) -> None:  # B-15
    assert level_of(used, 1000, Levels()).name == level


def test_without_a_limit_there_is_always_enough() -> None:
    assert level_of(1 << 60, 0, Levels(), Level.RED) is Level.GREEN


@given(used=BYTES, limit=BYTES, thresholds=THRESHOLDS, before=st.sampled_from(Level))
def test_a_level_holds_until_clearly_less_is_used(
    used: int, limit: int, thresholds: tuple[int, ...], before: Level
) -> None:
    levels = Levels(thresholds=thresholds)
    rising = level_of(used, limit, levels)
    found = level_of(used, limit, levels, before)
    assert found >= rising, "coming from above never gives less"
    assert found is rising or found <= before, "what held before may hold still, nothing else"
    if found > rising:
        edge = thresholds[found] * limit / 100
        assert edge * FALL_PERCENT / 100 <= used * 1.000001 < edge * 1.000002
    assert level_of(used, limit, levels, found) is found, "a second look changes nothing"


@given(limit=BYTES, used=st.tuples(BYTES, BYTES), thresholds=THRESHOLDS, before=st.sampled_from(Level))
def test_more_used_is_never_a_lower_level(
    limit: int, used: tuple[int, int], thresholds: tuple[int, ...], before: Level
) -> None:
    less, more = sorted(used)
    levels = Levels(thresholds=thresholds)
    assert level_of(less, limit, levels, before) <= level_of(more, limit, levels, before)


def test_actions_add_up_from_level_to_level() -> None:  # B-17
    assert [tuple(actions_at(level, Levels())) for level in Level] == [
        (False, False, False, False),
        (True, False, False, False),
        (True, True, False, False),
        (True, True, True, True),
    ]
    trickling = Levels(counts=(0, 0, 0, 5))
    assert [actions_at(level, trickling).bars for level in Level] == [False, False, True, False]
    assert actions_at(Level.RED, trickling).refuses, "new producers and destinations wait for memory in any case"


def test_both_spellings_are_read_and_the_single_one_wins() -> None:  # B-15, B-16
    assert levels_of(Config.from_values()) == Levels()
    together = {"imq.resource_state.threshold": "1/50/60/70", "imq.resource_state.count": "9 / 8 / 7 / 6"}
    assert levels_of(Config.from_values(together)) == Levels((1, 50, 60, 70), (9, 8, 7, 6))
    single: dict[str, object] = {"imq.orange.threshold": 65, "imq.red.count": 1}
    assert levels_of(Config.from_values({**together, **single})) == Levels((1, 50, 65, 70), (9, 8, 7, 1))
