"""Ratios of alternating slices: who takes turns, how long a slice is, and what each slice is compared with."""

from __future__ import annotations

import pytest

from benchmarks.goals import ABSOLUTE, KAFKAS, SLICED, Goal
from benchmarks.ratios import Taken, chosen, goal_rows, rate_rows, systems_of, take
from benchmarks.readings import FIGURE, OURS, PIPE, SYSTEMS
from benchmarks.slices import (
    BACKLOG,
    SLICE_MESSAGES_MAX,
    TRIAL,
    Group,
    Rates,
    Slice,
    amount,
    groups,
    ratios,
    turns,
    verdict,
)

MINE, THEIRS, OTHER = (OURS, "blocking"), ("a", "blocking"), ("b", "blocking")
AGAINST_A = Goal("x", "blocking", 2.0, THEIRS)
AGAINST_B = Goal("y", "blocking", 2.0, OTHER)
GROUP = Group(MINE, (THEIRS, OTHER))


def slices(*rates: float) -> list[Slice]:
    return [(track, {"blocking": rate}) for track, rate in zip(turns(GROUP, len(rates) // 3), rates, strict=True)]


def test_each_slice_is_compared_with_the_pivots_before_and_after_it() -> None:
    taken = slices(100, 50, 200, 200, 100, 100, 400)
    first, second = ratios(GROUP, taken, AGAINST_A), ratios(GROUP, taken, AGAINST_B)
    assert first is not None
    assert (first.median, first.low, first.high, first.rounds) == (3.0, 3.0, 3.0, 2)
    assert second is not None
    assert (second.low, second.high) == (0.75, 3.0)


def test_a_pivot_below_the_line_divides_the_others() -> None:
    pivot, other = (PIPE, "blocking"), (OURS, "auto")
    taken: list[Slice] = [(pivot, {"blocking": 100}), (other, {"auto": 30}), (pivot, {"blocking": 200})]
    found = ratios(Group(pivot, (other,)), taken, Goal("x", "auto", 0.8, pivot))
    assert found is not None
    assert found.median == pytest.approx(0.2)


def test_a_machine_that_becomes_slower_for_all_changes_no_ratio() -> None:
    speeds = [1.0, 0.8, 0.6, 0.4, 0.2]
    rates = [rate for speed in speeds for rate in (900.0 * speed, 300.0 * (speed - 0.1), 100.0 * (speed - 0.1))]
    found = ratios(GROUP, slices(*rates[:-2]), AGAINST_A)
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(3.0), pytest.approx(3.0))


def test_goals_that_share_a_track_take_turns_around_it() -> None:
    assert groups([AGAINST_A, AGAINST_B], lambda _: True) == [GROUP]
    assert groups([AGAINST_A, AGAINST_B], lambda system: system != "a") == [Group(MINE, (OTHER,))]


def test_produce_and_consume_are_figures_of_one_slice() -> None:
    goals = [Goal("x", figure, 1.0, ("kafka", figure)) for figure in ("produce", "consume")]
    (group,) = groups(goals, lambda _: True)
    assert {group.pivot, *group.others} == {(OURS, BACKLOG), ("kafka", BACKLOG)}
    here, there = {"produce": 30.0, "consume": 40.0}, {"produce": 10.0, "consume": 20.0}
    taken: list[Slice] = [(group.pivot, here), (group.others[0], there), (group.pivot, here)]
    if group.pivot[0] != OURS:
        taken = [(track, there if track == group.pivot else here) for track, _ in taken]
    assert [verdict(goal, [(group, taken)]).value for goal in goals] == [3.0, 2.0]


def test_every_goal_of_the_table_has_its_slices_in_some_group() -> None:
    every = groups(SLICED, lambda _: True)
    for goal in SLICED:
        for group in every:
            taken = [(track, dict.fromkeys(FIGURE, 1.0)) for track in turns(group, 1)]
            if (found := ratios(group, taken, goal)) is not None:
                assert found.median == 1.0
                break
        else:
            pytest.fail(f"{goal.title} is in no group")
        assert goal.figure in FIGURE
    assert systems_of(SLICED) <= set(SYSTEMS)
    assert {goal.over[0] for goal in SLICED if goal.over and goal.figure == "async"} == set(KAFKAS)
    assert all(goal.over is None and not goal.at_least for goal in ABSOLUTE)


def test_a_slice_is_as_long_as_asked_by_trials_that_took_long_enough() -> None:
    asked: list[int] = []

    def rate(messages: int) -> float:
        asked.append(messages)
        return 5_000.0

    assert amount(rate, 3.0) == 15_000
    assert asked == [TRIAL, 2400]
    assert amount(lambda _: 10.0, 3.0) == TRIAL
    assert amount(lambda _: 1e9, 3.0) == SLICE_MESSAGES_MAX


class Fake:
    """A system of one speed, which may fail at a figure."""

    def __init__(self, speed: float, fails: str = "") -> None:
        self.speed = speed
        self.fails = fails

    def rates(self, figure: str, messages: int) -> Rates:
        if figure == self.fails:
            raise RuntimeError("the server went away")
        return {figure: self.speed}


def test_a_track_that_fails_is_reported_and_the_others_are_measured() -> None:
    systems = {OURS: Fake(1000.0), "a": Fake(500.0), "b": Fake(1.0, fails="blocking")}
    seen: list[Slice] = []
    taken = take(systems, [AGAINST_A, AGAINST_B], 2, 0.001, seen.append)
    assert [track for track, _ in seen] == [MINE, THEIRS, MINE, THEIRS, MINE]
    assert taken.failed == {OTHER: "the server went away"}
    assert [one.word for one in taken.verdicts([AGAINST_A, AGAINST_B])] == ["reached", "not measured"]


def test_a_pivot_that_fails_loses_only_its_group() -> None:
    taken = take({OURS: Fake(1.0, fails="blocking"), "a": Fake(1.0)}, [AGAINST_A], 2, 0.001, print)
    assert (taken.slices, set(taken.failed)) == ([], {MINE})


def test_the_tables_have_the_spread_beside_the_ratio_and_the_rate() -> None:
    taken = Taken([(GROUP, slices(100, 50, 100, 100, 25, 100, 100))])
    assert list(goal_rows(taken.verdicts([AGAINST_A]))) == [("x", "3.00 [2.00 … 4.00]", "≥ 2", "reached")]
    assert list(goal_rows(Taken().verdicts([AGAINST_A]))) == [("x", "–", "≥ 2", "not measured")]
    assert ("one confirmed send at a time", "a", "37.5 [25.0 … 50.0]") in list(rate_rows(taken))


def test_goals_are_chosen_by_figure_and_by_opponent() -> None:
    assert {goal.figure for goal in chosen(["auto", "each"], None)} == {"auto", "each"}
    assert {goal.over[0] for goal in chosen(["blocking"], ["rabbitmq"]) if goal.over} == {"rabbitmq"}
    assert chosen(None, None) == list(SLICED)
