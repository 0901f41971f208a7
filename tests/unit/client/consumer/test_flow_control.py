"""When a consumer asks for more, with the numbers of the seeds (F-05 … F-14, F-20, F-26)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.client.consumer.prefetch.flow_control import (
    CreditFlow,
    PrefetchFlow,
    memory_bytes_needed,
    threshold_messages,
)


def running(limit: int, percent: int) -> CreditFlow:
    """A consumer that got its whole first batch and has consumed nothing."""
    flow = CreditFlow(limit, percent)
    assert flow.arrived(limit) == 0
    return flow


# ---- F-07, F-12: how many may be left --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "percent", "left"),
    [
        (1000, 50, 500),
        (1000, 10, 100),
        (1, 50, 0),
        (1, 100, 0),
        (3, 50, 1),
        (20, 50, 10),
        (1000, 100, 999),
        (1000, 0, 0),
        (1000, 101, 999),
        (1000, -1, 0),
        (7, 50, 3),
        (2, 50, 1),
        (2, 100, 1),
        (2147483647, 50, 1073741823),
    ],
)
def test_the_threshold_is_the_rounded_down_percentage_and_below_the_limit(limit: int, percent: int, left: int) -> None:
    assert threshold_messages(limit, percent) == left


def test_with_501_left_nothing_is_asked_with_500_left_500() -> None:
    flow = running(1000, 50)
    assert [flow.consumed(1) for _ in range(499)] == [0] * 499
    assert flow.buffered == 501
    assert flow.consumed(1) == 500
    assert flow.buffered == 500


def test_with_499_left_501_are_asked_for() -> None:
    flow = running(1000, 50)
    assert flow.consumed(499) == 0
    assert flow.buffered == 501
    assert flow.consumed(2) == 501
    assert flow.buffered == 499


def test_limit_1000_at_10_percent_asks_at_100_left_for_900() -> None:
    flow = running(1000, 10)
    assert flow.consumed(899) == 0
    assert flow.buffered == 101
    assert flow.consumed(1) == 900


@pytest.mark.parametrize(
    ("limit", "percent", "consumed_first", "grant"),
    [(1, 50, 1, 1), (3, 50, 2, 2), (20, 50, 10, 10), (1000, 100, 1, 1), (1000, 0, 1000, 1000)],
)
def test_small_and_extreme_limits_ask_as_derived(limit: int, percent: int, consumed_first: int, grant: int) -> None:
    flow = running(limit, percent)
    for _ in range(3):
        assert [flow.consumed(1) for _ in range(consumed_first - 1)] == [0] * (consumed_first - 1)
        assert flow.consumed(1) == grant
        assert flow.arrived(grant) == 0


# ---- F-08, F-09: stop and go -----------------------------------------------------------------------------------------


def test_nothing_is_asked_while_granted_messages_are_still_to_come() -> None:
    flow = CreditFlow(10, 50)
    assert flow.arrived(4) == 0
    assert [flow.consumed(1) for _ in range(4)] == [0, 0, 0, 0]
    assert flow.arrived(5) == 0
    assert flow.consumed(5) == 0
    assert flow.arrived(1) == 9, "the last granted message came and only it is left"


def test_the_grant_is_the_limit_less_what_is_left_when_asking() -> None:
    flow = running(1000, 50)
    assert flow.consumed(700) == 700
    assert flow.arrived(700) == 0
    assert flow.buffered == 1000
    assert flow.consumed(500) == 500


def test_after_asking_the_broker_has_to_be_silent_again_before_the_next_time() -> None:
    flow = running(10, 50)
    assert flow.consumed(5) == 5
    assert flow.consumed(5) == 0
    assert flow.arrived(4) == 0
    assert flow.arrived(1) == 5


def test_an_unlimited_consumer_never_asks() -> None:
    flow = CreditFlow(-1, 50)
    assert flow.arrived(100_000) == 0
    assert flow.consumed(100_000) == 0


def test_after_a_restart_the_whole_limit_is_to_come() -> None:
    flow = running(10, 50)
    flow.consumed(7)
    flow.restart()
    assert (flow.buffered, flow.to_come) == (0, 10)
    assert flow.arrived(10) == 0
    assert flow.consumed(5) == 5


@given(st.integers(1, 60), st.integers(0, 100), st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=200))
def test_the_buffer_never_exceeds_the_limit_and_the_flow_never_stalls(
    limit: int, percent: int, steps: list[tuple[bool, int]]
) -> None:
    """Against a broker that sends what was granted, in any pieces: the dumb twin counts."""
    flow = CreditFlow(limit, percent)
    granted, buffered = limit, 0
    for arrives, size in steps:
        if arrives and granted:
            count = min(size, granted)
            granted, buffered = granted - count, buffered + count
            ask = flow.arrived(count)
        elif not arrives and buffered:
            count = min(size, buffered)
            buffered -= count
            ask = flow.consumed(count)
        else:
            continue
        if ask:
            assert granted == 0, "asked before the broker was silent"
            assert buffered <= threshold_messages(limit, percent), "asked above the threshold"
            assert ask == limit - buffered
            granted = ask
        assert flow.buffered == buffered
        assert buffered + granted <= limit
        assert granted or buffered > threshold_messages(limit, percent), "both sides wait"


# ---- F-14, F-20: polling; F-26: memory -------------------------------------------------------------------------------


def test_with_prefetch_0_one_message_is_polled_for_at_a_time() -> None:
    flow = PrefetchFlow(0)
    assert flow.wanted() == 1
    assert flow.wanted() == 0, "one poll is under way"
    flow.arrived(1)
    assert flow.wanted() == 0, "what came was not taken yet"
    flow.consumed(1)
    assert flow.wanted() == 1


def test_a_poll_is_forgotten_when_the_consumer_starts_anew() -> None:
    flow = PrefetchFlow(0)
    assert flow.wanted() == 1
    flow.restart()
    assert flow.wanted() == 1


@pytest.mark.parametrize("limit", [-1, 1, 2, 1000])
def test_with_another_prefetch_nothing_is_polled_for(limit: int) -> None:
    flow = PrefetchFlow(limit)
    assert (flow.wanted(), flow.arrived(1), flow.consumed(1), flow.wanted()) == (0, 0, 0, 0)


def test_the_memory_needed_is_twice_the_buffers() -> None:
    assert memory_bytes_needed(2, 1000, 10_240) == 40_960_000
    assert memory_bytes_needed(1, 20, 1024 * 1024) == 40 * 1024 * 1024
