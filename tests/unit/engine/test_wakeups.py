"""Wake-ups keep the earliest time of each destination; retries come together, some seconds after the first."""

from __future__ import annotations

import pytest

from raybroker.engine.measured_time import MeasuredTime
from raybroker.engine.path.wakeups import AGAIN_MS, Durations, WakeupRetries, Wakeups
from tests.unit.engine.rig import Clock


def test_the_earliest_time_of_a_destination_counts() -> None:
    alarms: list[int] = []
    wakeups = Wakeups(alarms.append)
    wakeups.wake(1, 50)
    wakeups.wake(1, 70)
    wakeups.wake(1, 30)
    wakeups.wake(2, 40)
    assert alarms == [50, 30, 40], "a later time needs no alarm"
    assert wakeups.due(29) == []
    assert wakeups.due(30) == [1]
    assert wakeups.due(40) == [1, 2]


def test_a_forgotten_one_does_not_wake_and_the_rest_is_asked_for_again() -> None:
    alarms: list[int] = []
    wakeups = Wakeups(alarms.append)
    wakeups.wake(1, 30)
    wakeups.wake(2, 40)
    wakeups.cancel(1)
    wakeups.cancel(9)
    alarms.clear()
    wakeups.remind()
    assert (wakeups.due(100), alarms) == ([2], [40])
    wakeups.cancel(2)
    wakeups.remind()
    assert alarms == [40], "nothing is left to wake"


def test_what_was_not_taken_comes_back_together() -> None:
    alarms: list[int] = []
    clock = Clock()
    retries: WakeupRetries[str] = WakeupRetries(Durations(Wakeups(alarms.append), MeasuredTime(clock)))
    assert retries.due() == []
    retries.add("a")
    clock.ms += 10
    retries.add("b")
    assert alarms == [clock.ms - 10 + AGAIN_MS]
    clock.ms += AGAIN_MS - 11
    assert retries.due() == []
    clock.ms += 1
    assert retries.due() == ["a", "b"]
    clock.ms += AGAIN_MS
    assert retries.due() == []


@pytest.mark.parametrize("hours", [-1, 1])
def test_what_the_host_waits_for_takes_as_long_when_the_clock_is_set(hours: int) -> None:
    alarms: list[int] = []
    clock, wakeups = Clock(), Wakeups(alarms.append)
    retries: WakeupRetries[str] = WakeupRetries(Durations(wakeups, MeasuredTime(clock)))
    retries.add("a")
    clock.stepped_ms = hours * 3_600_000
    assert retries.due() == []
    clock.ms += AGAIN_MS
    assert retries.due() == ["a"]
    wakeups.cancel(0)
    retries.add("b")
    assert alarms[-1] == clock.ms + AGAIN_MS, "an alarm is by measured time"
