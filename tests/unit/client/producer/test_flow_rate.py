"""Flow control by rate: the limits of one producer over time, and what it may send by them (W-20 to W-26)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.client.producer.pacing.flow_rate import SECOND_NS, FlowRate, FlowRates, flow_rates
from raybroker.config import Config
from raybroker.errors import ConfigError

DEFAULTS = flow_rates(Config.from_values())
assert DEFAULTS is not None
DOWN = [500, 397.16, 315.48, 250.59, 199.05, 158.11, 125.59, 99.76, 79.24, 62.95, 50.00, 50.00]
UP = [50, 95, 140, 185, 230, 275, 320, 365, 410, 455, None, None]


def at(seconds: float) -> int:
    return int(seconds * SECOND_NS)


def limit_at(rate: FlowRate, seconds: float) -> float | None:
    rate.advance(at(seconds))
    return None if rate.limit is None else round(rate.limit, 2)


def rate_of(most: int, least: int, interval_s: int, steps: int) -> FlowRate:
    return FlowRate(FlowRates(most, least, at(interval_s), steps), 0)


@pytest.mark.parametrize("every_s", [0.5, 6, 18])
def test_the_worked_table(every_s: float) -> None:
    """Whether it is looked at often, at each step, or after several of them."""
    assert DEFAULTS is not None
    rate = FlowRate(DEFAULTS, 0)
    seen, passed = [], 0.0
    while passed <= 66:
        seen.append((passed, limit_at(rate, passed)))
        passed += every_s
    assert [limit for passed, limit in seen] == [DOWN[int(passed // 6)] for passed, limit in seen]
    rate.signal(at(66.5), armed=False)
    assert [limit_at(rate, 66.5 + passed) for passed, _ in seen] == [UP[int((passed + 0.5) // 6)] for passed, _ in seen]


def test_the_example_of_the_documents() -> None:
    rate = rate_of(100, 12, 60, 6)
    assert [limit_at(rate_of(1000, 125, 60, 3), t) for t in (0, 20, 40, 60, 80)] == [1000, 500, 250, 125, 125]
    assert (limit_at(rate, 9.99), limit_at(rate, 10)) == (100, 70.23), "60 s in 6 steps is a step every 10 s"


def test_disarmed_on_the_way_it_goes_up_from_there_and_armed_again_it_waits_for_its_next_step() -> None:
    assert DEFAULTS is not None
    rate = FlowRate(DEFAULTS, 0)
    rate.signal(at(24.1), armed=False)
    ups = [limit_at(rate, 30 + 6 * step) for step in range(3)]
    assert ups == [244.05, 289.05, 334.05]
    rate.signal(at(43), armed=True)
    assert (limit_at(rate, 47.9), limit_at(rate, 48)) == (334.05, 265.35), "not back to FlowMaximum"
    other = FlowRate(DEFAULTS, 0)
    other.signal(at(24.1), armed=False)
    assert [limit_at(other, 30 + 6 * step) for step in range(7)][3:] == [379.05, 424.05, 469.05, None]


def test_without_an_interval_there_are_no_steps() -> None:
    rate = rate_of(500, 50, 0, 10)
    assert limit_at(rate, 0) == limit_at(rate, 3600) == 50
    rate.signal(at(3601), armed=False)
    assert rate.limit is None


def test_equal_limits_hold_until_the_first_step_after_the_end() -> None:
    rate = rate_of(70, 70, 10, 2)
    assert limit_at(rate, 100) == 70
    rate.signal(at(101), armed=False)
    assert (limit_at(rate, 104.9), limit_at(rate, 105)) == (70, None)


def test_limits_that_cannot_be_are_refused_and_a_factory_can_switch_all_of_it_off() -> None:
    with pytest.raises(ConfigError, match=r"FlowMinimum = 51 is more than FlowMaximum = 50"):
        flow_rates(Config.from_values({"FlowMinimum": 51, "FlowMaximum": 50}))
    with pytest.raises(ConfigError, match="FlowMinimum = 50 is more than FlowMaximum = 49"):
        flow_rates(Config.from_values({"FlowMaximum": 49, "FlowControlEnabled": False}))
    assert flow_rates(Config.from_values({"FlowControlEnabled": False})) is None


def test_more_steps_than_nanoseconds_are_taken_at_once() -> None:
    rate = rate_of(1000, 10, 1, 2**31 - 1)
    assert limit_at(rate, 10) == 10
    rate.signal(at(10), armed=False)
    assert limit_at(rate, 20) is None


def sent(rate: FlowRate, seconds: list[float]) -> list[float]:
    """When each message leaves that somebody wants to send at these times, one after another."""
    left, now = [], 0.0
    for wanted in seconds:
        now = max(now, wanted)
        rate.advance(at(now))
        now += rate.reserve(1) / SECOND_NS
        left.append(now)
    return left


def test_a_busy_producer_sends_evenly_and_no_second_has_more_than_its_limit() -> None:
    left = sent(rate_of(50, 50, 60, 10), [0.0] * 200)
    assert [round(t, 6) for t in left[:3]] == [0, 0.02, 0.04]
    assert max(sum(start <= t < start + 1 - 1e-6 for t in left) for start in left) == 50


@given(st.lists(st.floats(0.02, 0.4), min_size=1, max_size=60))
def test_a_producer_that_sends_less_than_its_limit_is_not_delayed(pauses: list[float]) -> None:
    times = [sum(pauses[: index + 1]) for index in range(len(pauses))]
    assert sent(rate_of(50, 50, 60, 10), times) == pytest.approx(times, abs=1e-6)


def test_a_pause_is_worth_a_second_at_most() -> None:
    rate = rate_of(10, 10, 60, 10)
    rate.advance(at(3600))
    assert rate.turns == 10
    assert [rate.take_tokens(1) for _ in range(11)] == [True] * 10 + [False]
    assert rate.wait_ns == SECOND_NS // 10


def test_a_block_is_paid_for_afterwards_and_is_small() -> None:
    rate = rate_of(100, 100, 60, 10)
    assert (rate.run, rate_of(5, 5, 60, 10).run) == (10, 1)
    assert rate.take_tokens(rate.run)
    assert not rate.take_tokens(1)
    rate.advance(at(0.099))
    assert not rate.turns
    rate.advance(at(0.1))
    assert rate.take_tokens(1)


@given(st.lists(st.tuples(st.integers(0, 20_000), st.booleans()), max_size=30), st.integers(1, 12))
def test_however_it_is_armed_a_limit_is_between_the_two_and_changes_at_its_own_steps_only(
    turns: list[tuple[int, bool]], steps: int
) -> None:
    rate, now_ms = rate_of(300, 20, 12, steps), 0
    step_ms = 12_000 / steps
    for pause_ms, armed in turns:
        before, now_before = rate.limit, now_ms
        now_ms += pause_ms
        rate.signal(now_ms * 1_000_000, armed=armed)
        if rate.limit is None:
            break
        assert 20 <= rate.limit <= 300
        if int(now_ms / step_ms) == int(now_before / step_ms):
            assert rate.limit == before
