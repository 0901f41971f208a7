"""How many workers a promise takes."""

from __future__ import annotations

import pytest

from raybroker.client.listener.autoscaling import SHRINK_LOOKS
from raybroker.client.listener.promise import Demand, Promise, check_promise_s
from raybroker.errors import ConfigError


class Queue:
    """A queue whose workers do ``pace`` messages a second each; one look a second."""

    def __init__(self, promise: Promise, pace: float) -> None:
        self.promise = promise
        self.pace = pace
        self.workers = 0
        self.came = self.done = 0
        self.at_s = 100.0
        self.oldest_s = 0.0
        self.reason = ""
        self._arrivals: list[tuple[float, int]] = []

    def second(self, arrivals: int = 0) -> None:
        self.at_s += 1
        if arrivals:
            self._arrivals.append((self.at_s, arrivals))
            self.came += arrivals
        self.done += min(int(self.workers * self.pace), self.came - self.done)
        left = self.done
        self.oldest_s = 0.0
        for at_s, count in self._arrivals:
            if left < count:
                self.oldest_s = self.at_s - at_s
                break
            left -= count
        found = self.promise.wanted(
            Demand(self.came - self.done, self.oldest_s, self.came, self.done, self.at_s), self.workers
        )
        self.workers, self.reason = found


def test_from_zero_and_back_and_the_promise_is_kept() -> None:
    queue = Queue(Promise(0, 50, 30.0), pace=4)
    queue.second()
    assert queue.workers == 0
    queue.second(1000)
    assert queue.workers == 1
    assert "not known yet" in queue.reason
    worst, most = 0.0, 0
    for _ in range(60):
        queue.second()
        worst, most = max(worst, queue.oldest_s), max(most, queue.workers)
    assert worst < 30
    assert 8 <= most <= 20  # 1000 messages in 30 s by workers that do 4 a second.
    assert queue.workers == 0
    assert queue.reason == "nothing waits, and nothing has come for 30 s"


def test_what_comes_steadily_has_as_many_as_it_takes() -> None:
    queue = Queue(Promise(0, 50, 10.0), pace=5)
    for _ in range(60):
        queue.second(40)
    assert 8 <= queue.workers <= 12
    assert queue.oldest_s < 10


def test_bounds_hold_and_the_reason_says_so() -> None:
    queue = Queue(Promise(1, 3, 5.0), pace=1)
    queue.second()
    assert queue.workers == 1
    for _ in range(8):
        queue.second(100)
    assert queue.workers == 3
    assert queue.reason.endswith("; at most 3 are allowed")


def test_fewer_are_wanted_only_after_some_looks_in_a_row() -> None:
    promise = Promise(0, 9, 10.0)
    empty = [Demand(0, 0.0, 0, 0, float(second)) for second in range(SHRINK_LOOKS)]
    assert [promise.wanted(one, 4).workers for one in empty] == [4] * (SHRINK_LOOKS - 1) + [0]


def test_a_broker_that_counts_anew_teaches_no_pace() -> None:
    promise = Promise(0, 9, 10.0)
    promise.wanted(Demand(50, 1.0, 1000, 950, 1.0), 1)
    found = promise.wanted(Demand(50, 2.0, 50, 0, 2.0), 1)
    assert "not known yet" in found.reason


@pytest.mark.parametrize("value", [0, -1, True, "30", 1e9, None, float("nan")])
def test_a_promise_that_cannot_be_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="promise_s="):
        check_promise_s(value)
