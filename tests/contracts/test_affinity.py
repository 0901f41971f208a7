"""Affinity: a message waits a while for a consumer that has what it needs at hand (N2)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import raybroker as rb
from raybroker.client.connection.shared_body import SharedObject, SharedObjects
from raybroker.client.producer.bodies.body_reference import given_by_reference
from raybroker.core.delivery.selector_index import SORT_MESSAGES_MAX
from raybroker.errors import ConfigError
from raybroker.examples import warm_models
from raybroker.model.affinity import NODE
from tests.contracts.handles import create, until

FOREVER_MS = 3_600_000
"""A wait that no test lives to see the end of."""


@pytest.fixture
def connection() -> Iterator[Any]:
    with rb.loopback(broker="affinity") as found:
        yield found


def consumer(connection: Any, name: str, *labels: str, **options: Any) -> Any:
    return connection.session(ack="client").consumer(name, prefetch=1, labels=labels, **options)


def bodies(one: Any, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        message = one.receive(timeout=10)
        assert message is not None
        found.append(message.body)
        message.acknowledge_this()
    return found


def test_messages_go_to_those_who_have_their_label(connection: Any) -> None:
    """Also when another consumer is idle; those without a label, or with one that nobody has, go to anybody"""
    name = create(connection, "q", affinityKey="model", affinityWait=FOREVER_MS)
    first, second, other = (consumer(connection, name, *labels) for labels in (["a"], ["b", "7"], []))
    producer = connection.session().producer(name)
    for number, model in enumerate(["a", "b", "a", 7, "b"]):
        producer.send(number, {"model": model})
    assert bodies(first, 2) == [0, 2]
    assert bodies(second, 3) == [1, 3, 4]
    assert other.receive(timeout=0.2) is None
    first.close()
    second.close()
    producer.send("plain")
    producer.send("c", {"model": "c"})
    assert bodies(other, 2) == ["plain", "c"]


def test_anybody_may_have_what_has_waited_and_what_its_consumer_left(connection: Any) -> None:
    name = create(connection, "q", affinityKey="model", affinityWait=300)
    warm, cold = consumer(connection, name, "a"), consumer(connection, name)
    producer = connection.session().producer(name)
    producer.send(0, {"model": "a"})
    held = warm.receive(timeout=10)
    assert held.body == 0
    began = time.monotonic()
    producer.send(1, {"model": "a"})
    assert bodies(cold, 1) == [1]
    assert time.monotonic() - began >= 0.29
    connection.admin().update_destination("queue", name, affinityWait=FOREVER_MS)
    producer.send(2, {"model": "a"})
    assert cold.receive(timeout=0.5) is None
    warm.close()
    assert sorted(bodies(cold, 2)) == [0, 2]


def test_others_that_have_waited_are_not_passed_over_for_ever(connection: Any) -> None:
    """A consumer with work of its own takes one of others' messages now and then"""
    name = create(connection, "q", affinityKey="model", affinityWait=50)
    producer = connection.session().producer(name)
    stuck = consumer(connection, name, "b")
    producer.send("held", {"model": "b"})
    assert stuck.receive(timeout=10).body == "held"
    producer.send("waits", {"model": "b"})
    for number in range(40):
        producer.send(number, {"model": "a"})
    time.sleep(0.1)
    found = bodies(consumer(connection, name, "a"), 20)
    assert "waits" in found[1:], f"it goes after some others and before all: {found}"
    assert [body for body in found if body != "waits"] == list(range(19))


def test_labels_that_come_later_are_looked_at_for_what_waits(connection: Any) -> None:
    name = create(connection, "q", affinityKey="model", affinityWait=FOREVER_MS)
    producer = connection.session().producer(name)
    for number in range(6):
        producer.send(number, {"model": "ab"[number % 2]})
    blocker = consumer(connection, name, "a", "b")
    assert bodies(blocker, 1) == [0]
    late = consumer(connection, name, "b")
    assert bodies(late, 1) in ([1], [3]), "the first consumer may hold one"
    blocker.close()
    until(lambda: connection.admin().query_destination("queue", name)["unacknowledged"] <= 1)


def test_what_is_not_looked_at_yet_for_a_new_label_goes_to_nobody_else(connection: Any) -> None:
    """A label that is new has all that waits looked at again, some in each step"""
    name = create(connection, "q", affinityKey="model", affinityWait=FOREVER_MS)
    producer = connection.session().producer(name)
    warm, cold = consumer(connection, name, "a"), consumer(connection, name)
    for _ in range(3):
        producer.send_many(range(SORT_MESSAGES_MAX), properties=[{"model": "a"}] * SORT_MESSAGES_MAX)
    assert warm.receive(timeout=10) is not None
    assert cold.receive(timeout=0.2) is None
    late = consumer(connection, name, "b")
    assert cold.receive(timeout=0.5) is None
    producer.send("b", {"model": "b"})
    assert bodies(late, 1) == ["b"]
    assert cold.receive(timeout=0.2) is None


