"""The prefetch that tunes itself: it finds the number that its application and its way need, and stays there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.client.consumer.prefetch.prefetch_tuner import (
    HORIZON_MAX_NS,
    HORIZON_MIN_NS,
    HORIZON_ROUND_TRIPS,
    PrefetchTuner,
)

MS = 1_000_000


class Application:
    """It works off what it has ahead, asks for more at the half as a consumer does, and waits when nothing is there."""

    def __init__(self, tuner: PrefetchTuner, trip_ns: int) -> None:
        self.tuner = tuner
        self.trip_ns = trip_ns
        self.now_ns = 1_000
        self.here = tuner.chosen
        self.coming: tuple[int, int] | None = None
        self.changes: list[int] = []
        self.waited_ns = 0

    def take(self, pace_ns: int) -> None:
        if not self.here:
            self.tuner.waits(self.now_ns)
            assert self.coming is not None
            self.waited_ns += max(self.coming[0] - self.now_ns, 0)
            self.now_ns = max(self.now_ns, self.coming[0])
        if self.coming is not None and self.coming[0] <= self.now_ns:
            self.here += self.coming[1]
            self.tuner.came(self.coming[1], self.coming[0])
            self.coming = None
        self.here -= 1
        if self.tuner.took(1, self.now_ns):
            self.changes.append(self.tuner.chosen)
        if self.coming is None and self.here <= self.tuner.chosen // 2 and self.tuner.chosen > self.here:
            self.coming = self.now_ns + self.trip_ns, self.tuner.chosen - self.here
            self.tuner.asked(self.coming[1], self.now_ns)
        self.now_ns += pace_ns


def wanted(pace_ns: int, trip_ns: int, least: int, most: int) -> int:
    horizon_ns = min(max(HORIZON_ROUND_TRIPS * trip_ns, HORIZON_MIN_NS), HORIZON_MAX_NS)
    return min(max(horizon_ns // pace_ns + 1, least), most)


@given(
    pace_ns=st.integers(10_000, 5_000 * MS),
    trip_ns=st.integers(50_000, 400 * MS),
    bounds=st.tuples(st.integers(1, 50), st.integers(50, 500)),
)
def test_it_comes_near_to_what_is_needed_and_stays(pace_ns: int, trip_ns: int, bounds: tuple[int, int]) -> None:
    least, most = bounds
    tuner = PrefetchTuner(least, most)
    application = Application(tuner, trip_ns)
    for _ in range(30 * most):
        application.take(pace_ns)
        assert least <= tuner.chosen <= most
    needed = wanted(pace_ns, trip_ns, least, most)
    assert 2 * needed < 3 * tuner.chosen + 3, f"{tuner.chosen} are ahead where {needed} are needed"
    assert 2 * tuner.chosen < 3 * needed + 3, f"{tuner.chosen} are ahead where {needed} are needed"
    settled = len(application.changes)
    for _ in range(5 * most):
        application.take(pace_ns)
    assert len(application.changes) == settled, f"it went on to change: {application.changes[settled:]}"


@given(noise=st.lists(st.floats(0.8, 1.25), min_size=50, max_size=50), pace_ns=st.sampled_from([MS // 10, MS, 5 * MS]))
def test_it_does_not_follow_noise(noise: list[float], pace_ns: int) -> None:
    tuner = PrefetchTuner(1, 1_000)
    application = Application(tuner, 2 * MS)
    for _ in range(5_000):
        application.take(pace_ns)
    settled = tuner.chosen
    for factor in noise * 20:
        application.take(int(pace_ns * factor))
    assert 2 * settled <= 3 * tuner.chosen <= 6 * settled
    assert len(application.changes) < 12


def test_an_application_that_becomes_slow_keeps_little_and_one_that_becomes_quick_gets_much() -> None:
    tuner = PrefetchTuner(1, 1_000)
    application = Application(tuner, MS)
    for _ in range(10_000):
        application.take(MS // 10)
    assert 150 <= tuner.chosen <= 300
    for _ in range(400):
        application.take(1_000 * MS)
    assert tuner.chosen == 1
    for _ in range(10_000):
        application.take(MS // 10)
    assert 150 <= tuner.chosen <= 300
    steps = [(a, b) for a, b in zip(application.changes, application.changes[1:], strict=False)]
    assert all(b <= 2 * a and 2 * b >= a - 1 for a, b in steps), "it moves by more than the double or the half"


@pytest.mark.parametrize("trip_ms", [1, 40])
def test_the_application_hardly_waits_once_it_has_found_its_number(trip_ms: int) -> None:
    tuner = PrefetchTuner(1, 1_000)
    application = Application(tuner, trip_ms * MS)
    for _ in range(5_000):
        application.take(MS)
    application.waited_ns, before_ns = 0, application.now_ns
    for _ in range(5_000):
        application.take(MS)
    assert application.waited_ns * 20 < application.now_ns - before_ns


def test_a_slow_producer_is_not_taken_for_a_long_way() -> None:
    """Requests that bring less than they asked for have waited for messages."""
    tuner = PrefetchTuner(1, 1_000)
    now_ns = 1_000
    for _ in range(200):
        tuner.asked(10, now_ns)
        tuner.came(10, now_ns + MS)
        now_ns += MS
    for _ in range(2_000):
        tuner.asked(10, now_ns)
        now_ns += 500 * MS
        tuner.came(1, now_ns)
        tuner.took(1, now_ns)
        now_ns += MS
        tuner.waits(now_ns)
    assert tuner.chosen <= 2 * wanted(MS, MS, 1, 1_000)
