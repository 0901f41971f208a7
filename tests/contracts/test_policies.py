"""Policies: attributes by pattern, as an application and an administrator see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raybroker.errors import ConfigError, ResourceAllocationError
from raybroker.model.errors import NotOpenError
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.conftest import MakeBroker, OneStore
from tests.contracts.handles import WAIT_S, create, until


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
    ):  # fmt: skip
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
