"""Brokers that share a PostgreSQL: what a lost one has stored is served elsewhere, by itself (K-21)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import raybroker as rb
from raybroker.actors.stores.record_tables import TableManager
from raybroker.actors.stores.store_tables import StoreManager
from raybroker.config import Config
from raybroker.errors import ConnectionLostError, IllegalStateError
from tests.cluster import rays
from tests.cluster.nodes import Nodes, running_nodes
from tests.contracts import postgres
from tests.contracts.handles import bodies, take, until

pytestmark = pytest.mark.timeout(300)
CLUSTER = "sharing"
QUEUE = "orders"
RECOVERED_S = 60
XID = rb.Xid(1, b"global", b"branch")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with running_nodes(2) as found:
        yield found


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    with postgres.server() as server:
        yield {
            **rays.small_store(tmp_path_factory.mktemp("store")),
            **postgres.shared_store(server),
        }


@pytest.fixture(scope="module")
def cluster(nodes: Nodes, config: dict[str, object]) -> Iterator[Any]:
    chosen = Config.from_values({**config, "imq.cluster.brokerlist": "b1,b2"})
    TableManager(chosen, CLUSTER).create()
    StoreManager(chosen, CLUSTER).create(database=False)
    with rb.start(CLUSTER, brokers=2, config=config) as started:
        for broker in ("b1", "b2"):  # A change of the record waits for hosts, which a busy machine starts slowly.
            until(lambda broker=broker: hosts_serve(started, broker), timeout_s=RECOVERED_S)
        yield started


def hosts_serve(cluster: Any, broker: str) -> bool:
    try:
        return len(cluster.pids(broker)) > 1
    except ConnectionLostError:
        return False


def row_of(connection: Any, broker: str) -> dict[str, Any]:
    return next(row for row in connection.admin().list_brokers() if row["broker"] == broker)


def members(connection: Any, name: str) -> dict[str, int]:
    found = connection.admin().query_destination("queue", name)["members"]
    return {row["broker"]: row["messages"] for row in found if row["messages"]}


def test_what_a_lost_broker_has_confirmed_comes_from_its_successor(nodes: Nodes, cluster: Any) -> None:
    """A client that named the lost broker goes on; what it has not committed is gone, what it has prepared is not."""
    lost = cluster.state("b2")["node"]
    patient: dict[str, Any] = {"raybroker.reconnect.timeout_ms": 90_000}
    with (
        rb.connect(cluster=CLUSTER, broker="b1") as survivor,
        rb.connect(cluster=CLUSTER, broker="b2", **patient) as pinned,
        rb.connect_xa(cluster=CLUSTER, broker="b2") as manager,
    ):
        admin = survivor.admin()
        for name in (QUEUE, "branches"):
            admin.create_destination("queue", name, hosting="shared")
        admin.create_destination("queue", "units", hosting="shared", unitOfOrderRouting="PathService")
        with pytest.raises(IllegalStateError, match="b2 is up, and nobody takes over what lives"):
            admin.takeover_broker("b2")
        producer, units = pinned.session().producer(QUEUE), pinned.session().producer("units")
        producer.send_many(range(100))
        for unit in ("u1", "u2"):
            units.send(f"{unit} first", unit_of_order=unit)
        before = members(survivor, "units")
        consumer = pinned.session(ack="client").consumer(QUEUE, prefetch=40)
        take(consumer, 10)[-1].acknowledge()
        take(consumer, 20)
        pinned.session(transacted=True).producer(QUEUE).send("never committed")
        branch = manager.session()
        branch.xa.start(XID)
        branch.producer("branches").send("prepared")
        branch.xa.end(XID)
        branch.xa.prepare(XID)
        began = time.monotonic()
        nodes.kill(lost)
        producer.send("next")
        print(f"the next confirmed send came {time.monotonic() - began:.1f} s after the loss")
        row = row_of(survivor, "b2")
        assert (row["tenure"], row["takeovers"], row["taken_by"]) == (2, 1, "b1")
        until(lambda: row_of(survivor, "b2")["store_state"] == "OPERATING")
        assert cluster.state("b2")["node"] == cluster.state("b1")["node"]
        consumer.close()
        consumer = survivor.session(ack="client").consumer(QUEUE)
        again = take(consumer, 91)
        assert sorted(map(str, bodies(again))) == sorted([*map(str, range(10, 100)), "next"])
        assert all(message.redelivered for message in again if message.body in range(10, 30))
        again[-1].acknowledge()
        assert members(survivor, QUEUE) == {}
        (prepared,) = [row for row in admin.list_transactions() if row["state"] == "PREPARED"]
        admin.commit_transaction(prepared["id"])
        assert bodies(take(survivor.session().consumer("branches"), 1)) == ["prepared"]
        for unit in ("u1", "u2"):
            survivor.session().producer("units").send(f"{unit} second", unit_of_order=unit)
        assert members(survivor, "units") == {broker: 2 * count for broker, count in before.items()}


def test_what_was_stopped_waits_for_somebody_who_wants_it(cluster: Any) -> None:
    with rb.connect(cluster=CLUSTER, broker="b1") as survivor:
        admin = survivor.admin()
        with rb.connect(cluster=CLUSTER, broker="b2") as stopped:
            stopped.session().producer(QUEUE).send("kept")
            tenure = row_of(survivor, "b2")["tenure"]
        cluster.stop_broker("b2")
        until(lambda: row_of(survivor, "b2")["store_state"] == "BROKER_DOWN")
        grades = {row["grade"] for row in admin.check_cluster() if (row["check"], row["of"]) == ("store", "b2")}
        assert grades == {"warning"}
        time.sleep(5)  # Longer than a lost one would stay what it is.
        assert row_of(survivor, "b2")["store_state"] == "BROKER_DOWN"
        assert admin.takeover_broker("b2")["tenure"] == tenure + 1
        consumer = survivor.session().consumer(QUEUE)
        message = consumer.receive(timeout=RECOVERED_S)
        assert message is not None
        assert message.body == "kept"
        until(lambda: row_of(survivor, "b2")["store_state"] == "OPERATING", timeout_s=RECOVERED_S)
