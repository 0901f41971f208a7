"""Nodes of producers and tasks are lost: bodies by reference stay, and reads and writes of Ray Data go on."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest

import raybroker as rb
from tests.cluster import rays
from tests.cluster.nodes import Nodes, running_nodes
from tests.cluster.task_kills import Account, held_until, tasks
from tests.contracts.handles import state_of, until

ray = pytest.importorskip("ray")

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402 - after the skip

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]  # Ray takes 12 to 65 s to see that a node is lost.

CLUSTER = "lost"
MESSAGES = 300


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


def test_reads_and_writes_lose_and_double_nothing_while_a_node_is_lost(
    place: Place, connection: rb.Connection, tmp_path: Path
) -> None:
    import ray.data

    account, rng = Account(), random.Random(1)

    def lose_one(folder: Path) -> None:
        def busy() -> list[str]:
            running = set(tasks())
            return [node for node in place.others if running.intersection(place.nodes.processes(node))]

        until(busy, "no task runs on a node that may be lost", 60)
        place.nodes.kill(rng.choice(busy()))
        (folder / "lost").touch()

    for step in ("write", "read"):
        folder = tmp_path / step
        folder.mkdir()
        held = held_until(folder, kills=1)
        losing = threading.Thread(target=lose_one, args=(folder,))
        losing.start()
        if step == "write":
            account.sends(range(MESSAGES))
            rows = ray.data.range(MESSAGES, override_num_blocks=6).map_batches(held)
            rb.data.write_queue(rows, "q", cluster=CLUSTER, body_column="id")
            account.sent(range(MESSAGES))
        else:
            read = rb.data.read_queue("q", cluster=CLUSTER, tasks=4, batch=20, idle_s=2.0).map_batches(held)
            account.took((row["body"], row["redelivered"]) for row in read.take_all())
        losing.join()
        assert (folder / "lost").exists()
        place.nodes.add()
    assert state_of(connection, "q")["messages"] == 0
    verdict = account.verdict()
    assert verdict.valid, verdict
    assert (account.unflagged, verdict.duplicated, verdict.recovered) == ([], {}, {})
