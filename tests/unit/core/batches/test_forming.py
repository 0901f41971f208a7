"""Times of arrival, and what a batch is made of, without a destination."""

from __future__ import annotations

import random

import pytest

from raybroker.core.batches.arrival_times import NOTES_MAX, SHARE, ArrivalTimes
from raybroker.core.batches.forming import cost_of, goes_alone
from raybroker.core.delivery.backlog import Backlog
from raybroker.core.delivery.redelivery import with_failure
from raybroker.core.delivery.run import Run


def test_what_came_before_anybody_asked_came_long_ago() -> None:
    times = ArrivalTimes()
    assert times.since_ms(1, 50) == 0
    times.note(5, 100)
    assert times.since_ms(4, 200) == 0
    assert times.since_ms(5, 200) == 200, "it comes now"
    times.note(7, 200)
    times.note(9, 300)
    assert [times.since_ms(arrival, 400) for arrival in (5, 6, 7, 8, 9)] == [200, 200, 300, 300, 400]


def test_times_are_bounded_and_never_later_than_they_were() -> None:
    """Whatever is kept, a message is said to have come when it did or earlier, and by a share of the longest wait"""
    rng = random.Random(1)
    times, truth, now_ms, longest_ms = ArrivalTimes(), dict[int, int](), 1_000, 10_000
    times.wait_for(longest_ms)
    times.note(1, now_ms)
    arrival = 1
    for _ in range(20_000):
        now_ms += rng.choice((0, 0, 1, 3, 50))
        for _ in range(rng.randrange(3)):
            truth[arrival] = now_ms
            arrival += 1
        times.note(arrival, now_ms)
        old = rng.randrange(max(1, arrival - 500), arrival) if arrival > 1 else 0
        if old:
            said = times.since_ms(old, now_ms)
            assert said <= truth[old]
            assert said > truth[old] - longest_ms // SHARE - 1 or said == 0
            assert said or truth[old] < now_ms - longest_ms
    assert len(times._times) <= NOTES_MAX


@pytest.mark.parametrize(
    ("said", "cost"), [(3, 3), (2.5, 2.5), (0, 0), (None, 1), ("7", 1), (True, 1), (-4, 1), (float("nan"), 1)]
)
def test_a_cost_is_a_number_that_is_not_negative(said: object, cost: float) -> None:
    assert cost_of(said) == cost


def test_only_what_may_fail_again_goes_alone() -> None:
    run = Run(1, 1, 1, 1, 0, 4)
    assert not goes_alone(run)
    assert not goes_alone(with_failure(run, "preempted"))
    assert goes_alone(with_failure(run))
    assert goes_alone(with_failure(with_failure(run, "preempted"), "oom"))


def test_the_front_of_a_long_backlog_is_taken_out_and_the_rest_stays_in_order() -> None:
    """Also where pages are packed, and where messages of one block stand in several runs"""
    backlog = Backlog()
    for arrival in range(1, 3_000):
        backlog.append(Run(arrival, arrival, 1, 0, 0, 4))
    chosen = dict.fromkeys(range(1, 2001, 3), 1)
    backlog.take_near(chosen, 2_000)
    left = [ordinal for ordinal in range(1, 3_000) if ordinal not in chosen]
    assert [run.ordinal for run in backlog.waiting_for()] == left
    assert backlog.count == len(left)
    many = Backlog()
    many.append(Run(1, 1, 0b101010, 0, 0, 4))
    many.give_back(Run(1, 1, 0b010100, 1, 0, 4))
    assert [run.mask for run in many.waiting_for()] == [0b10, 0b100, 0b1000, 0b10000, 0b100000]
