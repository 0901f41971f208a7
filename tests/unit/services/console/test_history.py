"""The history of destinations: bounds of slots and memory, rates that a lost broker does not falsify, and gaps."""

from __future__ import annotations

import asyncio
from typing import Any

from raybroker.errors import ConnectionLostError
from raybroker.model.listing import DestinationCounts
from raybroker.services.console.history import DESTINATION_BYTES, SLOTS, History, HistorySampling

STEP_MS = 15_000


class Taken:
    """``counts``: broker → {name: (held, in, out)}, queues all of them."""

    def __init__(self, most: int = 10) -> None:
        self.history = History(most)
        self.now_ms = 1_000_000

    def take(self, **brokers: dict[str, tuple[int, int, int]]) -> None:
        self.now_ms += STEP_MS
        self.history.record(
            self.now_ms,
            {broker: [("queue", name, *row) for name, row in rows.items()] for broker, rows in brokers.items()},
        )

    def rows(self, name: str) -> list[list[Any]]:
        return [row[1:] for row in self.history.slot_rows(("queue", name))]

    def sums(self) -> list[list[Any]]:
        return [row[1:] for row in self.history.slot_rows()]


def test_rates_are_between_slots_and_the_first_one_has_none() -> None:
    taken = Taken()
    taken.take(b1={"a": (5, 100, 95)})
    taken.take(b1={"a": (20, 130, 110), "new": (3, 30, 27)})
    assert taken.rows("a") == [[5, None, None], [20, 2.0, 1.0]]
    assert taken.rows("new") == [[3, 2.0, 1.8]], "what is new has counted from zero"
    assert taken.sums() == [[5, None, None], [23, 4.0, 2.8]]
    assert taken.history.latest(("queue", "new")) == (2.0, 1.8)
    assert taken.history.latest(("queue", "none")) == (None, None)
    times = [row[0] for row in taken.history.slot_rows()]
    assert times[1] - times[0] == STEP_MS


def test_members_of_all_brokers_are_added_up() -> None:
    taken = Taken()
    taken.take(b1={"a": (1, 10, 0)}, b2={"a": (2, 20, 0)})
    taken.take(b1={"a": (1, 25, 15)}, b2={"a": (2, 50, 30)})
    assert taken.rows("a") == [[3, None, None], [3, 3.0, 3.0]]


def test_what_a_lost_broker_has_counted_is_in_no_rate_when_it_is_back() -> None:
    taken = Taken()
    taken.take(b1={"a": (1, 10, 0)}, b2={"a": (2, 1_000_000, 0), "b": (7, 2_000_000, 0)})
    taken.take(b1={"a": (1, 25, 0)})
    taken.take(b1={"a": (1, 25, 0)}, b2={"a": (2, 1_000_300, 0), "b": (7, 2_000_000, 0)})
    taken.take(b1={"a": (1, 25, 0)}, b2={"a": (2, 1_000_600, 0), "b": (7, 2_000_015, 0)})
    assert [row[1] for row in taken.rows("a")] == [None, 1.0, 0.0, 20.0]
    assert taken.rows("b") == [[7, None, None], [None, None, None], [7, None, None], [7, 1.0, 0.0]]
    assert [row[1] for row in taken.sums()] == [None, 1.0, 0.0, 21.0]


def test_counts_of_a_host_that_starts_again_give_no_rate_below_zero() -> None:
    taken = Taken()
    taken.take(b1={"a": (1, 10, 10)})
    taken.take(b1={"a": (1, 3, 0)})
    assert taken.rows("a")[-1] == [1, 0.0, 0.0]


def test_a_broker_that_does_not_answer_leaves_a_gap() -> None:
    taken = Taken()
    taken.take(b1={"a": (1, 10, 10)})
    taken.take()
    taken.take(b1={"a": (1, 40, 10)})
    assert taken.rows("a") == [[1, None, None], [None, None, None], [1, None, None]]
    assert taken.sums() == [[1, None, None], [None, None, None], [1, None, None]]


def test_it_has_slots_up_to_their_bound_and_forgets_what_has_been_gone_for_as_long() -> None:
    taken = Taken()
    for number in range(SLOTS + 10):
        taken.take(b1={"a": (number, 0, 0)} | ({"b": (1, 0, 0)} if number < 15 else {}))
    assert [row[0] for row in taken.rows("a")] == list(range(10, SLOTS + 10))
    assert [row[0] for row in taken.rows("b")][:6] == [1, 1, 1, 1, 1, None]
    for _ in range(5):
        taken.take(b1={"a": (0, 0, 0)})
    assert taken.rows("b") == []
    assert ("queue", "b") not in taken.history._kept
    assert taken.history.slot_rows(("topic", "a")) == []


def test_of_too_many_destinations_some_are_kept_and_what_is_gone_makes_room() -> None:
    taken = Taken(most=3)
    many = {f"q{number}": (1, 0, 0) for number in range(6)}
    taken.take(b1={"mq.temp.q.b1.x": (1, 0, 0), **many})
    assert [len(taken.rows(name)) for name in many] == [1, 1, 1, 0, 0, 0]
    assert taken.sums() == [[7, None, None]], "sums are of all"
    for _ in range(3):
        taken.take(b1={name: row for name, row in many.items() if name != "q1"})
    assert [len(taken.rows(name)) for name in many] == [4, 0, 4, 2, 0, 0]
    kept = taken.history._kept.values()
    assert len(kept) == 4
    assert sum(len(one) * one.itemsize for one in kept) == 4 * DESTINATION_BYTES


def test_of_none_there_are_the_sums() -> None:
    taken = Taken(most=0)
    taken.take(b1={"a": (1, 0, 0)})
    taken.take(b1={"a": (1, 15, 0)})
    assert taken.rows("a") == []
    assert taken.sums() == [[1, None, None], [1, 1.0, 0.0]]


def test_a_sample_that_fails_is_a_gap_and_not_the_end() -> None:
    asked = 0

    async def ask() -> DestinationCounts:
        nonlocal asked
        asked += 1
        raise ConnectionLostError("it is down")

    async def run() -> None:
        samples = HistorySampling(ask, 15, 10, lambda: 5)
        await samples.start()
        await samples.start()  # As a second service does.
        await asyncio.sleep(0.05)
        assert (asked, samples.history.slot_rows()) == (1, [])
        samples.close()

    asyncio.run(run())
