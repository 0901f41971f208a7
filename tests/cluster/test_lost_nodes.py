"""Nodes of producers are lost, and bodies by reference stay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy
import pytest

import raybroker as rb
from tests.cluster import rays
from tests.cluster.nodes import Nodes, running_nodes
from tests.contracts.handles import state_of, until

ray = pytest.importorskip("ray")

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402 - after the skip

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]  # Ray takes 12 to 65 s to see that a node is lost.

CLUSTER = "lost"


class Place(NamedTuple):
    """A broker on one of the nodes, whose id is ``home``; the others may be lost."""

    nodes: Nodes
    home: str

    @property
    def others(self) -> list[str]:
        return [node for node in self.nodes.ids if node != self.home]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    config = rays.small_store(tmp_path_factory.mktemp("store"))
    with running_nodes(2, cpus=2) as nodes, rb.start(CLUSTER, brokers=1, config=config) as cluster:
        (broker,) = cluster.brokers
        yield Place(nodes, cluster.state(broker)["node"])


@pytest.fixture
def connection(place: Place) -> Iterator[rb.Connection]:
    with rb.connect(cluster=CLUSTER) as made:
        made.admin().create_destination("queue", "q", hosting="shared")
        yield made
        made.admin().destroy_destination("queue", "q")


def test_bodies_by_reference_outlive_the_node_of_their_producer(place: Place, connection: rb.Connection) -> None:
    (node,) = place.others
    there = NodeAffinitySchedulingStrategy(node, soft=False)

    @ray.remote(num_cpus=0, max_restarts=0, scheduling_strategy=there)
    class Producer:
        def send(self) -> str:
            with rb.connect(cluster=CLUSTER) as connection:
                producer = connection.session().producer("q")
                for number in range(3):
                    body = numpy.full(5_000_000, number, dtype=numpy.uint8)
                    producer.send(rb.ref(ray.put(body) if number else body), persistent=number < 2)
            return str(ray.get_runtime_context().get_node_id())

    producer = Producer.remote()
    assert ray.get(producer.send.remote()) == node
    until(lambda: state_of(connection, "q")["messages"] == 3)
    place.nodes.kill(node)
    place.nodes.add()
    consumer = connection.session(ack="client").consumer("q", prefetch=1)
    for number in range(3):
        message: Any = consumer.receive(60)
        assert (message.body == number).all()
        assert message.persistent == (number < 2)
        message.acknowledge()
