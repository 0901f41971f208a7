"""The clocks tell wall time in milliseconds and a monotonic time in nanoseconds."""

from __future__ import annotations

import time

from raybroker.system.clock import SystemClock


def test_wall_time_is_in_milliseconds_since_the_epoch() -> None:
    before = time.time()
    now_ms = SystemClock().now_ms()
    assert before * 1000 - 1 <= now_ms <= time.time() * 1000 + 1


def test_monotonic_time_never_runs_backwards() -> None:
    clock = SystemClock()
    readings = [clock.monotonic_ns() for _ in range(100)]
    assert readings == sorted(readings)
