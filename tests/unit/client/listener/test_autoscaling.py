"""How many instances a backlog is worth."""

from __future__ import annotations

from raybroker.client.listener.autoscaling import SHRINK_LOOKS, Autoscaler


def test_a_backlog_is_worth_one_instance_for_each_target_between_the_bounds() -> None:
    assert [Autoscaler(2, 5, 10).wanted(backlog, 2) for backlog in (0, 20, 21, 40, 41, 1000)] == [2, 2, 3, 4, 5, 5]


def test_fewer_are_wanted_only_after_some_looks_in_a_row() -> None:
    scaler = Autoscaler(1, 9, 10)
    assert scaler.wanted(90, 1) == 9
    assert [scaler.wanted(10, 9) for _ in range(SHRINK_LOOKS - 1)] == [9] * (SHRINK_LOOKS - 1)
    assert scaler.wanted(10, 9) == 1


def test_it_shrinks_to_the_most_that_was_wanted_lately() -> None:
    scaler = Autoscaler(1, 9, 10)
    for backlog in (10, 40, 10, 10):
        scaler.wanted(backlog, 9)
    assert scaler.wanted(10, 9) == 4


def test_a_pool_outside_the_bounds_is_brought_inside_at_once() -> None:
    assert Autoscaler(2, 5, 10).wanted(0, 9) == 5
    assert Autoscaler(2, 5, 10).wanted(0, 1) == 2
