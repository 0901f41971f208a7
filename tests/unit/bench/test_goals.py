"""Medians, ratios and verdicts of a benchmark run."""

from __future__ import annotations

import pytest

from benchmarks.goals import BEST_PEER, GOALS, Goal, best_peer, judge, settle_pipe, spreads_of
from benchmarks.readings import FIGURE, OURS, PIPE, RAY_QUEUE, Amounts, Reading


def rounds(system: str, figure: str, *values: float, note: str = "") -> list[Reading]:
    return [Reading(system, figure, value, number, note) for number, value in enumerate(values, 1)]


def test_a_spread_is_median_lowest_and_highest_of_the_rounds() -> None:
    spread = spreads_of(rounds(OURS, "through", 30, 10, 20))[OURS, "through"]
    assert (spread.median, spread.low, spread.high, spread.rounds) == (20, 10, 30, 3)


def test_the_bare_pipe_is_taken_at_the_shape_with_the_best_median_not_the_best_single_round() -> None:
    sweep = rounds(PIPE, "sweep", 100, 110, 120, note="steady") + rounds(PIPE, "sweep", 50, 60, 900, note="lucky")
    settled = spreads_of(settle_pipe(sweep))[PIPE, "through"]
    assert (settled.median, settled.note) == (110, "steady")


def test_the_best_peer_is_the_one_with_the_highest_median_and_never_us_or_the_pipe() -> None:
    readings = rounds("rabbitmq", "through", 5, 6, 7) + rounds("redis-streams", "through", 1, 9, 9)
    readings += rounds(OURS, "through", 99) + rounds(PIPE, "through", 99) + rounds(RAY_QUEUE, "through", 99)
    assert best_peer(spreads_of(readings), "through") == "redis-streams"


def test_a_ratio_is_of_medians_and_its_range_of_the_rounds_that_have_both() -> None:
    readings = rounds(OURS, "through", 60, 70, 80) + rounds(PIPE, "through", 100, 100, 200)
    (verdict,) = judge(readings, [Goal("x", "through", 0.6, (PIPE, "through"))])
    assert (verdict.value, verdict.low, verdict.high, verdict.word) == (0.7, 0.4, 0.7, "reached")


@pytest.mark.parametrize(("value", "word"), [(5.0, "reached"), (5.1, "missed")])
def test_a_figure_where_less_is_better_is_reached_at_its_limit(value: float, word: str) -> None:
    (verdict,) = judge(rounds(OURS, "receive", value), [Goal("x", "receive", 5.0)])
    assert verdict.word == word


def test_what_was_not_measured_is_neither_reached_nor_missed() -> None:
    only_ours = judge(rounds(OURS, "through", 1e9))
    assert {verdict.word for verdict in only_ours} == {"not measured"}
    assert {verdict.word for verdict in judge([])} == {"not measured"}


def test_every_goal_names_a_known_figure() -> None:
    for goal in GOALS:
        assert goal.figure in FIGURE
        if goal.over:
            assert goal.over[1] in FIGURE
            assert FIGURE[goal.over[1]].unit == FIGURE[goal.figure].unit
    assert sum(goal.over is not None and goal.over[0] == BEST_PEER for goal in GOALS) == 1


@pytest.mark.parametrize("given", [{"messages": 999}, {"singles": 10}, {"backlog": 0}, {"size_bytes": 8}])
def test_amounts_too_small_to_mean_anything_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"1000|size"):
        Amounts(**given)
