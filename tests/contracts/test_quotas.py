"""Quotas: named limits that destinations refer to, as an application and an administrator see them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raybroker.errors import ConfigError, IllegalStateError, QuotaExceededError
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.conftest import MakeBroker, OneStore
from tests.contracts.handles import WAIT_S, create, until


@pytest.mark.parametrize("make_broker", ["memory", "aio", "sockets"], indirect=True)
def test_what_refers_to_a_quota_holds_as_much_and_not_more(make_broker: MakeBroker) -> None:  # W-04 W-05 W-07 W-08
    broker = make_broker(imq__system__max_count=1)
    connection = broker.connect(SendTimeout=5)
    admin, session = connection.admin(), connection.session()
    admin.create_quota("small", MessagesMaximum=3)
    first, second, third = (broker.name() for _ in range(3))
    create(connection, first, quota="small"), create(connection, second, quota="small"), create(connection, third)
    one, other, beside = (session.producer(name) for name in (first, second, third))
    one.send("a"), other.send("b"), beside.send("of the broker"), one.send("c")
    with pytest.raises(QuotaExceededError, match="quota 'small' holds its MessagesMaximum=3 messages"):
        other.send("d")
    row = admin.query_quota("small")
    assert (row["messages"], row["bytes"], row["waiting"], row["refused"]) == (3, 3, 0, 1)
    assert row["users"] == sorted([f"queue {first}", f"queue {second}"])
    assert row["attributes"] == {"BytesMaximum": -1, "MessagesMaximum": 3, "Policy": "FIFO", "Shared": True}
    assert [(pool["messages"], pool["destinations"]) for pool in row["pools"]] == [(3, row["users"])]
    assert admin.list_quotas() == [{"name": "small", "attributes": row["attributes"]}]
    assert admin.query_broker()["limits"]["messages"] == 1
    taken = connection.session(ack="client").receive(first, timeout=WAIT_S)
    taken.acknowledge()
    other.send("e")
    assert "raybroker_quota_refused_messages_total" not in admin.metrics()[0]["own"]
    assert admin.metrics()[0]["own"]["quota_refused_messages_total"] == {"small": 1}


@pytest.mark.parametrize("make_broker", ["memory", "store", "sockets"], indirect=True)
def test_a_selector_that_comes_while_a_message_waits_gets_it(make_broker: MakeBroker) -> None:
    """Nobody had asked for its headers when it came."""
    broker = make_broker()
    connection, full, name = broker.connect(SendTimeout=60_000), broker.name(), broker.name()
    connection.admin().create_quota("small", MessagesMaximum=1)
    create(connection, full, quota="small"), create(connection, name, quota="small")
    connection.session().producer(full).send("a")
    sent = connection.session().producer(name).send_async("b", {"colour": "red"})
    until(lambda: connection.admin().query_quota("small")["waiting"] == 1)
    chosen = connection.session().consumer(name, selector="colour = 'red'")
    connection.session(ack="client").receive(full, timeout=WAIT_S).acknowledge()
    taken = chosen.receive(timeout=WAIT_S)
    assert (taken.body, taken.properties["colour"]) == ("b", "red")
    sent.result(WAIT_S)


@pytest.mark.parametrize("make_broker", ["sockets"], indirect=True)
def test_a_limit_that_is_raised_serves_who_waits(make_broker: MakeBroker) -> None:  # W-11 W-13
    broker = make_broker()
    connection, name = broker.connect(SendTimeout=60_000), broker.name()
    admin = connection.admin()
    admin.create_quota("small", MessagesMaximum=1)
    create(connection, name, quota="small")
    producer = connection.session().producer(name)
    producer.send("a")
    failures: list[BaseException] = []

    def send() -> None:
        try:
            producer.send("b")
        except BaseException as error:  # noqa: BLE001 - the test asserts which
            failures.append(error)

    waiting = threading.Thread(target=send)
    waiting.start()
    until(lambda: admin.query_quota("small")["waiting"] == 1)
    admin.update_quota("small", MessagesMaximum=2)
    waiting.join(WAIT_S)
    assert (failures, waiting.is_alive()) == ([], False)
    waiting = threading.Thread(target=send)  # W-12
    waiting.start()
    until(lambda: admin.query_quota("small")["waiting"] == 1)
    admin.create_quota("other", MessagesMaximum=9)
    admin.update_destination("queue", name, quota="other")
    waiting.join(WAIT_S)
    (failure,) = failures
    assert isinstance(failure, QuotaExceededError)
    assert "was given another quota" in str(failure)
    producer.send("c")


@pytest.mark.parametrize("make_broker", ["memory"], indirect=True)
def test_what_cannot_be_is_refused_with_the_reason(make_broker: MakeBroker) -> None:
    broker = make_broker()
    connection, name = broker.connect(), broker.name()
    admin = connection.admin()
    with pytest.raises(ConfigError, match="'Messages' is not an attribute of quotas; the nearest is 'MessagesMaximum'"):
        admin.create_quota("q", Messages=1)
    with pytest.raises(ConfigError, match="MessagesMaximum"):
        admin.create_quota("q", MessagesMaximum=-2)
    with pytest.raises(ConfigError, match="Policy"):
        admin.create_quota("q", Policy="LIFO")
    with pytest.raises(ConfigError, match="quota name 'a b' is not allowed"):
        admin.create_quota("a b")
    admin.create_quota("q", MessagesMaximum="10", BytesMaximum="1k", Shared="false")
    assert admin.query_quota("q")["attributes"]["BytesMaximum"] == 1024
    with pytest.raises(ConfigError, match="quota 'q' exists already"):
        admin.create_quota("q")
    with pytest.raises(ConfigError, match="Shared is fixed"):
        admin.update_quota("q", Shared=True)
    for call in (admin.query_quota, admin.destroy_quota, admin.update_quota):
        with pytest.raises(ConfigError, match="there is no quota 'none'; there are: q"):
            call("none")
    with pytest.raises(ConfigError, match="there is no quota 'none'"):
        create(connection, name, quota="none")
    with pytest.raises(ConfigError, match="there is no quota 'none'"):
        admin.create_template("t", quota="none")
    with pytest.raises(ConfigError, match="would never be reached: MessagesMaximum of quota 'q' is 10"):
        create(connection, name, quota="q", messagesHigh=11, messagesLow=1)
    create(connection, name, quota="q", messagesHigh=9, messagesLow=1)
    with pytest.raises(ConfigError, match="would never be reached: MessagesMaximum of quota 'q' is 8"):
        admin.update_quota("q", MessagesMaximum=8)
    with pytest.raises(ConfigError, match="would never be reached"):
        admin.update_destination("queue", name, messagesHigh=11)
    with pytest.raises(ConfigError, match=r"quota = q is not possible for mq\.sys\.dmq"):
        admin.update_destination("queue", "mq.sys.dmq", quota="q")
    with pytest.raises(IllegalStateError, match=f"quota 'q' is in use by queue {name}"):
        admin.destroy_quota("q")
    admin.create_template("t", quota="q")
    admin.update_destination("queue", name, quota="")
    with pytest.raises(IllegalStateError, match="quota 'q' is in use by template t"):
        admin.destroy_quota("q")
    admin.destroy_template("t")
    admin.destroy_quota("q")
    assert admin.list_quotas() == []


def test_quotas_and_what_is_charged_survive_a_crash(store: OneStore) -> None:
    broker = store.open()
    connection = broker.connect()
    connection.admin().create_quota("small", MessagesMaximum=2)
    connection.admin().create_quota("gone")
    connection.admin().create_destination("queue", "q", quota="small")
    connection.session().producer("q").send_many("ab")
    connection.admin().destroy_quota("gone")
    after = store.crash().connect(SendTimeout=1)
    with pytest.raises(QuotaExceededError, match="quota 'small'"):
        after.session().producer("q").send("c")
    assert [row["name"] for row in after.admin().list_quotas()] == ["small"]
    assert after.admin().query_quota("small")["messages"] == 2


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ClusterRig]:
    with ClusterRig(tmp_path) as made:
        yield made


def quotas_at(rig: ClusterRig, broker: str) -> dict[str, Any]:
    return {row["name"]: row["attributes"]["MessagesMaximum"] for row in rig.connect(broker).admin().list_quotas()}


def test_quotas_are_the_same_on_every_broker_and_each_has_all_of_it(rig: ClusterRig) -> None:  # W-08
    name, admin = rig.name(), rig.connect("b1").admin()
    rig.connect("b2").admin().create_quota("small", MessagesMaximum=2)
    assert [quotas_at(rig, broker) for broker in ("b1", "b2", "b3")] == [{"small": 2}] * 3
    admin.create_destination("queue", name, quota="small")
    for home in ("b1", "b2"):
        session = rig.connect(home, SendTimeout=5).session()
        producer = session.producer(name)
        producer.send("a"), producer.send("b")
        with pytest.raises(QuotaExceededError, match="MessagesMaximum=2"):
            producer.send("c")
    row = admin.query_quota("small")
    assert (row["messages"], row["refused"], row["users"]) == (4, 2, [f"queue {name}"])
    assert sorted((pool["broker"], pool["messages"]) for pool in row["pools"]) == [("b1", 2), ("b2", 2), ("b3", 0)]
    admin.update_quota("small", MessagesMaximum=3)
    assert [quotas_at(rig, broker) for broker in ("b1", "b2", "b3")] == [{"small": 3}] * 3
    rig.connect("b2", SendTimeout=5).session().producer(name).send("c")
    with pytest.raises(ConfigError, match="exists already"):
        rig.connect("b3").admin().create_quota("small")


def test_a_quota_that_any_broker_uses_is_not_destroyed(rig: ClusterRig) -> None:
    here, there, admin = rig.name(), rig.name(), rig.connect("b1").admin()
    admin.create_quota("small", MessagesMaximum=2)
    rig.connect("b2").admin().create_destination("queue", there, quota="small", isLocalOnly=True)
    with pytest.raises(IllegalStateError, match=f"in use by queue {there}"):
        admin.destroy_quota("small")
    rig.connect("b2").admin().destroy_destination("queue", there)
    admin.create_destination("queue", here, quota="small")
    with pytest.raises(IllegalStateError, match=f"in use by queue {here}"):
        rig.connect("b3").admin().destroy_quota("small")
    admin.update_destination("queue", here, quota="")
    rig.connect("b3").admin().destroy_quota("small")
    assert [quotas_at(rig, broker) for broker in ("b1", "b2", "b3")] == [{}] * 3
    with pytest.raises(ConfigError, match="there is no quota 'small'"):
        admin.update_destination("queue", here, quota="small")


def test_a_broker_that_was_down_learns_what_changed_meanwhile(rig: ClusterRig) -> None:
    name, admin = rig.name(), rig.connect("b1").admin()
    for quota in ("small", "gone"):
        admin.create_quota(quota, MessagesMaximum=2)
    admin.create_destination("queue", name, quota="small")
    rig.connect("b2").session().producer(name).send_many("ab")
    rig.kill("b2")
    admin.update_quota("small", MessagesMaximum=1)
    admin.create_quota("new", MessagesMaximum=3)
    admin.destroy_quota("gone")
    broker = rig.start("b2")
    until(broker.cluster.clustering.opened.is_set)
    until(lambda: quotas_at(rig, "b2") == {"small": 1, "new": 3})
    connection = rig.connect("b2", SendTimeout=5)
    with pytest.raises(QuotaExceededError, match="MessagesMaximum=1"):
        connection.session().producer(name).send("c")
    until(lambda: len(connection.admin().query_quota("small")["pools"]) == 3)
    (row,) = [pool for pool in connection.admin().query_quota("small")["pools"] if pool["broker"] == "b2"]
    assert row["messages"] == 2
