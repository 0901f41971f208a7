"""Stores of an instance that is down: up --reset and remove, over the hosts' folders of a broker on this machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.actors.stores.instance import InstanceStores
from raybroker.cli import connecting
from raybroker.client.blocking.handles import XaConnection
from raybroker.config import Config, places
from raybroker.config.places import FilePlace
from raybroker.errors import ConfigError, IllegalStateError
from raybroker.store.catalogue import Catalogue
from tests import program

CLUSTER = "default"


def config(folder: Path, **more: Any) -> Config:
    return Config.from_values({"raybroker.store.dir": str(folder), **more})


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """The directory of a broker that was stopped: a host with messages, a dead one, and a durable subscription."""
    directory = tmp_path / CLUSTER / "b1"
    Catalogue(b"token", 2, {"h1": "shared"}, {"small": {}}, {"imq.log.level": ["INFO", "ERROR"]}).save(directory)
    for part in ("log", "paths"):
        (directory / part).mkdir()
        (directory / part / "file").write_text("x")
    (tmp_path / CLUSTER / "security").mkdir()
    with rb.loopback(host(directory), client_id="billing") as connection:
        connection.start()
        admin = connection.admin()
        session = connection.session()
        admin.create_destination("queue", "orders", redeliveryLimit=1)
        session.durable_consumer("prices", "audit").close()
        session.producer("topic:prices").send_many(["a", "b"])
        session.producer("orders").send_many(range(5))
        session.producer("orders", delivery_delay_ms=3_600_000).send("later")
        client = connection.session(ack="client")
        client.consumer("orders").receive(timeout=10).reject("bad")
        assert messages(connection) == {"orders": 5, "prices": 2, "mq.sys.dmq": 1}
    return directory


def host(directory: Path) -> Path:
    return directory / "hosts" / "h1"


def messages(connection: Any) -> dict[str, int]:
    return {row["name"]: row["messages"] for row in connection.admin().list_destinations()}


def test_messages_are_dropped_and_the_rest_stays(tmp_path: Path, broker: Path) -> None:
    (done,) = InstanceStores(config(tmp_path), CLUSTER).reset("messages")
    assert (done.broker, done.left) == ("b1", ())
    with rb.loopback(host(broker), client_id="billing") as connection:
        connection.start()
        assert set(messages(connection).values()) == {0}
        session = connection.session()
        session.producer("topic:prices").send("c")
        assert session.durable_consumer("prices", "audit").receive(timeout=10).body == "c"
        assert connection.admin().query_destination("queue", "orders")["attributes"]["redeliveryLimit"] == 1


def test_a_prepared_transaction_keeps_its_messages_and_is_named(tmp_path: Path, broker: Path) -> None:
    with rb.loopback(host(broker)) as connection:
        session, xid = XaConnection(connection._core).session(), rb.Xid(1, b"global", b"branch")
        session.xa.start(xid)
        session.producer("orders").send("in doubt")
        session.xa.end(xid)
        session.xa.prepare(xid)
    (done,) = InstanceStores(config(tmp_path), CLUSTER).reset("messages")
    (left,) = done.left
    with rb.loopback(host(broker)) as connection:
        (row,) = connection.admin().list_transactions()
        assert left == f"transaction {row['id']} with its messages"
        connection.admin().commit_transaction(row["id"])
        assert messages(connection)["orders"] == 1


def test_the_store_is_emptied_and_what_is_no_store_stays(tmp_path: Path, broker: Path) -> None:
    (done,) = InstanceStores(config(tmp_path), CLUSTER).reset("store")
    assert done.what == "emptied, with 1 hosts"
    assert sorted(path.name for path in broker.iterdir()) == ["catalogue.json", "log"]
    found = Catalogue.load(broker)
    assert found is not None
    assert (found.token, found.next_id, found.hosts, found.templates) == (b"token", 2, {}, {})
    assert found.properties == {"imq.log.level": ["INFO", "ERROR"]}


def test_the_store_of_one_broker_leaves_the_record(tmp_path: Path, broker: Path) -> None:
    (broker / "record").write_text("of the cluster")
    InstanceStores(config(tmp_path), CLUSTER, "b1").reset("store")
    assert sorted(path.name for path in broker.iterdir()) == ["catalogue.json", "log", "paths", "record"]


def test_changed_properties_are_as_the_configuration_says(tmp_path: Path, broker: Path) -> None:
    assert InstanceStores(config(tmp_path), CLUSTER).reset("props")[0].what == "imq.log.level as the configuration says"
    assert InstanceStores(config(tmp_path), CLUSTER).reset("props")[0].what == "nothing was changed"
    found = Catalogue.load(broker)
    assert found is not None
    assert (found.properties, found.hosts) == ({}, {"h1": "shared"})


@pytest.mark.parametrize("what", ["store", "messages", "props", "remove"])
def test_a_store_that_is_open_is_refused_and_stays(tmp_path: Path, broker: Path, what: str) -> None:
    found = InstanceStores(config(tmp_path), CLUSTER)
    with rb.loopback(host(broker)) as connection:
        with pytest.raises(IllegalStateError, match="stop the brokers first"):
            found.remove() if what == "remove" else found.reset(what)
        assert messages(connection)["prices"] == 2


def test_brokers_on_other_nodes_are_named(tmp_path: Path, broker: Path) -> None:
    listed = config(tmp_path, **{"imq.cluster.brokerlist": "b1,b2"})
    with pytest.raises(IllegalStateError, match="b2 have no store"):
        InstanceStores(listed, CLUSTER).check_whole()
    InstanceStores(listed, CLUSTER, "b1").check_whole()
    InstanceStores(listed, CLUSTER, "b2").check_whole()
    with pytest.raises(ConfigError, match="there are b1"):
        InstanceStores(listed, CLUSTER, "b3")


@pytest.fixture
def down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "running", lambda cluster: [])


def test_an_instance_is_removed(
    tmp_path: Path, broker: Path, monkeypatch: pytest.MonkeyPatch, down: None, capfd: Any
) -> None:
    monkeypatch.setenv("RAYBROKER_STORE__DIR", str(tmp_path))
    monkeypatch.setenv("RAYBROKER_SECURITY__DIR", str(tmp_path / "keys"))
    asked = program.invoke("remove")
    assert (asked.exit_code, "say yes with --force" in asked.stderr) == (2, True)
    assert broker.is_dir()
    assert program.invoke("mq", "imqbrokerd", "-remove", "store").exit_code == 2
    assert "there is no instance 'other'" in program.invoke("remove", "--cluster", "other", "-f").stderr
    done = program.invoke("mq", "imqbrokerd", "-name", CLUSTER, "-remove", "instance", "-force")
    assert (done.exit_code, done.stdout) == (0, f"removed {tmp_path / CLUSTER}\n")
    assert f"left as it is: raybroker.security.dir = {tmp_path / 'keys'}" in done.stderr
    assert not (tmp_path / CLUSTER).exists()


def test_links_to_other_disks_are_removed_with_what_they_lead_to(tmp_path: Path, broker: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / CLUSTER).rename(disk / "instance")
    (tmp_path / CLUSTER).symlink_to(disk / "instance")
    hosts = disk / "instance" / "b1" / "hosts"
    hosts.rename(disk / "hosts")
    hosts.symlink_to(disk / "hosts")
    (done,) = InstanceStores(config(tmp_path), CLUSTER).reset("store")
    assert done.what == "emptied, with 1 hosts"
    assert [path.name for path in disk.iterdir()] == ["instance"]
    InstanceStores(config(tmp_path), CLUSTER).remove()
    assert (list(disk.iterdir()), (tmp_path / CLUSTER).is_symlink()) == ([], False)


def test_what_a_ray_that_runs_needs_is_not_removed(
    tmp_path: Path, broker: Path, monkeypatch: pytest.MonkeyPatch, down: None
) -> None:
    monkeypatch.setenv("RAYBROKER_STORE__DIR", str(tmp_path))
    token = str(tmp_path / CLUSTER / "ray.token")
    with socket.create_server(("127.0.0.1", 0)) as ray:
        address = f"127.0.0.1:{ray.getsockname()[1]}"
        own = FilePlace(address, "token", token, os.getpid(), places.start_mark(os.getpid()))
        places.save(CLUSTER, own)
        done = program.invoke("remove", "-f")
        assert (done.exit_code, f"end it first: raybroker down --name {CLUSTER}" in done.stderr) == (2, True)
        places.forget(CLUSTER)
        places.save("other", own)
        done = program.invoke("remove", "-f")
        assert (done.exit_code, f"whose token is {token}" in done.stderr) == (2, True)
        assert host(broker).is_dir()
    assert program.invoke("remove", "-f").exit_code == 0, "that Ray is gone"


def test_one_broker_of_an_instance_is_removed(
    tmp_path: Path, broker: Path, monkeypatch: pytest.MonkeyPatch, down: None
) -> None:
    monkeypatch.setenv("RAYBROKER_STORE__DIR", str(tmp_path))
    assert program.invoke("remove", "--broker", "b2", "-f").exit_code == 2
    assert program.invoke("remove", "--broker", "b1", "-f").stdout == f"removed {broker}\n"
    assert [path.name for path in (tmp_path / CLUSTER).iterdir()] == ["security"]


def test_nothing_of_an_instance_that_runs_is_removed_or_reset(
    tmp_path: Path, broker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYBROKER_STORE__DIR", str(tmp_path))
    monkeypatch.setattr(connecting, "running", lambda cluster: ["b1"])
    for words in (("remove", "-f"), ("up", "--reset", "store", "-f"), ("mq", "imqbrokerd", "-reset", "messages")):
        done = program.invoke(*words)
        assert (done.exit_code, "stop them first: raybroker down" in done.stderr) == (2, True), done.output
    assert program.invoke("up", "--reset", "all", "-f").exit_code == 2
    assert host(broker).is_dir()


def test_what_is_in_a_database_that_brokers_share_is_not_reset_here(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"reset store: with imq.cluster.ha = true .* dbmgr recreate tbl"):
        InstanceStores(config(tmp_path).with_values({"imq.cluster.ha": True}, origin="test"), CLUSTER).reset("store")
