"""Wake-ups keep the earliest time of each destination; retries come together, some seconds after the first."""

from __future__ import annotations

from raybroker.engine.wakeups import AGAIN_MS, Retries, Wakeups


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
    wakeups.forget(1)
    wakeups.forget(9)
    alarms.clear()
    wakeups.remind()
    assert (wakeups.due(100), alarms) == ([2], [40])
    wakeups.forget(2)
    wakeups.remind()
    assert alarms == [40], "nothing is left to wake"


def test_what_was_not_taken_comes_back_together() -> None:
    alarms: list[int] = []
    now = [1000]
    retries: Retries[str] = Retries(Wakeups(alarms.append), lambda: now[0])
    assert retries.due(10**9) == []
    retries.add("a")
    now[0] += 10
    retries.add("b")
    assert alarms == [1000 + AGAIN_MS]
    assert retries.due(1000 + AGAIN_MS - 1) == []
    assert retries.due(1000 + AGAIN_MS) == ["a", "b"]
    assert retries.due(10**9) == []
