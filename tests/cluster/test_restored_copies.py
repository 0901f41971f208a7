"""A record that is restored, and does not know all that is stored: queues with copies lose nothing by that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.actors.stores.restore import restore
from raybroker.config import Config
from raybroker.errors import BrokerError, ConfigError, ConnectionLostError, InvalidDestinationError
from tests.cluster import rays
from tests.cluster.nodes import Nodes, running_nodes
from tests.contracts.handles import until

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]
CLUSTER = "restored"
NAMES = ("b1", "b2", "b3")
COPIED: dict[str, Any] = {"replicas": 3, "useDMQ": False, "maxNumMsgs": 77}
PATIENT: dict[str, Any] = {"raybroker.reconnect.timeout_ms": 90_000}
SOON_S = 120.0


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with running_nodes(len(NAMES)) as found:
        yield found


def connect() -> rb.Connection:
    return rb.connect(cluster=CLUSTER, broker="b2", **PATIENT)


def make(name: str, bodies: list[int]) -> None:
    """A queue with copies and messages. On a busy machine brokers see each other late."""
    with connect() as connection:

        def made() -> bool:
            try:
                connection.admin().create_destination("queue", name, if_exists="keep", **COPIED)
            except (ConfigError, ConnectionLostError):
                return False
            return True

        until(made, f"{name} is made", SOON_S)
        connection.session().producer(name).send_many(bodies)


def taken(name: str) -> list[int]:
    with connect() as connection:
        connection.start()
        session = connection.session()
        return [session.receive(name, timeout=60).body for _ in range(3)]


def test_queues_of_before_and_after_the_backup_have_their_messages(nodes: Nodes, tmp_path: Path) -> None:
    config = rays.small_store(tmp_path / "store")
    cluster = rb.start(CLUSTER, brokers=len(NAMES), config=config)
    make("before", [1, 2, 3])
    with connect() as connection:
        backup = connection.admin().backup_record()
    make("after", [4, 5, 6])
    with connect() as connection:
        connection.admin().destroy_destination("queue", "before")
    make("before", [7, 8, 9])  # Another log, which the backup does not know either.
    cluster.stop()
    values = {**config, "imq.cluster.brokerlist": ",".join(NAMES), "imq.cluster.masterbroker": "b1"}
    restore(backup, CLUSTER, Config.from_values(values))
    cluster = rb.start(CLUSTER, brokers=len(NAMES), config=config)
    try:
        with connect() as connection:
            admin = connection.admin()
            with pytest.raises(InvalidDestinationError):
                admin.query_destination("queue", "after")
            until(lambda: _is_done(admin, "after"), "it is adopted", SOON_S)
            assert admin.query_destination("queue", "after")["attributes"]["maxNumMsgs"] == 77
        assert taken("after") == [4, 5, 6]
        with connect() as connection:
            admin = connection.admin()
            admin.destroy_destination("queue", "before")  # That of the backup, whose copies were removed long ago.
            until(lambda: _is_done(admin, "before"), "it is adopted", SOON_S)
        assert taken("before") == [7, 8, 9]
    finally:
        cluster.stop()


def _is_done(admin: Any, name: str) -> bool:
    try:
        admin.adopt_destination("queue", name)
    except InvalidDestinationError:
        raise
    except BrokerError:  # Brokers see each other late.
        return False
    return True
