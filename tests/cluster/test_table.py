"""Brokers as actors whose record is in a table that they share (K-20)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.actors.stores.record_tables import TableManager
from raybroker.config import Config
from raybroker.config.brokers import NO_MASTER, TABLE
from raybroker.errors import ConfigError, MasterUnavailableError
from tests.cluster import rays
from tests.contracts.handles import WAIT_S, until

CLUSTER = "sharing"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    directory = tmp_path_factory.mktemp("store")
    return {
        **rays.small_store(directory),
        NO_MASTER: True,
        TABLE: f"sqlite:///{directory / 'record.db'}",
        "raybroker.cluster.table_poll_ms": 500,
        "raybroker.cluster.master_retry_ms": 500,
    }


@pytest.fixture(scope="module")
def two(own_ray: str, config: dict[str, object]) -> Iterator[Any]:
    TableManager(Config.from_values(config), CLUSTER).create()
    with rb.start(CLUSTER, brokers=2, config=config) as started:
        yield started


def test_each_broker_changes_the_record_and_all_carry_it_out(two: Any) -> None:
    for home, other in (("b1", "b2"), ("b2", "b1")):
        with rb.connect(cluster=CLUSTER, broker=home) as connection, rb.connect(cluster=CLUSTER, broker=other) as peer:
            connection.admin().create_destination("queue", f"of-{home}")
            assert len(peer.admin().query_destination("queue", f"of-{home}")["members"]) == 2
            peer.session().producer(f"of-{home}").send(home)
            assert connection.session().consumer(f"of-{home}").receive(timeout=WAIT_S).body == home
            found = peer.admin().query_cluster()
            assert (found["state"], found["master"]) == ("OPERATING", "")
            assert "raybroker_sharecc at sqlite" in found["table"]


def test_while_the_table_is_gone_changes_are_refused_until_it_is_back(two: Any, config: dict[str, object]) -> None:
    file = Path(str(config[TABLE]).removeprefix("sqlite:///"))
    away = file.with_name("away.db")
    with rb.connect(cluster=CLUSTER, broker="b1") as connection:
        admin = connection.admin()
        file.rename(away)
        with pytest.raises(MasterUnavailableError, match="raybroker_sharecc"):
            admin.create_destination("queue", "later")
        connection.session().producer("of-b1").send("meanwhile")
        assert connection.session().consumer("of-b1").receive(timeout=WAIT_S).body == "meanwhile"
        away.rename(file)
        until(lambda: admin.query_cluster()["state"] == "OPERATING")
        admin.create_destination("queue", "later")


def test_an_address_that_cannot_be_used_is_refused_before_anything_starts(own_ray: str, tmp_path: Path) -> None:
    config = {**rays.small_store(tmp_path), NO_MASTER: True, TABLE: "mysql://user@host/base"}
    with pytest.raises(ConfigError, match="mysql is not supported"):
        rb.start("nowhere", brokers=1, config=config)
