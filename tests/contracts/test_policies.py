"""Policies: attributes by pattern, as an application and an administrator see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raybroker.errors import ConfigError, IllegalStateError, QuotaExceededError, ResourceAllocationError
from raybroker.model.errors import NotOpenError
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.conftest import MakeBroker, OneStore
from tests.contracts.handles import WAIT_S, bodies, create, take, until


def held(admin: Any, name: str, attribute: str, kind: str = "queue") -> tuple[Any, str]:
    row = admin.query_destination(kind, name)
    return row["effective"][attribute], row["origins"].get(attribute, "default")


def opened(rig: ClusterRig, broker: str) -> Any:
    """A connection to a broker that was started again, as soon as it takes clients."""
    connection = rig.connect(broker)
    try:
        connection.admin().list_policies()
    except NotOpenError:
        return None
    return connection


@pytest.mark.parametrize("make_broker", ["memory", "aio", "sockets"], indirect=True)
def test_a_policy_holds_for_living_destinations_at_once_and_for_those_that_come(make_broker: MakeBroker) -> None:
    broker = make_broker()
    connection = broker.connect()
    admin, session = connection.admin(), connection.session()
    living, later = f"{broker.name()}.a", f"{broker.name()}.b"
    create(connection, living)
    producer = session.producer(living)
    producer.send("1")
    admin.create_policy("small", ">", maxNumMsgs=2)
    producer.send("2")
    with pytest.raises(ResourceAllocationError, match="maxNumMsgs=2"):
        producer.send("3")
    assert held(admin, living, "maxNumMsgs") == (2, "policy small")
    assert admin.query_destination("queue", living)["attributes"]["maxNumMsgs"] == -1
    coming = session.producer(later)
    coming.send("1"), coming.send("2")
    with pytest.raises(ResourceAllocationError, match="maxNumMsgs=2"):
        coming.send("3")
    admin.update_policy("small", maxNumMsgs=3)
    producer.send("3"), coming.send("3")
    admin.destroy_policy("small")
    for _ in range(3):
        producer.send("more")
    assert held(admin, living, "maxNumMsgs") == (-1, "default")


@pytest.mark.parametrize("make_broker", ["memory"], indirect=True)
def test_a_destination_stands_above_policies_and_operators_above_both(make_broker: MakeBroker) -> None:
    broker = make_broker()
    connection, name = broker.connect(), broker.name()
    admin = connection.admin()
    create(connection, name, maxNumMsgs=50, useDMQ=False)
    admin.create_policy("user", ">", maxNumMsgs=5, redeliveryLimit=2)
    assert held(admin, name, "maxNumMsgs") == (50, "destination")
    assert held(admin, name, "redeliveryLimit") == (2, "policy user")
    admin.create_policy("bound", ">", operator=True, maxNumMsgs=20, useDMQ=True, redeliveryLimit=9)
    assert held(admin, name, "maxNumMsgs") == (20, "operator policy bound")
    assert held(admin, name, "useDMQ") == (True, "operator policy bound")
    assert held(admin, name, "redeliveryLimit") == (2, "policy user")
    admin.update_destination("queue", name, maxNumMsgs=10)
    assert held(admin, name, "maxNumMsgs") == (10, "destination")
    admin.update_destination("queue", name, maxNumMsgs=-1)
    assert held(admin, name, "maxNumMsgs") == (5, "policy user")
    admin.create_policy("higher", ">", priority=1, consumerFlowLimit=7)
    assert held(admin, name, "maxNumMsgs") == (20, "operator policy bound")
    row = admin.query_destination("queue", name)
    assert (row["policy"], row["operator_policy"]) == ("higher", "bound")
    assert admin.query_policy("higher")["destinations"] == [f"queue {name}"]
    assert admin.query_policy("user")["destinations"] == []
    assert admin.query_destination("queue", "mq.sys.dmq")["policy"] == ""


@pytest.mark.parametrize("make_broker", ["memory"], indirect=True)
def test_dead_messages_go_where_a_policy_says(make_broker: MakeBroker) -> None:
    broker = make_broker()
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    dead = broker.name()
    create(connection, dead)
    connection.admin().create_policy("dead", ">", errorDestination=dead, redeliveryLimit=0)
    session.producer(name).send("x")
    taken = connection.session(ack="client").receive(name, timeout=WAIT_S)
    taken.reject()
    found = until(lambda: session.receive(dead, timeout=1))
    assert found.body == "x"


@pytest.mark.parametrize("make_broker", ["memory"], indirect=True)
def test_what_no_policy_can_say_is_refused_and_changes_nothing(make_broker: MakeBroker) -> None:
    admin = make_broker().connect().admin()
    for given, text in (
        ({"pattern": "a*", "maxNumMsgs": 1}, "has '\\*' beside other characters"),
        ({"pattern": ">", "maxNumMessages": 1}, "'maxNumMessages' is not a destination attribute"),
        ({"pattern": ">", "hosting": "shared"}, "hosting cannot change while a destination is used"),
        ({"pattern": ">", "maxNumMsgs": 1, "messagesHigh": 2, "messagesLow": 1}, "would never be reached"),
        ({"pattern": "mq.sys.dmq", "maxNumMsgs": 1}, "the broker's own"),
        ({"pattern": ">", "apply_to": "queues", "maxNumMsgs": 1}, "apply_to='queues'; it is 'queue' or"),
        ({"pattern": ">", "priority": -1, "maxNumMsgs": 1}, "priority=-1"),
    ):
        with pytest.raises(ConfigError, match=text):
            admin.create_policy("p", **given)
    assert admin.list_policies() == []
    admin.create_policy("p", ">", maxNumMsgs=1)
    with pytest.raises(ConfigError, match="policy 'p' exists already"):
        admin.create_policy("p", ">", maxNumMsgs=1)


def test_policies_outlive_a_restart_and_a_crash(store: OneStore) -> None:
    broker = store.open()
    connection, name = broker.connect(), broker.name()
    connection.admin().create_policy("small", ">", maxNumMsgs=1)
    connection.session().producer(name).send("a")
    for again in (store.open, store.crash):
        connection = again().connect()
        with pytest.raises(ResourceAllocationError, match="maxNumMsgs=1"):
            connection.session().producer(name).send("b")
        assert held(connection.admin(), name, "maxNumMsgs") == (1, "policy small")


def test_all_brokers_hold_a_policy_also_those_that_were_down(tmp_path: Path) -> None:
    with ClusterRig(tmp_path) as rig:
        name = rig.name()
        first, second = rig.connect("b1"), rig.connect("b2")
        rig.kill("b3")
        second.admin().create_policy("small", ">", maxNumMsgs=1)
        first.admin().create_destination("queue", name)
        rig.start("b3")
        third = until(lambda: opened(rig, "b3"))
        until(lambda: [row["name"] for row in third.admin().list_policies()] == ["small"])
        for connection in (first, second, third):
            assert held(connection.admin(), name, "maxNumMsgs") == (1, "policy small")
        first.admin().update_policy("small", maxNumMsgs=2, priority=4)
        until(lambda: third.admin().query_policy("small")["priority"] == 4)
        with pytest.raises(ConfigError, match="policy 'small' exists already"):
            third.admin().create_policy("small", ">", maxNumMsgs=1)
        third.admin().destroy_policy("small")
        until(lambda: first.admin().list_policies() == [])


# ---- what clients and other brokers act on


@pytest.mark.parametrize("make_broker", ["memory", "sockets"], indirect=True)
def test_a_quota_of_a_policy_is_charged_by_all_that_match(make_broker: MakeBroker) -> None:
    broker = make_broker()
    connection = broker.connect()
    admin, session, base = connection.admin(), connection.session(), broker.name()
    with pytest.raises(ConfigError, match="there is no quota 'small'"):
        admin.create_policy("p", f"{base}>", quota="small")
    admin.create_quota("small", MessagesMaximum=3)
    admin.create_quota("other", MessagesMaximum=9)
    create(connection, f"{base}.living")
    create(connection, f"{base}.own", quota="other")
    first = session.producer(f"{base}.living")
    first.send("1")
    admin.create_policy("p", f"{base}>", quota="small")
    second, own = session.producer(f"{base}.later"), session.producer(f"{base}.own")
    second.send("2"), first.send("3")
    with pytest.raises(QuotaExceededError, match="quota 'small'"):
        second.send("4")
    own.send("by a quota of its own")
    row = admin.query_quota("small")
    assert (row["messages"], row["users"]) == (3, ["policy p", f"queue {base}.later", f"queue {base}.living"])
    assert held(admin, f"{base}.later", "quota") == ("small", "policy p")
    assert held(admin, f"{base}.own", "quota") == ("other", "destination")
    with pytest.raises(IllegalStateError, match="in use by policy p"):
        admin.destroy_quota("small")
    admin.destroy_policy("p")
    second.send("4")
    assert admin.query_quota("small")["messages"] == 0
    admin.destroy_quota("small")


@pytest.mark.parametrize("make_broker", ["memory", "sockets"], indirect=True)
def test_units_of_order_and_windows_for_duplicates_by_policy(make_broker: MakeBroker) -> None:
    broker = make_broker()
    connection = broker.connect()
    admin, base = connection.admin(), broker.name()
    create(connection, f"{base}.living")
    admin.create_policy("p", f"{base}>", unitOfOrder=True, duplicateWindowMs=60_000)
    for name in (f"{base}.living", f"{base}.later"):
        session = connection.session(ack="client")
        producer = session.producer(name)
        for body in ("one", "again"):
            producer.send(body, dedup_id="same")
        producer.send("two")
        row = admin.query_destination("queue", name)
        assert (row["messages"], row["duplicates"]) == (2, 1)
        assert row["origins"] == {"unitOfOrder": "policy p", "duplicateWindowMs": "policy p"} | {
            key: value for key, value in row["origins"].items() if key not in ("unitOfOrder", "duplicateWindowMs")
        }
        one, other = (connection.session(ack="client").consumer(name, prefetch=1) for _ in range(2))
        first = until(lambda one=one, other=other: one.receive_nowait() or other.receive_nowait())
        assert (first.body, first.unit_of_order is not None) == ("one", True)
        assert one.receive_nowait() is other.receive_nowait() is None, "the unit is with one consumer"


def test_brokers_forward_and_balance_as_a_policy_says(tmp_path: Path) -> None:
    with ClusterRig(tmp_path, 2) as rig:
        name = rig.name()
        connection = rig.connect("b1")
        admin = connection.admin()
        admin.create_destination("queue", name, distributed=True)
        with rig.connect("b1", pinned=True, LoadBalancingEnabled=False) as sender:
            sender.session().producer(name).send_many(range(20))
        consumer = rig.connect("b2", pinned=True).session().consumer(name)
        admin.create_policy("p", f"{name}>", apply_to="queue", forwardDelay=0, loadBalancingPolicy="Random")
        assert held(admin, name, "forwardDelay") == (0, "policy p")
        assert sorted(bodies(take(consumer, 20))) == list(range(20))
        for broker in rig.brokers.values():
            traits = broker.cluster.local.registry.held_traits(("queue", name))
            assert (traits["loadBalancingPolicy"], traits["forwardDelay"]) == ("Random", 0)
        admin.update_destination("queue", name, loadBalancingPolicy="Random", forwardDelay=7)
        admin.update_policy("p", forwardDelay=3)
        assert held(admin, name, "forwardDelay") == (7, "destination")


def test_units_go_to_one_broker_as_a_policy_says_whichever_sends_them(tmp_path: Path) -> None:
    with ClusterRig(tmp_path, 2) as rig:
        name, admin = rig.name(), rig.connect("b1").admin()
        admin.create_policy("p", f"{name}>", unitOfOrder=True, unitOfOrderRouting="Hash")
        admin.create_destination("queue", name)
        for home in ("b1", "b2"):
            rig.connect(home).session().producer(name).send_many(range(5))
        members = {row["broker"]: row["messages"] for row in admin.query_destination("queue", name)["members"]}
        assert sorted(members.values()) == [0, 10], "the hash of its unit names one broker"


def test_in_a_cluster_no_policy_switches_deduplication_on_for_what_there_is(tmp_path: Path) -> None:
    with ClusterRig(tmp_path, 2) as rig:
        base, admin = rig.name(), rig.connect("b1").admin()
        admin.create_destination("queue", f"{base}.living")
        with pytest.raises(ConfigError, match=rf"switch on duplicateWindowMs of queue {base}.living, .*is created"):
            admin.create_policy("p", f"{base}>", duplicateWindowMs=60_000)
        admin.create_policy("p", f"{base}.later>", apply_to="queue", duplicateWindowMs=60_000)
        with pytest.raises(ConfigError, match=rf"of queue {base}.living"):
            admin.update_policy("p", pattern=f"{base}>")
        admin.create_destination("queue", f"{base}.later")
        admin.update_policy("p", duplicateWindowMs=30_000)
        for home in ("b1", "b2"):
            rig.connect(home).session().producer(f"{base}.later").send("x", dedup_id="same")
        row = admin.query_destination("queue", f"{base}.later")
        assert (row["messages"], row["duplicates"]) == (1, 1)
        assert held(admin, f"{base}.later", "duplicateWindowMs") == (30_000, "policy p")
        admin.update_destination("queue", f"{base}.later", duplicateWindowMs=40_000)
        admin.destroy_policy("p")
        assert held(admin, f"{base}.later", "duplicateWindowMs") == (40_000, "destination")
