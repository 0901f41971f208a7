"""Bodies by reference in a real Ray: read without a copy, and there whoever has died."""

from __future__ import annotations

import os
import pickle
import signal
from typing import Any

import numpy
import pyarrow
import pytest

import raybroker as rb
from raybroker.client.connection.shared_body import SharedBody
from raybroker.examples import references
from tests.contracts.handles import until

ray = pytest.importorskip("ray")

SIZE = 5_000_000


def array_of(number: int) -> Any:
    return numpy.full(SIZE, number, dtype=numpy.uint8)


def is_shared(message: Any) -> bool:
    """Whether its body was read from the object store."""
    return type(message._delivery.block.large) is SharedBody


@pytest.fixture
def queue(cluster: Any) -> Any:
    with rb.connect() as connection:
        connection.admin().create_destination("queue", "tensors")
        yield connection
        connection.admin().destroy_destination("queue", "tensors")


def kept(connection: rb.Connection, count: int) -> None:
    """The keeper has so many copies: until then consumers read from the host, which is right too."""
    broker = ray.get_actor(f"default/broker/{connection._core.directory.home}", namespace="raybroker")
    keeper = ray.get(broker.object_keeper.remote())
    until(lambda: ray.get(keeper.count.remote()) >= count, "nothing is kept", timeout_s=60)


def test_a_body_is_read_without_a_copy_after_its_producer_has_died(queue: rb.Connection) -> None:
    @ray.remote(num_cpus=0, max_restarts=0)
    class Producer:
        def send(self) -> int:
            with rb.connect() as connection:
                producer = connection.session().producer("tensors")
                producer.send(rb.ref({"x": array_of(1), "label": "cat"}), {"n": 1})
                producer.send(rb.ref(ray.put(array_of(2))))
                kept(connection, 2)
            return os.getpid()

    producer = Producer.remote()
    pid = ray.get(producer.send.remote())
    os.kill(pid, signal.SIGKILL)
    session = queue.session()
    consumer = session.consumer("tensors")
    first, second = consumer.receive(30), consumer.receive(30)
    assert first is not None
    assert second is not None
    assert is_shared(first)
    assert is_shared(second)
    assert first.body["label"] == "cat"
    assert (first.body["x"] == array_of(1)).all()
    assert (second.body == array_of(2)).all()
    assert not second.body.flags.owndata
    assert not second.body.flags.writeable
    copy = pickle.loads(pickle.dumps(first))  # For another process: with all of its body.
    assert (copy.body["x"] == array_of(1)).all()


def test_a_body_that_is_not_persistent_is_its_hosts(queue: rb.Connection) -> None:
    @ray.remote(num_cpus=0, max_restarts=0)
    class Producer:
        def send(self) -> int:
            with rb.connect() as connection:
                producer = connection.session().producer("tensors", persistent=False)
                producer.send(rb.ref({"x": array_of(5), "label": "dog"}))
                producer.send(rb.ref(array_of(6)))
            return os.getpid()

    pid = ray.get(Producer.remote().send.remote())
    os.kill(pid, signal.SIGKILL)
    admin = queue.admin()
    until(lambda: admin.query_destination("queue", "tensors")["messages"] == 2, "they are not there", timeout_s=60)
    assert admin.query_destination("queue", "tensors")["reference_bytes"] > 2 * SIZE
    session = queue.session(ack="client")
    first = session.consumer("tensors", prefetch=1).receive(30)
    assert first is not None
    assert is_shared(first)
    assert (first.body["x"] == array_of(5)).all()
    assert not first.body["x"].flags.owndata
    first.acknowledge()
    session.close()
    with rb.connect() as elsewhere:
        elsewhere._core.channels.objects = None  # As for a client outside of Ray: it reads from the host, in pieces.
        second = elsewhere.session(ack="client").receive("tensors", timeout=30)
        assert second is not None
        assert not is_shared(second)
        assert (second.body == array_of(6)).all()
        second.acknowledge()
    until(
        lambda: admin.query_destination("queue", "tensors")["reference_bytes"] == 0,
        "something refers to a body that nobody needs",
        timeout_s=60,
    )
    assert (first.body["x"] == array_of(5)).all(), "whoever has it keeps it"


def test_large_bodies_of_a_producer_go_by_reference_without_being_asked(queue: rb.Connection) -> None:
    table = pyarrow.table({"n": numpy.arange(500_000), "x": numpy.zeros(500_000)})
    session = queue.session()
    producer = session.producer("tensors", reference_threshold=3_000_000, persistent=False)
    bodies = [array_of(7), table, numpy.zeros(2_000_000, numpy.uint8), "text"]
    for body in bodies:
        producer.send(body)
    consumer = session.consumer("tensors")
    found: list[Any] = [consumer.receive(30) for _ in bodies]
    assert [is_shared(message) for message in found[:3]] == [True, True, False]
    assert (found[0].body == bodies[0]).all()
    assert found[1].body.equals(table)
    assert (found[2].body == bodies[2]).all()
    assert found[3].body == "text"


def test_a_body_by_reference_may_be_larger_than_others(queue: rb.Connection) -> None:
    admin, producer = queue.admin(), queue.session().producer("tensors")
    consumer = queue.session().consumer("tensors")
    admin.update_broker({"imq.message.max_size": "2m"})
    try:
        with pytest.raises(rb.errors.MessageTooLargeError, match=r"imq\.message\.max_size"):
            producer.send(array_of(8))
        for persistent in (True, False):
            producer.send(rb.ref(array_of(8)), persistent=persistent)
            message = consumer.receive(30)
            assert message is not None
            assert (message.body == array_of(8)).all()
        admin.update_broker({"raybroker.reference.max_size": "4m"})
        with pytest.raises(rb.errors.MessageTooLargeError, match=r"raybroker\.reference\.max_size=4194304"):
            producer.send(rb.ref(array_of(8)))
    finally:
        admin.update_broker({"imq.message.max_size": "70m", "raybroker.reference.max_size": "512m"})


def test_the_example(cluster: Any) -> None:
    assert references.run(3) == {"sent": 3, "received": 3, "right": True}


def test_a_body_comes_from_its_host_when_the_copy_is_gone_with_its_broker(cluster: Any, queue: rb.Connection) -> None:
    producer = queue.session().producer("tensors")
    producer.send(rb.ref(array_of(3)))
    for pid in set(cluster.pids().values()):
        os.kill(pid, signal.SIGKILL)

    session = queue.session()

    def received() -> Any:
        try:
            return session.receive("tensors", timeout=5)
        except rb.errors.BrokerError:
            return None

    message = until(received, "it is lost", timeout_s=90)
    assert (message.body == array_of(3)).all()
    assert not is_shared(message)
    producer.send(rb.ref(array_of(4)))
    kept(queue, 1)
    message = until(received, "it is lost", timeout_s=90)
    assert (message.body == array_of(4)).all()
    assert is_shared(message)
