"""prefetch="auto" (N4, D15): the limit of a consumer follows the pace of its application, and is shown."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import ConfigError
from tests.contracts.handles import buffered, create, until


@pytest.fixture
def connection() -> Iterator[Any]:
    with rb.loopback(broker="auto") as found:
        yield found


def shown(connection: Any, name: str) -> dict[str, Any]:
    """The one consumer of a queue, as the broker shows it."""
    (row,) = connection.admin().list_consumers(name)
    return dict(row)


def test_a_quick_application_gets_more_ahead_and_a_slow_one_less(connection: Any) -> None:
    name = create(connection, "q")
    connection.session().producer(name).send_many(range(4_000))
    consumer = connection.session(ack="client").consumer(name, prefetch="auto")
    assert consumer.info()["limit"] == 16
    for _ in range(2_000):
        consumer.receive(timeout=10)
    quick = consumer.info()["limit"]
    assert quick > 64
    until(lambda: shown(connection, name)["limit"] == consumer.info()["limit"])
    assert shown(connection, name)["tuned"]
    while consumer.info()["limit"] > 8:
        assert consumer.receive(timeout=10) is not None, f"it still has {consumer.info()['limit']} ahead"
        time.sleep(0.05)
    until(lambda: shown(connection, name)["limit"] == consumer.info()["limit"])
    left = buffered(consumer)
    for _ in range(left):
        consumer.receive(timeout=10)
    assert buffered(consumer) <= 8


@pytest.mark.parametrize("way", ["listener", "receive_many"])
def test_other_ways_to_receive_are_measured_as_well(connection: Any, way: str) -> None:
    name = create(connection, "q")
    connection.session().producer(name).send_many(range(3_000))
    session = connection.session(ack="dups_ok")
    consumer = session.consumer(name, prefetch="auto:2-300")
    done = threading.Semaphore(0)
    if way == "listener":
        consumer.on_message(lambda message: done.release())
        for _ in range(3_000):
            assert done.acquire(timeout=10)
    else:
        count = 0
        while count < 3_000:
            count += len(consumer.receive_many(100, timeout=10))
    assert 64 < consumer.info()["limit"] <= 300


def test_a_destination_allows_no_more_than_its_own_limit(connection: Any) -> None:
    name = create(connection, "q", consumerFlowLimit=20)
    connection.session().producer(name).send_many(range(2_000))
    consumer = connection.session(ack="dups_ok").consumer(name, prefetch="auto")
    for _ in range(1_000):
        consumer.receive(timeout=10)
        assert consumer.info()["limit"] <= 20
        assert buffered(consumer) <= 20
    assert consumer.info()["limit"] == 20
    assert shown(connection, name)["limit"] == 20


def test_an_idle_consumer_gets_part_of_what_waits_at_it(connection: Any) -> None:
    """Nobody has set its limit: it shares, as one with the usual limit does"""
    name = create(connection, "q")
    connection.session().producer(name).send_many(range(16))
    busy = connection.session(ack="client").consumer(name, prefetch="auto")
    until(lambda: buffered(busy) == 16)
    idle = connection.session(ack="client").consumer(name, prefetch="auto")
    message = idle.receive(timeout=10)
    assert message is not None
    assert message.delivery_count == 1


def test_what_was_recovered_comes_again_within_the_limit(connection: Any) -> None:
    name = create(connection, "q")
    connection.session().producer(name).send_many(range(1_000))
    session = connection.session(ack="client")
    consumer = session.consumer(name, prefetch="auto:1-200")
    for _ in range(3):
        for _ in range(200):
            consumer.receive(timeout=10)
        session.recover()
    found = [consumer.receive(timeout=10) for _ in range(1_000)]
    assert sorted(message.body for message in found if message is not None) == list(range(1_000))
    found[-1].acknowledge()


@pytest.mark.parametrize(
    "bad", ["automatic", "auto:", "auto:5", "auto:0-9", "auto:9-3", "auto:1-99999999999", "10", -2]
)
def test_what_it_cannot_be_is_refused_by_name(connection: Any, bad: Any) -> None:
    name = create(connection, "q")
    with pytest.raises(ConfigError, match="prefetch"):
        connection.session().consumer(name, prefetch=bad)


def test_the_function_of_a_listener_may_have_it() -> None:
    @rb.listener(queue="q", prefetch="auto:1-50")
    def handle(message: Any) -> None:
        """Nothing to do."""

    assert handle.prefetch == "auto:1-50"
