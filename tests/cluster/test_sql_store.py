"""Brokers as actors whose messages are in a database: hosts that are killed, and a database that is (P-13)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import raybroker as rb
from raybroker.actors.stores.store_tables import StoreManager
from raybroker.config import Config
from raybroker.errors import BrokerError, ConfigError
from tests.cluster import rays
from tests.contracts import postgres
from tests.contracts.handles import bodies, take, until

CLUSTER = "tables"
QUEUE = "orders"
RECOVERED_S = 90
"""A process of Ray takes half a minute to start on a busy machine."""


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.server() as found:
        yield found


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory, server: postgres.Server) -> dict[str, object]:
    return {
        **rays.small_store(tmp_path_factory.mktemp("store")),
        "imq.persist.store": "sql",
        "imq.persist.jdbc.dbVendor": "postgresql",
        "imq.persist.jdbc.postgresql.opendburl": server.url,
        "imq.persist.jdbc.connection.retry.delay": 200,
    }


@pytest.fixture(scope="module")
def cluster(own_ray: str, config: dict[str, object]) -> Iterator[Any]:
    with pytest.raises(ConfigError, match="make them with raybroker dbmgr create tbl"):
        rb.start(CLUSTER, config=config)
    StoreManager(Config.from_values(config), CLUSTER).create(database=False)
    with rb.start(CLUSTER, config=config) as started:
        yield started


def sent_again(connection: Any, value: object) -> bool:
    """Whether the message is confirmed; a host that is between two lives refuses it."""
    try:
        connection.session().producer(QUEUE).send(value)
    except BrokerError:
        return False
    return True


def test_nothing_is_lost_with_a_host_or_with_the_database(
    cluster: Any, server: postgres.Server, config: dict[str, object]
) -> None:
    def stored() -> list[str]:
        return [host["name"] for host in StoreManager(Config.from_values(config), CLUSTER).query()[0]["hosts"]]

    with rb.connect(cluster=CLUSTER) as connection:
        connection.admin().create_destination("queue", QUEUE)
        connection.session().producer(QUEUE).send_many(range(50))
        for pid in [pid for name, pid in cluster.pids().items() if name != "broker"]:
            os.kill(pid, signal.SIGKILL)
        until(lambda: sent_again(connection, 50), timeout_s=RECOVERED_S)
    server.kill()
    starting = threading.Timer(3, server.start)
    starting.start()
    with rb.connect(cluster=CLUSTER) as connection:
        until(lambda: sent_again(connection, 51), timeout_s=RECOVERED_S)
        starting.join()
        consumer, found = connection.session().consumer(QUEUE), []
        until(lambda: found.extend(bodies(consumer.receive_many(100, timeout=1))) or 51 in found)
        assert sorted(set(found)) == list(range(52))
        assert found[:51] == list(range(51)), "only what was sent again may come twice"
        consumer.close()
        before = stored()
        connection.admin().destroy_destination("queue", QUEUE)
        until(lambda: len(stored()) < len(before), "the rows of its host are removed")


@pytest.mark.parametrize("hosting", ["dedicated", "shared"])
def test_open_handles_outlive_a_database_that_is_away_for_three_seconds(
    cluster: Any, server: postgres.Server, hosting: str
) -> None:
    """As they do the end of a host: sends wait, nobody gets an error, and nothing that was confirmed is lost."""
    name = f"away.{hosting}"
    with rb.connect(cluster=CLUSTER, **{"raybroker.reconnect.timeout_ms": 90_000}) as connection:
        admin, session = connection.admin(), connection.session()
        admin.create_destination("queue", name, hosting=hosting)
        producer, consumer = session.producer(name), session.consumer(name)
        got: list[Any] = []
        for number in range(20):
            producer.send(number)
        got += bodies(take(consumer, 20))
        server.stop()
        waiting = [producer.send_async(number) for number in range(20, 40)]
        until(lambda: "waits for its database" in str(admin.check_broker()), timeout_s=RECOVERED_S)
        starting = threading.Timer(3, server.start)  # Not before it was told, however long that takes here.
        starting.start()
        producer.send(40)
        assert all(future.result(RECOVERED_S) for future in waiting)
        starting.join()
        until(lambda: got.extend(bodies(consumer.receive_many(100, timeout=1))) or 40 in got, timeout_s=RECOVERED_S)
        assert sorted(set(got)) == list(range(41))
        consumer.close()
        until(lambda: all(row["grade"] == "ok" for row in admin.check_broker() if row["check"] == "hosts"))