def test_selectors_and_units_of_order_go_with_it(connection: Any) -> None:
    name = create(connection, "q", affinityKey="model", affinityWait=FOREVER_MS)
    warm = consumer(connection, name, "a", selector="size > 3")
    cold = consumer(connection, name)
    producer = connection.session().producer(name)
    producer.send("large", {"model": "a", "size": 5})
    assert bodies(warm, 1) == ["large"]
    producer.send("in unit", {"model": "a", "size": 1}, unit_of_order="u")
    assert bodies(cold, 1) == ["in unit"], "units of order say who gets what"


def test_why_a_message_waits_for_its_label(connection: Any) -> None:
    name = create(connection, "q", affinityKey="model", affinityWait=FOREVER_MS)
    warm, cold = consumer(connection, name, "a"), consumer(connection, name)
    producer = connection.session().producer(name)
    producer.send(0, {"model": "a"})
    assert warm.receive(timeout=10) is not None
    second = producer.send(1, {"model": "a"})
    third = producer.send(2, {"model": "a"})
    assert cold.receive(timeout=0.1) is None
    (row,) = connection.admin().why("message", third, name)
    assert sorted(reason["code"] for reason in row["reasons"]) == ["affinity", "not_acknowledged"]
    assert second


def test_a_listener_has_labels(connection: Any) -> None:
    name = create(connection, "q", affinityKey="model", affinityWait=FOREVER_MS)
    seen: list[Any] = []

    @rb.listener(queue=name, labels=["a"], prefetch=1)
    def work(message: Any) -> None:
        seen.append(message.body)

    other = consumer(connection, name)
    with rb.deploy(work, loopback="affinity"):
        connection.session().producer(name).send("x", {"model": "a"})
        until(lambda: seen == ["x"])
    assert other.receive(timeout=0.05) is None


def test_what_does_not_go_together_is_refused_by_name(connection: Any) -> None:
    name = create(connection, "q", affinityKey="model")
    session = connection.session()
    with pytest.raises(ConfigError, match="labels="):
        session.consumer(name, labels="model")
    with pytest.raises(ConfigError, match="255 characters"):
        session.consumer(name, labels=["x" * 256])
    with pytest.raises(ConfigError, match="at most 64"):
        session.consumer(name, labels=[str(number) for number in range(65)])
    with pytest.raises(ConfigError, match="batch= and labels="):
        session.consumer(name, labels=["a"], batch=rb.Batch())
    with pytest.raises(ConfigError, match="labels="):
        rb.listener(queue=name, labels=["a"], batch=rb.Batch())
    with pytest.raises(ConfigError, match="destinationKeys"):
        create(connection, "both", affinityKey="model", destinationKeys="JMSPriority")
    with pytest.raises(ConfigError, match="affinityKey"):
        create(connection, "header", affinityKey="JMSPriority")
    with pytest.raises(ConfigError, match="affinityKey"):
        connection.admin().update_destination("queue", name, affinityKey="other")


def test_messages_from_before_a_restart_wait_for_their_labels_too(tmp_path: Any) -> None:
    with rb.loopback(tmp_path) as first:
        name = create(first, "q", affinityKey="model", affinityWait=FOREVER_MS)
        for number in range(4):
            first.session().producer(name).send(number, {"model": "ab"[number % 2]})
    with rb.loopback(tmp_path) as again:
        one, two = consumer(again, name, "b", "a"), None
        assert bodies(one, 1) == [0]
        one.close()
        two, three = consumer(again, name, "b"), consumer(again, name, "a")
        assert sorted(bodies(two, 1) + bodies(three, 1)) in ([1, 2], [2, 3])


def test_the_node_of_a_reference_is_a_label(connection: Any) -> None:
    """What rb.ref puts into Ray's object store says where it lies, and consumers in Ray say where they are"""

    async def nothing(*args: Any) -> Any:
        raise AssertionError("nothing is given or found here")

    def objects(node: str) -> SharedObjects:
        return SharedObjects(lambda value: SharedObject("key", value), nothing, nothing, lambda value: value, node)

    array = np.zeros(1 << 20)
    _, properties = given_by_reference(rb.ref(array), {"size": 1}, objects("node-1"))
    assert properties is not None
    assert (properties["size"], properties[NODE]) == (1, "node-1")
    name = create(connection, "q", affinityKey=NODE, affinityWait=FOREVER_MS)
    elsewhere = consumer(connection, name)
    core = connection._core
    core.channels.objects = objects("node-1")
    try:
        here = consumer(connection, name)
    finally:
        core.channels.objects = None
    connection.session().producer(name).send("x", {NODE: "node-1"})
    assert bodies(here, 1) == ["x"]
    assert elsewhere.receive(timeout=0.05) is None


def test_the_example_loads_models_seldom(connection: Any) -> None:
    found = warm_models.run(connection, requests=200, models=4)
    assert found["answered"] == 200
    assert found["with"] <= 8, "each worker loads its model, and another one now and then"
    assert found["without"] >= 3 * found["with"]
