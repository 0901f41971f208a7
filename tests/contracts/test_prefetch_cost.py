"""Prefetch in cost and in bytes, consumer by consumer (N4)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import ConfigError
from tests.contracts.handles import buffered, create, nothing, until


@pytest.fixture
def connection() -> Iterator[Any]:
    with rb.loopback(broker="costs") as found:
        yield found


def fill(connection: Any, name: str, costs: list[int]) -> None:
    producer = connection.session().producer(name)
    for number, cost in enumerate(costs):
        producer.send(number, {"cost": cost})


def test_what_lies_in_the_buffer_costs_no_more_than_was_asked_for(connection: Any) -> None:
    name = create(connection, "q")
    costs = [5, 40, 1, 90, 3, 3, 100, 250, 2] * 20
    fill(connection, name, costs)
    consumer = connection.session(ack="client").consumer(name, prefetch_cost=100)
    until(lambda: buffered(consumer) > 0)
    for number, cost in enumerate(costs):
        message = consumer.receive(timeout=10)
        assert message is not None, f"message {number} of {len(costs)} does not come"
        assert (message.body, message.properties["cost"]) == (number, cost)
        ahead = costs[number + 1 : number + 1 + buffered(consumer)]
        # What was taken of a part is not told yet: one part, or one message, may be here twice over.
        assert sum(ahead) <= 100 or len(ahead) <= 1 or sum(ahead[:-1]) <= 25, f"{ahead} are ahead of {number}"
    assert nothing(consumer)


def test_two_consumers_share_by_cost(connection: Any) -> None:
    """One with long work in its buffer leaves the rest to the other"""
    name = create(connection, "q", prefetchRecall="Never")
    first = connection.session(ack="client").consumer(name, prefetch_cost=1_000)
    fill(connection, name, [900] * 4)
    until(lambda: buffered(first) == 1)
    other = connection.session(ack="client").consumer(name, prefetch_cost=10_000)
    until(lambda: buffered(other) == 3)
    time.sleep(0.05)
    assert (buffered(first), buffered(other)) == (1, 3)


def test_why_names_the_cost(connection: Any) -> None:
    name = create(connection, "q")
    fill(connection, name, [60, 60])
    consumer = connection.session(ack="client").consumer(name, prefetch_cost=100)
    until(lambda: buffered(consumer) == 1)
    (row,) = connection.admin().list_consumers(name)
    assert "60 of 100 cost in its buffer" in str(connection.admin().why("consumer", row["id"]))


def test_bytes_are_bounded_for_one_consumer(connection: Any) -> None:
    name = create(connection, "q")
    connection.session().producer(name).send_many([b"x" * 1_000] * 50)
    consumer = connection.session(ack="client").consumer(name, prefetch_bytes=10_000)
    until(lambda: buffered(consumer) >= 10)
    time.sleep(0.05)
    assert buffered(consumer) == 10


def test_a_listener_may_have_it(connection: Any) -> None:
    @rb.listener(queue="q", prefetch_cost=50)
    def handle(message: Any) -> None:
        """Nothing to do."""

    assert handle.prefetch_cost == 50


@pytest.mark.parametrize(
    "bad",
    [{"prefetch_cost": 0}, {"prefetch_cost": 1.5}, {"prefetch_bytes": -1}, {"prefetch_bytes": 1, "prefetch_cost": 1}],
)
def test_what_they_cannot_be_is_refused_by_name(connection: Any, bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        connection.session().consumer(create(connection, "q"), **bad)
