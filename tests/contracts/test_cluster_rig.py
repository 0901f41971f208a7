"""What holds for a cluster of brokers, over production services in this process (K-02 … K-19)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raybroker.actors.stores.record_tables import TableManager
from raybroker.broker import cluster_broker
from raybroker.cluster import events as ev
from raybroker.cluster.backup import load
from raybroker.cluster.member import restored
from raybroker.config import Config
from raybroker.config.brokers import NO_MASTER, TABLE
from raybroker.errors import (
    BrokerGoneError,
    ConfigError,
    IllegalStateError,
    InvalidDestinationError,
    MasterUnavailableError,
)
from raybroker.model.errors import StoreDamagedError
from raybroker.store.record import RecordFile
from tests.contracts.cluster_rig import ClusterRig, RigCalls
from tests.contracts.handles import WAIT_S, take, until


@pytest.fixture
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterRig]:
    properties: dict[str, object] = {}
    if getattr(request, "param", "master") == "table":
        properties = {NO_MASTER: True, TABLE: f"sqlite:///{tmp_path / 'record.db'}"}
        TableManager(Config.from_values(properties), "rig").create()
    with ClusterRig(tmp_path, **properties) as made:
        yield made


both = pytest.mark.parametrize("rig", ["master", "table"], indirect=True)
"""Wherever the record is kept (K-10, K-20)."""


def test_brokers_find_each_other_and_one_is_the_coordinator(rig: ClusterRig) -> None:
    for home in rig.plan.names:
        rows = rig.connect(home).admin().list_brokers()
        assert [row["broker"] for row in rows] == ["b1", "b2", "b3"]
        assert {row["state"] for row in rows} == {"UP"}
        assert [row["broker"] for row in rows if row["master"]] == ["b1"]
        assert sum(row["seat"] for row in rows) == 1


@both
def test_a_destination_created_anywhere_is_everywhere(rig: ClusterRig) -> None:  # K-03, K-07
    name = rig.name()
    rig.connect("b2").admin().create_destination("queue", name, maxNumMsgs=7)
    for home in rig.plan.names:
        found = rig.connect(home).admin().query_destination("queue", name)
        assert found["attributes"]["maxNumMsgs"] == 7
        assert {row["broker"] for row in found["members"]} == set(rig.plan.names)


@both
def test_a_change_of_attributes_and_the_end_of_a_destination_are_everywhere(rig: ClusterRig) -> None:  # K-07
    name = rig.name()
    rig.connect("b1").admin().create_destination("queue", name)
    rig.connect("b3").admin().update_destination("queue", name, maxNumMsgs=11)
    for home in rig.plan.names:
        assert rig.connect(home).admin().query_destination("queue", name)["attributes"]["maxNumMsgs"] == 11
    rig.connect("b2").admin().destroy_destination("queue", name)
    for home in rig.plan.names:
        with pytest.raises(InvalidDestinationError):
            rig.connect(home).admin().query_destination("queue", name)


def test_changes_need_the_master_and_deliveries_do_not(rig: ClusterRig) -> None:  # K-13
    name = rig.name()
    other = rig.connect("b2", pinned=True)
    other.admin().create_destination("queue", name)
    rig.kill("b1")
    until(lambda: other.admin().query_cluster()["state"] == "MASTER_LOST")
    with pytest.raises(MasterUnavailableError, match="b1"):
        other.admin().create_destination("queue", rig.name())
    with pytest.raises(MasterUnavailableError, match="b1"):
        other.admin().destroy_destination("queue", name)
    session = other.session()
    session.producer(name).send("still here")
    assert session.consumer(name).receive(timeout=WAIT_S).body == "still here"
    session.producer(rig.name()).send("auto-created still works")
    rig.start("b1")
    late = rig.name()
    until(lambda: _created(other, late))


def _created(connection: Any, name: str) -> bool:
    try:
        connection.admin().create_destination("queue", name)
    except MasterUnavailableError:
        return False
    return True


@both
def test_brokers_that_stand_still_for_a_while_do_not_take_each_other_for_lost(rig: ClusterRig) -> None:
    """As on a machine with too much to do: a process that could not run has not heard the others either."""
    views = {name: broker.cluster.clustering.version for name, broker in rig.brokers.items()}

    async def stand_still() -> None:
        time.sleep(3 * rig.config["raybroker.cluster.down_ms"] / 1000)  # noqa: ASYNC251 - the loop shall stand still

    for _ in range(2):
        rig.io.run(stand_still())
        rig.connect("b2").admin().create_destination("q", rig.name())
    assert views == {name: broker.cluster.clustering.version for name, broker in rig.brokers.items()}


def test_a_broker_that_was_away_catches_up_when_it_comes_back(rig: ClusterRig) -> None:  # K-11
    gone, kept = rig.name(), rig.name()
    admin = rig.connect("b1").admin()
    admin.create_destination("queue", gone)
    rig.kill("b3")
    until(lambda: [r["state"] for r in admin.list_brokers()] == ["UP", "UP", "DOWN"])
    admin.destroy_destination("queue", gone)
    admin.create_destination("queue", kept, maxNumMsgs=3)
    rig.start("b3")
    back = rig.connect("b3", pinned=True)
    until(lambda: back.admin().query_cluster()["operating"])
    assert [r["name"] for r in back.admin().list_destinations("queue") if not r["name"].startswith("mq.")] == [kept]
    with pytest.raises(InvalidDestinationError):
        back.admin().query_destination("queue", gone)


@both
def test_what_a_broker_could_not_destroy_at_once_is_destroyed_later(  # K-11
    rig: ClusterRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = rig.name()
    admin = rig.connect("b1").admin()
    admin.create_destination("queue", name)
    host = rig.brokers["b3"].host
    destroy, asked = host.destinations.destroy, []

    async def fails_once(kind: str, which: str) -> None:
        asked.append(which)
        if len(asked) == 1:
            raise BrokerGoneError("the host is just being restarted")
        await destroy(kind, which)

    monkeypatch.setattr(host.destinations, "destroy", fails_once)
    admin.destroy_destination("queue", name)
    until(lambda: ("queue", name) not in rig.brokers["b3"].local.registry.where)
    assert asked == [name, name]


@pytest.mark.parametrize("compressed", [False, True])
@both
def test_a_broker_that_ends_before_it_destroys_something_does_so_when_it_is_back(  # K-11
    rig: ClusterRig, monkeypatch: pytest.MonkeyPatch, compressed: bool
) -> None:
    name = rig.name()
    admin = rig.connect("b1").admin()
    admin.create_destination("queue", name)
    ending = rig.brokers["b3"]

    async def never(kind: str, which: str) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(ending.host.destinations, "destroy", never)
    monkeypatch.setattr(cluster_broker, "REACH_TIMEOUT_S", 1.0)
    admin.destroy_destination("queue", name)
    member = ending.cluster.clustering.member
    until(lambda: ("queue", name) not in member.agreed.destinations)
    if compressed:
        rig.io.post(ending.cluster.clustering.feed, ev.Compress())
        until(lambda: not member.record.entries)
    rig.kill("b3")
    found = rig.start("b3")
    until(lambda: found.cluster.clustering.member.applied >= 0)
    assert ("queue", name) not in found.local.registry.where


def test_a_broker_waits_for_the_master_and_says_so(tmp_path: Path) -> None:  # K-12
    with ClusterRig(tmp_path, 2, start=("b2",)) as rig:
        connection = rig.connect("b2", pinned=True, raybroker__reconnect__timeout_ms=100)
        until(lambda: rig.brokers["b2"].cluster.clustering.member.state == "WAITING_FOR_MASTER")
        with pytest.raises(MasterUnavailableError, match="waits for the master broker b1"):
            connection.admin().list_destinations()
        rig.start("b1")
        until(lambda: rig.brokers["b2"].cluster.clustering.member.opened)
        assert connection.admin().query_cluster()["state"] == "OPERATING"


@both
def test_a_durable_subscription_is_made_on_all_brokers(rig: ClusterRig) -> None:  # K-08, D-27
    topic = rig.name()
    rig.connect("b1").admin().create_destination("topic", topic)
    with rig.connect("b2", client_id="clerk") as first:
        session = first.session()
        session.durable_consumer(session.topic(topic), "audit").close()
    for home in rig.plan.names:
        session = rig.connect(home).session()
        session.producer(session.topic(topic)).send(home)
    with rig.connect("b3", client_id="clerk") as again:
        session = again.session()
        consumer = session.durable_consumer(session.topic(topic), "audit")
        assert sorted(m.body for m in take(consumer, 3)) == ["b1", "b2", "b3"]
        consumer.close()
        session.unsubscribe("audit")
    assert rig.connect("b1").admin().list_subscriptions(topic) == []


def test_the_master_changes_while_brokers_run(rig: ClusterRig) -> None:  # K-15
    admin = rig.connect("b1").admin()
    assert admin.change_master("nobody")["result"] == "BAD_REQUEST"
    assert admin.change_master("b2")["result"] == "OK"
    name = rig.name()
    for home in rig.plan.names:
        until(lambda home=home: rig.connect(home).admin().query_cluster()["master"] == "b2")
    rig.connect("b3").admin().create_destination("queue", name)
    until(lambda: rig.connect("b2").admin().query_cluster()["is_master"])
    assert rig.connect("b1").admin().change_master("b1")["result"] == "OK", "b2, the master, is asked by b1"
    until(lambda: rig.connect("b1").admin().query_cluster()["is_master"])
    assert rig.connect("b3").admin().change_master("b2")["result"] == "OK"
    until(lambda: rig.connect("b2").admin().query_cluster()["is_master"])
    rig.kill("b1")
    until(lambda: _created(rig.connect("b3", pinned=True), rig.name()))


def test_without_a_master_changes_go_to_those_that_run(tmp_path: Path) -> None:  # K-16
    with ClusterRig(tmp_path, 3, imq__cluster__nomasterbroker=True) as rig:
        name, missed = rig.name(), rig.name()
        rig.connect("b3").admin().create_destination("queue", name)
        assert len(rig.connect("b1").admin().query_destination("queue", name)["members"]) == 3
        rig.kill("b2")
        admin = rig.connect("b1").admin()
        until(lambda: [r["state"] for r in admin.list_brokers()] == ["UP", "DOWN", "UP"])
        admin.create_destination("queue", missed)
        rig.start("b2")
        until(lambda: rig.brokers["b2"].cluster.clustering.member.opened)
        assert ("queue", missed) not in rig.brokers["b2"].local.registry.where
        assert ("queue", name) in rig.brokers["b2"].local.registry.where


@both
def test_brokers_join_and_leave_a_running_cluster(rig: ClusterRig) -> None:  # K-17
    admin = rig.connect("b1").admin()
    name = rig.name()
    admin.create_destination("queue", name)
    admin.reload_cluster(["b1", "b2", "b3", "b4"])
    rig.plan = replace(rig.plan, brokers={**rig.plan.brokers, "b4": ""})
    rig.start("b4")
    until(lambda: [r["state"] for r in admin.list_brokers()] == ["UP"] * 4)
    assert len(rig.connect("b4").admin().query_destination("queue", name)["members"]) == 4
    with pytest.raises(ConfigError, match="b4"):
        admin.reload_cluster(["b1", "b2", "b3"])
    rig.stop("b4")
    until(lambda: [r["state"] for r in admin.list_brokers()] == ["UP", "UP", "UP", "LEFT"])
    admin.reload_cluster(["b1", "b2", "b3"])
    assert [r["broker"] for r in admin.list_brokers()] == ["b1", "b2", "b3"]


def test_a_configuration_that_names_another_master_than_the_record_is_told(rig: ClusterRig) -> None:  # K-15
    admin = rig.connect("b1").admin()
    assert admin.query_cluster()["contradiction"] == ""
    assert admin.change_master("b2")["result"] == "OK"
    rig.kill("b3")
    rig.start("b3")
    until(lambda: rig.brokers["b3"].cluster.clustering.member.opened)
    text = rig.connect("b3").admin().query_cluster()["contradiction"]
    assert "masterbroker is b1, and the master is b2" in text


def restore(rig: ClusterRig, backup: bytes) -> None:
    """Make a backup the record, and start all brokers with it."""
    for name in list(rig.brokers):
        rig.stop(name)
    file = RecordFile(rig.directory / "b1" / "record")
    file.replace(restored(file.open(), backup, cluster="rig", name="b1", master="b1", new_id="again"))
    file.close()
    for name in rig.plan.names:
        rig.start(name)
    for name in rig.plan.names:
        until(lambda name=name: rig.brokers[name].cluster.clustering.member.opened)
    until(lambda: set(rig.brokers["b1"].cluster.live()) == set(rig.plan.names))


def states(rig: ClusterRig, kind: str) -> dict[str, str]:
    return {row["name"]: row["state"] for row in rig.connect("b2").admin().list_destinations(kind)}


def test_what_a_restored_record_does_not_know_is_adopted_or_dropped(rig: ClusterRig) -> None:  # K-14
    connection = rig.connect("b2", client_id="me")
    admin = connection.admin()
    backup = admin.backup_record()
    topic, queue, dropped = rig.name(), rig.name(), rig.name()
    admin.create_destination("topic", topic)
    admin.create_destination("queue", queue, maxNumMsgs=7)
    admin.create_destination("queue", dropped)
    session = connection.session()
    session.durable_consumer(f"topic:{topic}", "kept").close()
    session.producer(f"topic:{topic}").send("published")
    session.producer(queue).send("sent")
    connection.close()
    restore(rig, backup)
    admin = rig.connect("b2").admin()
    assert (states(rig, "topic")[topic], states(rig, "queue")[queue]) == ("ORPHANED", "ORPHANED")
    admin.adopt_destination("topic", topic)
    admin.adopt_destination("queue", queue)
    admin.destroy_destination("queue", dropped)
    rig.kill("b3")
    rig.start("b3")
    until(lambda: rig.brokers["b3"].cluster.clustering.member.opened)
    assert states(rig, "topic")[topic] == "RUNNING"
    assert states(rig, "queue") == {queue: "RUNNING", "mq.sys.dmq": "RUNNING"}
    assert admin.query_destination("queue", queue)["attributes"]["maxNumMsgs"] == 7
    again = rig.connect("b2", client_id="me").session()
    assert take(again.consumer(queue), 1)[0].body == "sent"
    assert take(again.durable_consumer(f"topic:{topic}", "kept"), 1)[0].body == "published"


def test_a_durable_subscription_that_a_restored_record_does_not_know_keeps_its_messages(rig: ClusterRig) -> None:
    connection, topic = rig.connect("b2", client_id="me"), rig.name()
    connection.admin().create_destination("topic", topic)
    backup = connection.admin().backup_record()
    session = connection.session()
    session.durable_consumer(f"topic:{topic}", "later").close()
    session.producer(f"topic:{topic}").send("published")
    connection.close()
    restore(rig, backup)
    again = rig.connect("b1", client_id="me").session()
    assert take(again.durable_consumer(f"topic:{topic}", "later"), 1)[0].body == "published"


def test_a_restored_record_is_taken_by_all_and_nobody_loses_messages(rig: ClusterRig) -> None:  # K-14, A-06, A-07
    admin = rig.connect("b2").admin()
    kept, newer = rig.name(), rig.name()
    admin.create_destination("queue", kept, maxNumMsgs=5)
    backup = admin.backup_record()
    admin.create_destination("queue", newer)
    rig.connect("b3").session().producer(newer).send("not to be lost")
    for name in rig.plan.names:
        rig.stop(name)
    file = RecordFile(rig.directory / "b1" / "record")
    frames = restored(file.open(), backup, cluster="rig", name="b1", master="b1", new_id="again")
    file.replace(frames)
    file.close()
    with pytest.raises(StoreDamagedError):
        load(backup[:-40], cluster="rig")
    with pytest.raises(ConfigError, match="other"):
        load(backup, cluster="other")
    for name in rig.plan.names:
        rig.start(name)
    for name in rig.plan.names:
        until(lambda name=name: rig.brokers[name].cluster.clustering.member.opened)
    again = rig.connect("b3")
    assert again.admin().query_destination("queue", kept)["attributes"]["maxNumMsgs"] == 5
    assert list(rig.brokers["b1"].cluster.clustering.member.agreed.destinations) == [("queue", kept)]
    admin = again.admin()
    assert {r["name"]: r["state"] for r in admin.list_destinations()}[newer] == "ORPHANED"
    row = admin.query_destination("queue", newer)
    assert (row["state"], row["messages"]) == ("ORPHANED", 1)
    with pytest.raises(InvalidDestinationError, match=r"orphaned.*adopt"):
        admin.create_destination("queue", newer)
    with pytest.raises(IllegalStateError, match=r"orphaned.*adopt"):
        admin.update_destination("queue", newer, maxNumMsgs=7)
    with pytest.raises(IllegalStateError, match="not orphaned"):
        admin.adopt_destination("queue", kept)
    assert again.session().consumer(newer).receive(timeout=WAIT_S).body == "not to be lost"


@pytest.mark.parametrize("again", [False, True], ids=["gone", "there again"])
def test_a_question_ends_with_the_broker_that_is_asked(rig: ClusterRig, again: bool) -> None:
    """As the call of a process does, whoever has its name afterwards: nobody waits for a broker that was killed."""
    calls = RigCalls(rig, "b1")
    version = rig.io.run(calls.call("b1", "brokers"))[0]
    asked = rig.io.submit(calls.call("b1", "brokers_changed", version, 3 * WAIT_S))
    rig.io.run(calls.call("b1", "brokers"))  # It was asked before.
    assert not asked.done()
    rig.kill("b1")
    if again:
        rig.start("b1")
    assert isinstance(asked.exception(WAIT_S), BrokerGoneError)
