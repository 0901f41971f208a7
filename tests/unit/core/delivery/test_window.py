"""Both flow rules against every worked example of the checklist, with its numbers, as the broker sees them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.client.consumer.prefetch.flow_control import CreditFlow
from raybroker.core.delivery.window import CREDIT_MAX, UNLIMITED, CreditWindow, PrefetchWindow, make_window
from tests.simulation.windows import make_twin_window


def test_a_credit_window_sends_what_was_granted_and_is_then_silent() -> None:  # F-08
    window = CreditWindow(3)
    assert window.room() == 3
    window.sent(2)
    window.settled(2)
    assert window.room() == 1
    window.sent(1)
    assert window.room() == 0
    window.settled(1)
    assert window.room() == 0, "acknowledgements do not open a credit window (F-13)"
    window.granted(2)
    assert window.room() == 2


def test_a_credit_of_minus_one_is_unlimited_for_good() -> None:
    window = CreditWindow(-1)
    window.sent(10**9)
    window.granted(5)
    assert window.room() == UNLIMITED
    later = CreditWindow(1)
    later.granted(-1)
    assert later.room() == UNLIMITED


def test_granted_credit_is_bounded() -> None:
    window = CreditWindow(CREDIT_MAX)
    window.granted(CREDIT_MAX)
    assert window.room() == CREDIT_MAX


def test_sending_more_than_granted_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="granted"):
        CreditWindow(2).sent(3)


@pytest.mark.parametrize(
    ("limit", "percent", "asks_at", "grant"),
    [
        (1000, 50, 500, 500),  # F-07, F-10
        (1000, 10, 100, 900),  # F-11
        (1000, 100, 999, 1),  # F-12
        (1000, 0, 0, 1000),
        (1, 50, 0, 1),
        (3, 50, 1, 2),
        (20, 50, 10, 10),
    ],
)
def test_a_consumer_and_the_broker_agree_on_the_next_batch(limit: int, percent: int, asks_at: int, grant: int) -> None:
    window, flow = CreditWindow(limit), CreditFlow(limit, percent)
    window.sent(limit)
    assert flow.arrived(limit) == 0
    for left in range(limit - 1, asks_at, -1):
        assert flow.consumed(1) == 0, f"asked with {left} left"
        assert window.room() == 0
    assert flow.consumed(1) == grant
    window.granted(grant)
    assert window.room() == grant
    window.sent(grant)
    assert flow.arrived(grant) == 0
    assert flow.buffered == limit, "the buffer is full again and never fuller"


def test_a_slow_answer_makes_a_larger_grant() -> None:  # F-09, F-10: between 500 and 1000
    flow = CreditFlow(1000, 50)
    flow.arrived(1000)
    assert flow.consumed(700) == 700


def test_prefetch_stops_at_1000_and_resumes_after_500() -> None:  # F-18
    window = PrefetchWindow(1000)
    window.sent(1000)
    window.settled(499)
    assert window.room() == 0
    window.settled(1)
    assert window.room() == 500
    window.sent(500)
    assert (window.room(), window.outstanding) == (0, 1000)


@pytest.mark.parametrize(("limit", "acks"), [(10, 5), (1, 1), (2, 1), (3, 2), (5, 3), (7, 4), (1000, 500)])
def test_a_full_prefetch_window_opens_with_the_half_of_it(limit: int, acks: int) -> None:  # F-18, F-19
    window = PrefetchWindow(limit)
    window.sent(limit)
    for _ in range(acks - 1):
        window.settled(1)
        assert window.room() == 0
    window.settled(1)
    assert window.room() == acks


def test_a_prefetch_window_that_never_was_full_is_topped_up_at_once() -> None:
    window = PrefetchWindow(10)
    window.sent(9)
    window.settled(1)
    assert window.room() == 2


def test_prefetch_zero_is_polled_one_by_one() -> None:  # F-20
    window = PrefetchWindow(0)
    assert window.room() == 0
    window.granted(1)
    assert window.room() == 1
    window.sent(1)
    assert window.room() == 0
    window.settled(1)
    assert window.room() == 0


def test_polls_mean_nothing_with_a_prefetch_limit() -> None:
    window = PrefetchWindow(3)
    window.granted(100)
    assert window.room() == 3


def test_prefetch_minus_one_is_unlimited() -> None:
    window = PrefetchWindow(-1)
    window.sent(10**6)
    assert window.room() == UNLIMITED


def test_a_restart_forgets_what_was_out() -> None:
    prefetch = PrefetchWindow(4)
    prefetch.sent(4)
    prefetch.restart(0)
    assert prefetch.room() == 4
    credit = CreditWindow(4)
    credit.sent(4)
    credit.restart(2)
    assert credit.room() == 2


@given(
    st.sampled_from(["credit", "prefetch"]),
    st.integers(-1, 9),
    st.lists(st.tuples(st.sampled_from("sgar"), st.integers(0, 6)), max_size=60),
)
def test_a_window_is_what_its_twin_is(flow: str, limit: int, steps: list[tuple[str, int]]) -> None:
    window, twin = make_window(flow, limit), make_twin_window(flow, limit)
    out = 0
    for verb, wanted in steps:
        assert window.room() == twin.room()
        count = wanted
        if verb == "s":
            count = min(count, window.room())
            out += count
            window.sent(count)
            twin.sent(count)
        elif verb == "g":
            window.granted(count)
            twin.granted(count)
        elif verb == "a":
            count = min(count, out)
            out -= count
            window.settled(count)
            twin.settled(count)
        else:
            out = 0
            window.restart(count)
            twin.restart(count)
    assert window.room() == twin.room()
