"""Batches that the broker forms: by number, cost, key and deadline; leased as one, settled message by message (N11)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker import aio
from raybroker.errors import ConfigError, IllegalStateError
from raybroker.examples import batch_inference
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import create, until

FOREVER_S = 3600.0
"""A deadline that no test lives to see."""


@pytest.fixture
def connection() -> Iterator[Any]:
    with rb.loopback(broker="batches") as found:
        yield found


def batches(connection: Any, name: str, batch: rb.Batch, **options: Any) -> Any:
    return connection.session(ack="client").consumer(name, batch=batch, **options)


def got(consumer: Any, timeout: float = 10.0) -> list[Any]:
    return [message.body for message in consumer.receive_batch(timeout=timeout)]


def test_a_batch_is_full_by_number_and_the_rest_waits_for_the_deadline(connection: Any) -> None:
    name = create(connection, "q")
    connection.session().producer(name).send_many(range(5))
    consumer = batches(connection, name, rb.Batch(max_messages=3, deadline_s=FOREVER_S))
    assert got(consumer) == [0, 1, 2]
    assert got(consumer) == [3, 4], "what was there before anybody wanted batches has waited"
    connection.session().producer(name).send_many(range(2))
    assert got(consumer, timeout=0.3) == []
    connection.session().producer(name).send(2)
    assert got(consumer) == [0, 1, 2]


def test_what_is_not_full_goes_when_its_oldest_message_has_waited(connection: Any) -> None:
    name = create(connection, "q")
    consumer = batches(connection, name, rb.Batch(max_messages=100, deadline_s=0.3))
    producer = connection.session().producer(name)
    began = time.monotonic()
    for number in range(4):
        producer.send(number)
    assert got(consumer) == [0, 1, 2, 3]
    assert time.monotonic() - began >= 0.29
    row = connection.admin().query_destination("queue", name)
    assert (row["batches"], row["batched"], row["batches_due"]) == (1, 4, 1)
    assert row["batch_wait_ms"] >= 290
    totals = connection.admin().metrics()[0]["types"]["queue"]
    assert (totals["batches_total"], totals["batched_messages_total"], totals["due_batches_total"]) == (1, 4, 1)
    assert totals["batch_wait_seconds_total"] >= 0.29


def test_only_messages_with_one_key_go_together(connection: Any) -> None:
    """Those without the property are of one kind, and 1 is not "1" """
    name = create(connection, "q")
    consumer = batches(connection, name, rb.Batch(max_messages=2, key="shape", deadline_s=FOREVER_S))
    producer = connection.session().producer(name)
    for number, shape in enumerate([1, "1", None, "1", 1, None, 1]):
        producer.send(number, {"shape": shape} if shape is not None else None)
    assert [got(consumer) for _ in range(3)] == [[1, 3], [0, 4], [2, 5]]
    assert got(consumer, timeout=0.2) == []


def test_a_batch_is_full_by_cost(connection: Any) -> None:
    """The next message would not fit; one that costs more than all may goes alone; without a cost it is 1"""
    name = create(connection, "q")
    producer = connection.session().producer(name)
    for number, tokens in enumerate([40, 50, 30, 500, 99, None]):
        producer.send(number, {"tokens": tokens} if tokens is not None else None)
    consumer = batches(connection, name, rb.Batch(max_messages=50, max_cost=100, cost="tokens", deadline_s=FOREVER_S))
    assert [got(consumer) for _ in range(4)] == [[0, 1], [2], [3], [4, 5]]


def test_some_are_acknowledged_and_others_fail_each_for_itself(connection: Any) -> None:
    """What has failed comes again alone, and counts; the others are done"""
    name = create(connection, "q", redeliveryLimit=1)
    connection.session().producer(name).send_many(range(6))
    consumer = batches(connection, name, rb.Batch(max_messages=6, deadline_s=FOREVER_S))
    batch = consumer.receive_batch(timeout=10)
    batch[2].fail(0, ValueError("no"))
    batch[4].fail(0, ValueError("no"))
    batch[5].release()
    batch[0].acknowledge()
    alone = [consumer.receive_batch(timeout=10) for _ in range(3)]
    assert sorted((len(one), one[0].body, one[0].delivery_count) for one in alone) == [(1, 2, 2), (1, 4, 2), (1, 5, 2)]
    bad = next(one[0] for one in alone if one[0].body == 2)
    bad.fail(0, ValueError("again"))
    bad.acknowledge()  # All others that are in hand.
    until(lambda: connection.admin().query_destination("queue", name)["dead"] == 1)
    until(lambda: connection.admin().query_destination("queue", name)["messages"] == 0)


def test_what_was_preempted_goes_with_others_again(connection: Any) -> None:
    name = create(connection, "q")
    connection.session().producer(name).send_many(range(3))
    consumer = batches(connection, name, rb.Batch(max_messages=3, deadline_s=FOREVER_S))
    for message in consumer.receive_batch(timeout=10):
        message.fail(0, cause="preempted")
    assert got(consumer) == [0, 1, 2]


def test_a_batch_is_one_lease(connection: Any) -> None:
    """Extending a message extends its batch; when the deadline is over all of it comes back, uncounted as failures"""
    name = create(connection, "q")
    connection.session().producer(name).send_many(range(4))
    rule = rb.Batch(max_messages=4, deadline_s=FOREVER_S)
    slow = batches(connection, name, rule, ack_timeout_ms=400)
    batch = slow.receive_batch(timeout=10)
    until_s = time.monotonic() + 0.8
    while time.monotonic() < until_s:
        batch[1].extend()
        time.sleep(0.05)
    assert connection.admin().query_destination("queue", name)["unacknowledged"] == 4
    other = batches(connection, name, rule)
    again = other.receive_batch(timeout=10)
    assert [message.body for message in again] == [0, 1, 2, 3]
    assert {message.delivery_count for message in again} == {2}
    with pytest.raises(IllegalStateError):
        batch[0].acknowledge()
    again[0].acknowledge()


def test_consumers_of_batches_take_turns_and_a_lost_one_gives_all_back(connection: Any) -> None:
    name = create(connection, "q")
    rule = rb.Batch(max_messages=2, deadline_s=FOREVER_S)
    first, second = batches(connection, name, rule), batches(connection, name, rule)
    producer = connection.session().producer(name)
    producer.send_many(range(2))
    assert got(first) == [0, 1]
    producer.send_many(range(2, 4))
    assert got(second) == [2, 3]
    first.close()
    assert got(second) == [0, 1]


def test_selectors_and_others_that_take_messages(connection: Any) -> None:
    """A consumer of messages takes what comes; a selector is of those of a batch"""
    name = create(connection, "q")
    red = batches(connection, name, rb.Batch(max_messages=2, deadline_s=FOREVER_S), selector="colour = 'red'")
    producer = connection.session().producer(name)
    for number, colour in enumerate(["red", "blue", "red", "blue"]):
        producer.send(number, {"colour": colour})
    assert got(red) == [0, 2]
    plain = connection.session().consumer(name)
    assert [plain.receive(timeout=10).body for _ in range(2)] == [1, 3]


def test_with_units_of_order_every_batch_is_one_message(connection: Any) -> None:
    """In the order of its unit; when they are gone there are batches again"""
    name = create(connection, "q")
    consumer = batches(connection, name, rb.Batch(max_messages=2, deadline_s=FOREVER_S))
    producer = connection.session().producer(name)
    for number in range(3):
        producer.send(number, unit_of_order="u")
    for number in range(3):
        (message,) = consumer.receive_batch(timeout=10)
        assert message.body == number
        message.acknowledge()
    producer.send_many([3, 4])
    assert got(consumer) == [3, 4]


def test_expired_messages_are_in_no_batch(connection: Any) -> None:
    name = create(connection, "q")
    producer = connection.session().producer(name)
    producer.send(0, ttl_ms=1)
    producer.send(1)
    producer.send(2)
    time.sleep(0.05)
    assert got(batches(connection, name, rb.Batch(max_messages=2, deadline_s=FOREVER_S))) == [1, 2]
    until(lambda: connection.admin().query_destination("queue", name)["expired"] == 1)


def test_large_bodies_are_whole_when_the_batch_comes(connection: Any) -> None:
    name = create(connection, "q")
    body = bytes(3 << 20)
    producer = connection.session().producer(name)
    for _ in range(3):
        producer.send(body)
    consumer = batches(connection, name, rb.Batch(max_messages=3, deadline_s=FOREVER_S))
    assert [len(found) for found in got(consumer)] == [len(body)] * 3


def test_a_subscription_has_batches(connection: Any) -> None:
    topic = rb.Topic("t")
    session = connection.session(ack="client")
    rule = rb.Batch(max_messages=2, deadline_s=FOREVER_S)
    consumer = session.shared_durable_consumer(topic, "s", batch=rule)
    connection.session().producer(topic).send_many(range(4))
    assert [got(consumer) for _ in range(2)] == [[0, 1], [2, 3]]


def test_why_a_message_waits_for_its_batch(connection: Any) -> None:
    name = create(connection, "q")
    consumer = batches(connection, name, rb.Batch(max_messages=5, key="shape", deadline_s=30))
    message_id = connection.session().producer(name).send(1)
    assert got(consumer, timeout=0.1) == []
    (row,) = connection.admin().why("message", message_id, name)
    reasons = row["reasons"]
    assert [reason["code"] for reason in reasons] == ["batch_forming"]
    assert "a batch of 5 messages, with one shape" in reasons[0]["text"]
    assert reasons[0]["until_ms"] > 0


def test_what_does_not_go_together_is_refused_by_name(connection: Any) -> None:
    name = create(connection, "q")
    rule = rb.Batch()
    with pytest.raises(ConfigError, match="transacted"):
        connection.session(transacted=True).consumer(name, batch=rule)
    with pytest.raises(ConfigError, match="'none'"):
        connection.session(ack="none").consumer(name, batch=rule)
    with pytest.raises(ConfigError, match="prefetch="):
        connection.session().consumer(name, batch=rule, prefetch=3)
    with pytest.raises(ConfigError, match="batch="):
        connection.session().consumer(name, batch=12)
    with pytest.raises(ConfigError, match="pattern of topics"):
        connection.session().consumer("topic:a.*", batch=rule)
    with pytest.raises(IllegalStateError, match="destinationKeys"):
        connection.session().consumer(create(connection, "sorted", destinationKeys="JMSPriority"), batch=rule)
    consumer = connection.session().consumer(name, batch=rule)
    for call in (
        lambda: consumer.receive(timeout=1),
        consumer.receive_many,
        lambda: consumer.on_message(print),
    ):
        with pytest.raises(IllegalStateError, match="receive_batch"):
            call()
    with pytest.raises(IllegalStateError, match=r"rb\.Batch"):
        connection.session().consumer(name).receive_batch(timeout=0)
    with pytest.raises(ConfigError, match="transacted=True"):
        rb.listener(queue=name, batch=rule, transacted=True)
    with pytest.raises(ConfigError, match="prefetch="):
        rb.listener(queue=name, batch=rule, prefetch=1)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"max_messages": 0}, "max_messages"),
        ({"max_messages": 5000}, "2048"),
        ({"max_cost": 0}, "max_cost"),
        ({"max_cost": float("nan")}, "max_cost"),
        ({"deadline_s": -1}, "deadline_s"),
        ({"key": ""}, "key"),
        ({"cost": 3}, "cost"),
    ],
)
def test_a_batch_that_cannot_be_is_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        rb.Batch(**options)


def test_asyncio_has_batches() -> None:
    async def main() -> None:
        async with await aio.loopback(broker="batches-aio") as connection:
            await connection.start()
            await connection.admin().create_destination("queue", "q")
            producer = await (await connection.session()).producer("q")
            consumer = await (await connection.session(ack="client")).consumer(
                "q", batch=rb.Batch(max_messages=3, deadline_s=FOREVER_S)
            )
            waiting = asyncio.create_task(consumer.receive_batch(timeout=10))
            await producer.send_many(range(3))
            batch = await waiting
            assert [message.body for message in batch] == [0, 1, 2]
            await batch[0].acknowledge()
            assert await consumer.receive_batch(timeout=0.05) == []

    asyncio.run(main())


def test_a_listener_is_called_with_batches_and_one_bad_message_spoils_none(connection: Any) -> None:
    """The call that raises has its messages again one by one: those that are good succeed, and count one failure"""
    name = create(connection, "q", redeliveryLimit=2)
    calls: list[list[int]] = []

    @rb.listener(queue=name, batch=rb.Batch(max_messages=4, deadline_s=0.2), backoff=0.01)
    def predict(messages: list[Any]) -> None:
        calls.append([message.body for message in messages])
        if any(message.body == 2 for message in messages):
            raise ValueError("bad")

    connection.session().producer(name).send_many(range(4))
    with rb.deploy(predict, loopback="batches"):
        until(lambda: connection.admin().query_destination("queue", name)["dead"] == 1)
        until(lambda: connection.admin().query_destination("queue", name)["messages"] == 0)
    assert calls[0] == [0, 1, 2, 3]
    assert sorted(calls[1:]) == [[0], [1], [2], [2], [3]]


def test_the_example_of_batch_inference_fills_its_batches(connection: Any) -> None:
    found = batch_inference.run(connection, prompts=120, bad=2)
    assert found["answered"] == 118
    assert found["dead"] == 2
    assert found["mixed"] == 0, "a batch has prompts of two shapes"
    assert found["over"] == 0, "a batch has more tokens than it may"
    assert found["batches"] < 60


# ---- over several brokers --------------------------------------------------------------------------------------------


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ClusterRig]:
    with ClusterRig(tmp_path, 2) as found:
        yield found


def test_over_several_brokers_each_forms_batches_of_what_it_stores(rig: ClusterRig) -> None:
    first, second = rig.connect("b1"), rig.connect("b2")
    name = create(first, rig.name())
    consumer = batches(first, name, rb.Batch(max_messages=3, deadline_s=FOREVER_S))
    first.session().producer(name).send_many(["a0", "a1", "a2", "a3"])
    second.session().producer(name).send_many(["b0", "b1", "b2"])
    assert sorted([got(consumer), got(consumer)]) == [["a0", "a1", "a2"], ["b0", "b1", "b2"]]
    assert got(consumer, timeout=0.1) == [], "a3 is not a batch with what is elsewhere"
    first.session().producer(name).send_many(["a4", "a5"])
    batch = consumer.receive_batch(timeout=10)
    assert [message.body for message in batch] == ["a3", "a4", "a5"]
    batch[1].fail(reason="bad")
    batch[0].acknowledge()
    (again,) = consumer.receive_batch(timeout=10)
    assert (again.body, again.delivery_count) == ("a4", 2), "what has failed goes alone"
    again.acknowledge()
    until(lambda: first.admin().query_destination("queue", name)["messages"] == 0)
    with pytest.raises(IllegalStateError, match="receive_batch"):
        consumer.receive(timeout=0)
    with pytest.raises(IllegalStateError, match="receive_batch"):
        consumer.receive_many(timeout=0)


def test_who_has_a_batch_of_one_broker_leaves_those_of_others_alone(rig: ClusterRig) -> None:
    first, second = rig.connect("b1"), rig.connect("b2")
    name = create(first, rig.name())
    rule = rb.Batch(max_messages=2, deadline_s=FOREVER_S)
    one, other = batches(first, name, rule), batches(second, name, rule)
    assert got(one, timeout=0.1) == []
    first.session().producer(name).send_many([1, 2])
    assert got(one) == [1, 2]
    assert got(other, timeout=0.1) == []
    second.session().producer(name).send_many([3, 4])
    assert got(other) == [3, 4], "it went to one that asks no more"
    second.session().producer(name).send_many([5, 6])
    assert got(one) == [5, 6], "it has asked again"


def test_batches_go_on_when_a_broker_is_lost(rig: ClusterRig) -> None:
    """What it had confirmed comes when it is back; a batch in work goes on"""
    first, second = rig.connect("b1"), rig.connect("b2")
    name = create(first, rig.name())
    rule = rb.Batch(max_messages=2, deadline_s=0.2)
    consumer = batches(first, name, rule)
    second.session().producer(name).send_many(["b0", "b1", "b2"])
    batch = consumer.receive_batch(timeout=10)
    assert [message.body for message in batch] == ["b0", "b1"]
    rig.kill("b2")
    first.session().producer(name).send_many(["a0", "a1"])
    here = consumer.receive_batch(timeout=10)
    assert [message.body for message in here] == ["a0", "a1"]
    here[0].acknowledge_this()
    here[1].acknowledge_this()
    rig.start("b2")
    seen: set[str] = set()

    def all_came() -> bool:
        for message in consumer.receive_batch(timeout=0.2):
            seen.add(message.body)
            message.acknowledge_this()
        return seen == {"b0", "b1", "b2"}

    until(all_came)


def test_asyncio_has_batches_of_several_brokers(rig: ClusterRig) -> None:
    rig.connect("b2").session().producer(name := rig.name()).send_many(range(2))

    async def main() -> list[int]:
        async with aio.Connection(rig.connect("b1", started=False)._core) as connection:
            await connection.start()
            session = await connection.session(ack="client")
            consumer = await session.consumer(name, batch=rb.Batch(max_messages=2, deadline_s=FOREVER_S))
            return [message.body for message in await consumer.receive_batch(timeout=10)]

    assert asyncio.run(main()) == [0, 1]
