"""Ratios of alternating slices: what each slice is compared with, and who takes turns."""

from __future__ import annotations

import pytest

from benchmarks.ratios import TRIAL, ratios, rows, take
from benchmarks.readings import OURS


def test_each_slice_is_compared_with_ours_before_and_after_it() -> None:
    taken = [(OURS, 100.0), ("a", 50.0), ("b", 200.0), (OURS, 200.0), ("a", 100.0), ("b", 100.0), (OURS, 400.0)]
    found = ratios(taken)
    assert (found["a"].median, found["a"].low, found["a"].high, found["a"].rounds) == (3.0, 3.0, 3.0, 2)
    assert (found["b"].low, found["b"].high) == (0.75, 3.0)


def test_a_machine_that_becomes_slower_for_all_changes_no_ratio() -> None:
    speeds = [1.0, 0.8, 0.6, 0.4, 0.2]
    taken = [item for speed in speeds for item in ((OURS, 900.0 * speed), ("a", 300.0 * (speed - 0.1)))]
    assert ratios([*taken[:-1]])["a"].median == pytest.approx(3.0)


class Fake:
    def __init__(self, speed: float) -> None:
        self.speed = speed
        self.asked: list[int] = []

    def rate(self, figure: str, messages: int) -> float:
        self.asked.append(messages)
        return self.speed


def test_slices_take_turns_and_are_as_long_as_asked_for() -> None:
    systems = {OURS: Fake(1000.0), "a": Fake(50.0), "b": Fake(10_000.0)}
    taken = list(take(systems, "blocking", 2, 3.0))
    assert [name for name, _ in taken] == [OURS, "a", "b", OURS, "a", "b", OURS]
    assert systems[OURS].asked == [TRIAL, 3000, 3000, 3000]
    assert systems["a"].asked == [TRIAL, TRIAL, TRIAL]
    assert systems["b"].asked == [TRIAL, 30_000, 30_000]


def test_the_table_has_the_spread_beside_the_ratio() -> None:
    taken = [(OURS, 100.0), ("a", 50.0), (OURS, 100.0), ("a", 25.0), (OURS, 100.0)]
    assert list(rows("blocking", taken)) == [
        ("one confirmed send at a time", OURS, "100 [100 … 100]", "–"),
        ("one confirmed send at a time", "a", "37.5 [25.0 … 50.0]", "3.00 [2.00 … 4.00]"),
    ]
