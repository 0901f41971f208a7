"""Bodies by reference in a real Ray: read without a copy, and there whoever has died."""

from __future__ import annotations

import os
import pickle
import signal
from typing import Any

import numpy
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
