"""Destinations of one broker alone, in a cluster (isLocalOnly, D-20)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from raybroker.client.destinations import Topic
from raybroker.errors import ConfigError, InvalidDestinationError, NotSupportedError
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import bodies, nothing, take

pytestmark = pytest.mark.xdist_group("cluster_local")  # One worker makes what they share.


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterRig]:
    with ClusterRig(tmp_path_factory.mktemp("rig")) as made:
        yield made


def brokers_of(consumer: Any) -> list[str]:
    found: list[str] = consumer.info()["brokers"]
    return found


@pytest.mark.parametrize("owner", ["b1", "b2"])
def test_consumers_of_other_brokers_get_nothing(rig: ClusterRig, owner: str) -> None:
    name, connection = rig.name(), rig.connect(owner)
    connection.admin().create_destination("queue", name, isLocalOnly=True)
    elsewhere = [rig.connect(home).session().consumer(name) for home in ("b1", "b2", "b3") if home != owner]
    assert all(owner not in brokers_of(consumer) for consumer in elsewhere)
    connection.session().producer(name).send("here")
    assert nothing(elsewhere[0], 0.05)
    assert nothing(elsewhere[1], 0.05)
    assert bodies(take(connection.session().consumer(name), 1)) == ["here"]


def test_a_local_topic_is_published_on_its_broker_alone(rig: ClusterRig) -> None:
    name, connection = f"news.{rig.name()}", rig.connect("b1")
    connection.admin().create_destination("topic", name, isLocalOnly=True)
    topic = Topic(name)
    near = connection.session().consumer(topic)
    away = rig.connect("b2", client_id="away").session()
    far, pattern = away.consumer(topic), away.consumer(Topic("news.*"))
    durable = away.durable_consumer(topic, "kept")
    connection.session().producer(topic).send("here")
    assert bodies(take(near, 1)) == ["here"]
    for consumer in (far, pattern, durable):
        assert nothing(consumer, 0.05)
    there = rig.brokers["b1"].local
    row = rig.io.run(there.admin("query_destination", {"type": "topic", "name": name}))
    assert row["subscriptions"] == 1


def test_units_of_order_of_a_local_queue_stay_on_its_broker(rig: ClusterRig) -> None:
    name, connection = rig.name(), rig.connect("b3")
    connection.admin().create_destination("queue", name, isLocalOnly=True)
    producer = connection.session().producer(name)
    for number in range(6):
        producer.send(number, unit_of_order=f"u{number}")
    rows = connection.admin().query_destination("queue", name)["members"]
    assert [(row["broker"], row["messages"]) for row in rows] == [("b3", 6)]


def test_no_destination_of_the_cluster_takes_the_name_of_a_local_one(rig: ClusterRig) -> None:
    name = rig.name()
    rig.connect("b2").admin().create_destination("queue", name, isLocalOnly=True)
    with pytest.raises(InvalidDestinationError, match=r"b2.*isLocalOnly"):
        rig.connect("b1").admin().create_destination("queue", name)


def test_a_queue_with_copies_is_for_brokers_on_ray_nodes(rig: ClusterRig) -> None:
    admin = rig.connect("b1").admin()
    with pytest.raises(NotSupportedError, match="needs brokers that are actors on several Ray nodes"):
        admin.create_destination("queue", "copied", replicas=3, useDMQ=False)
    with pytest.raises(ConfigError, match=r"replicas = 3 is for a cluster of brokers .* \(isLocalOnly\)"):
        admin.create_destination("queue", "copied", replicas=3, useDMQ=False, isLocalOnly=True)
