"""Definitions: exported from one broker, shown as a plan and imported into another."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from raybroker.errors import ConfigError, InvalidDestinationError, InvalidSelectorError, SecurityError
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.conftest import MakeBroker
from tests.contracts.handles import WAIT_S, until
from tests.contracts.test_services import Outside

HEAD = {"raybroker": {"definitions": 1}}


def fill(admin: Any) -> None:
    admin.create_quota("small", MessagesMaximum=10)
    admin.create_template("t", maxNumMsgs=5, quota="small")
    admin.create_policy("p", "orders>", operator=True, redeliveryLimit=3)
    admin.create_destination("queue", "orders", template="t", errorDestination="dead")
    admin.create_destination("queue", "dead", consumerFlowLimit=3)
    admin.create_destination("topic", "prices", maxNumMsgs=7)
    admin.create_subscription("audit", "prices", client_id="me", selector=" price > 5 ")
    admin.update_destination("queue", "mq.sys.dmq", maxNumMsgs=50)
    admin.update_broker({"imq.log.level": "WARNING"})
    admin.pause_destination("queue", "dead", "consumers")


def done(report: Any) -> list[str]:
    assert report["complete"], report
    return [f"{row['action']} {row['kind']} {row['name']}" for row in report["steps"]]


@pytest.mark.parametrize("make_broker", ["memory", "aio", "sockets"], indirect=True)
def test_what_was_exported_is_imported_elsewhere_and_changes_nothing_at_home(make_broker: MakeBroker) -> None:
    first, second = make_broker().connect(), make_broker().connect()
    fill(first.admin())
    first.session().producer("auto").send("x")
    exported = first.admin().export_definitions()
    for prune in (False, True):
        assert done(first.admin().import_definitions(exported, prune=prune)) == []
    other = second.admin()
    planned = other.import_definitions(exported, dry_run=True)
    assert other.export_definitions() == HEAD
    imported = other.import_definitions(exported)
    assert (
        done(imported)
        == done(planned)
        == [
            "create quota small",
            "create template t",
            "create policy p",
            "create queue dead",
            "update queue mq.sys.dmq",
            "create queue orders",
            "create topic prices",
            "create subscription audit of client me",
            "create pause queue dead consumers",
            "update properties broker",
        ]
    )
    assert other.export_definitions() == exported
    assert done(other.import_definitions(exported)) == []
    assert done(other.import_definitions(HEAD)) == []
    assert len(other.import_definitions(HEAD)["left"]) == 10
    done(other.import_definitions(HEAD, prune=True))
    assert other.export_definitions() == HEAD
    assert [row["name"] for row in other.list_destinations()] == ["mq.sys.dmq"]


@pytest.mark.parametrize("make_broker", ["memory"], indirect=True)
def test_messages_of_a_subscription_that_was_made_beforehand_wait_for_it(make_broker: MakeBroker) -> None:
    broker = make_broker()
    connection = broker.connect(client_id="me")
    admin = connection.admin()
    admin.create_subscription("audit", "prices", client_id="me", selector="price > 5")
    session = connection.session()
    producer = session.producer(session.topic("prices"))
    producer.send("low", properties={"price": 1})
    producer.send("high", properties={"price": 9})
    (row,) = admin.list_subscriptions("prices")
    assert (row["durable"], row["active"], row["messages"]) == (True, False, 1)
    for call, error, text in (
        (lambda: admin.create_subscription("audit", "prices", client_id="me"), InvalidDestinationError, "exists alr"),
        (lambda: admin.create_subscription("", "prices"), InvalidDestinationError, "1 to 255 printable"),
        (lambda: admin.create_subscription("x", "prices", selector="price >"), InvalidSelectorError, ""),
    ):
        with pytest.raises(error, match=text):
            call()


@pytest.mark.parametrize("make_broker", ["memory"], indirect=True)
def test_a_step_that_fails_is_named_and_what_was_done_stays(make_broker: MakeBroker) -> None:
    connection = make_broker().connect(client_id="me")
    admin = connection.admin()
    admin.create_destination("topic", "prices")
    topic = connection.session().topic("prices")
    consumer = connection.session().durable_consumer(topic, "audit")
    admin.create_destination("queue", "old")
    report = admin.import_definitions({**HEAD, "queues": {"new": {}}, "topics": {"prices": {}}}, prune=True)
    rows = [(row["action"], row["name"], row["state"]) for row in report["steps"]]
    assert rows == [
        ("create", "new", "done"),
        ("destroy", "audit of client me", "failed"),
        ("destroy", "old", "not done"),
    ]
    assert "in use; close its consumers first" in report["steps"][1]["reason"]
    assert not report["complete"]
    consumer.close()
    assert done(admin.import_definitions({**HEAD, "queues": {"new": {}}, "topics": {"prices": {}}}, prune=True)) == [
        "destroy subscription audit of client me",
        "destroy queue old",
    ]


@pytest.mark.parametrize("make_broker", ["memory"], indirect=True)
def test_what_cannot_be_done_is_refused_whole(make_broker: MakeBroker) -> None:
    connection = make_broker().connect()
    admin = connection.admin()
    admin.create_destination("queue", "keys", destinationKeys="JMSPriority")
    connection.session().producer("auto").send("x")
    report = admin.import_definitions({**HEAD, "queues": {"auto": {}, "keys": {}, "new": {}}})
    states = {row["name"]: row["state"] for row in report["steps"]}
    assert (states, report["complete"]) == ({"auto": "blocked", "keys": "blocked", "new": "not done"}, False)
    assert "new" not in [row["name"] for row in admin.list_destinations()]
    for wrong, text in (
        ({}, "these are no definitions"),
        ({"raybroker": {"definitions": 99}}, "version 99; this release reads up to 1: take a newer"),
        ({**HEAD, "queues": {"a": {"nope": 1}}}, "queues, a: 'nope' is not a destination attribute"),
        ({**HEAD, "policies": {"p": {"pattern": "a*", "attributes": {"useDMQ": True}}}}, "whole segments"),
        ({**HEAD, "queues": {"a": {"errorDestination": "b"}, "b": {"errorDestination": "a"}}}, "circle"),
    ):
        with pytest.raises(ConfigError, match=text):
            admin.import_definitions(wrong, dry_run=True)


def some(random_: random.Random) -> dict[str, Any]:
    """Definitions with whatever may stand in each other's way."""
    names = ["a", "b", "c", "d"]
    random_.shuffle(names)
    quotas = {name: {"MessagesMaximum": random_.choice([50, 60, -1])} for name in random_.sample("xyz", 2)}
    templates = {
        name: {
            "maxNumMsgs": random_.choice([3, 4]),
            "quota": random_.choice([*quotas, ""]),
            "expirationPolicy": random_.choice(["Default", "Discard"]),
        }
        for name in random_.sample("tuv", 2)
    }
    queues: dict[str, Any] = {}
    for place, name in enumerate(names[: random_.randrange(5)]):
        queues[name] = {"maxNumMsgs": random_.choice([-1, 20, 30]), "quota": random_.choice([*quotas, ""])}
        if random_.random() < 0.7 and place:
            queues[name]["errorDestination"] = names[random_.randrange(place)]
        if random_.random() < 0.5:
            queues[name]["messagesHigh"], queues[name]["messagesLow"] = 15, 5
    topics = {name: {"useDMQ": random_.random() < 0.5} for name in random_.sample(names, 2)}
    return {
        **HEAD,
        "quotas": quotas,
        "templates": templates,
        "queues": queues,
        "topics": topics,
        "policies": {
            name: {
                "pattern": random_.choice([">", "a"]),
                "operator": random_.random() < 0.5,
                "attributes": {"redeliveryLimit": random_.randrange(3)},
            }
            for name in random_.sample("pqr", 2)
        },
        "subscriptions": [{"name": name, "topic": random_.choice([*topics])} for name in random_.sample("st", 1)],
        "properties": {"imq.log.level": random_.choice(["INFO", "ERROR"])},
    }


@pytest.mark.parametrize("make_broker", ["memory"], indirect=True)
@pytest.mark.parametrize("seed", range(3))
def test_a_real_broker_gets_from_any_definitions_to_any_others(make_broker: MakeBroker, seed: int) -> None:
    random_, admin = random.Random(seed), make_broker().connect().admin()
    for _ in range(12):
        wanted = some(random_)
        planned = admin.import_definitions(wanted, dry_run=True, prune=True)
        report = admin.import_definitions(wanted, prune=True)
        assert done(report) == done(planned)
        assert done(admin.import_definitions(wanted, prune=True)) == []
        exported = admin.export_definitions()
        assert done(admin.import_definitions(exported, prune=True)) == []
        assert sorted(exported.get("queues", {})) == sorted(wanted["queues"])


def test_an_import_goes_into_the_record_of_the_cluster_and_to_all_brokers(tmp_path: Path) -> None:
    with ClusterRig(tmp_path) as rig:
        first, second = rig.connect("b1").admin(), rig.connect("b2").admin()
        fill(first)
        first.create_forwarding("agent", "orders", "elsewhere/orders", windowSize=5)
        exported = first.export_definitions()
        assert exported["agents"] == {"agent": {"queue": "orders", "to": "elsewhere/orders", "windowSize": 5}}
        assert done(second.import_definitions({**exported, "queues": {**exported["queues"], "more": {}}})) == [
            "create queue more"
        ]
        rig.connect("b3").session().producer("more").send("x")
        assert rig.connect("b3").session().receive("more", timeout=WAIT_S).body == "x"
        done(second.import_definitions(HEAD, prune=True))
        until(lambda: rig.connect("b3").admin().export_definitions() == HEAD)
        assert done(first.import_definitions(exported)) != []
        for broker in ("b1", "b2", "b3"):
            found = rig.connect(broker).admin()
            until(lambda found=found: {**found.export_definitions(), "queues": 0} == {**exported, "queues": 0})


def test_what_one_broker_has_alone_is_exported_and_comes_back_there(tmp_path: Path) -> None:
    with ClusterRig(tmp_path) as rig:
        first, second = rig.connect("b1").admin(), rig.connect("b2").admin()
        first.update_broker({"imq.log.level": "ERROR"})
        first.update_broker({"imq.message.expiration.interval": 7}, broker="b2")
        first.create_destination("queue", "orders")
        first.pause_destination("queue", "orders", "consumers")
        second.pause_destination("queue", "orders", "producers", until_ms=1 << 50)
        until(lambda: second.export_definitions() == first.export_definitions())
        exported = second.export_definitions()
        assert exported == {
            **HEAD,
            "properties": {"imq.log.level": "ERROR"},
            "brokers": {"b2": {"imq.message.expiration.interval": 7}},
            "queues": {"orders": {}},
            "pauses": [{"type": "queue", "name": "orders", "which": "consumers"}],
        }
        assert done(first.import_definitions(exported, prune=True)) == []
        assert done(first.import_definitions(HEAD, prune=True)) == [
            "update properties broker",
            "update properties b2",
            "destroy queue orders",
        ]
        assert first.export_definitions() == HEAD
        assert done(second.import_definitions(exported)) == [
            "create queue orders",
            "create pause queue orders consumers",
            "update properties broker",
            "update properties b2",
        ]
        until(lambda: first.export_definitions() == exported)
        rig.kill("b2")
        until(lambda: [row["state"] for row in first.list_brokers() if row["broker"] == "b2"] == ["DOWN"])
        assert first.export_definitions()["raybroker"] == {"definitions": 1, "missing": ["b2"]}
        report = first.import_definitions({**exported, "queues": {"orders": {}, "new": {}}}, keep_going=True)
        assert [(row["name"], row["state"]) for row in report["steps"]] == [("new", "done"), ("b2", "blocked")]
        assert not report["complete"]


def test_users_are_exported_without_passwords_and_can_log_in_elsewhere(tmp_path: Path) -> None:
    with ExitStack() as opened:
        (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
        home, other = Outside(tmp_path / "a", opened), Outside(tmp_path / "b", opened)
        home.users.update("bob", active=False)
        asked = home.connect("root", "admin").admin()
        assert "users" not in asked.export_definitions()
        exported = asked.export_definitions(users=True)
        assert set(exported["users"]) == {"ann", "bob", "stranger", "root"}
        assert exported["users"]["bob"] == {"verifier": home.users.users()["bob"].verifier, "active": False}
        assert "secret" not in str(exported)
        for name in ("ann", "bob", "stranger"):
            other.users.delete(name)
        with pytest.raises(SecurityError):
            other.connect("ann")
        with pytest.raises(ConfigError, match="import them with users"):
            other.admin.import_definitions(exported)
        other.users.add("extra", other.users.users()["root"])
        planned = other.admin.import_definitions(exported, users=True, prune=True, dry_run=True)
        assert "extra" in other.users.users()
        report = other.admin.import_definitions(exported, users=True, prune=True)
        assert (
            done(planned)
            == done(report)
            == [
                "create user ann",
                "create user bob",
                "create user stranger",
                "destroy user extra",
            ]
        )
        assert "SCRAM" not in str(report)
        assert done(other.admin.import_definitions(exported, users=True, prune=True)) == []
        assert other.admin.export_definitions(users=True) == exported
        other.connect("ann").session().producer("q").send("x")
        with pytest.raises(SecurityError):
            other.connect("bob")


@pytest.mark.parametrize("make_broker", ["memory"], indirect=True)
def test_users_of_a_broker_that_has_none_are_refused(make_broker: MakeBroker) -> None:
    admin = make_broker().connect().admin()
    with pytest.raises(ConfigError, match="has no connection services, and so no users"):
        admin.export_definitions(users=True)


def test_users_in_ldap_are_refused(tmp_path: Path) -> None:
    with ExitStack() as opened:
        ldap = {
            "imq.authentication.type": "digest,basic",
            "imq.authentication.basic.user_repository": "ldap",
            "imq.user_repository.ldap.server": "localhost:1",
            "imq.user_repository.ldap.base": "dc=x",
        }
        outside = Outside(tmp_path, opened, **ldap)
        users = {"ann": {"verifier": outside.users.users()["ann"].verifier}}
        for call in (
            lambda: outside.admin.export_definitions(users=True),
            lambda: outside.admin.import_definitions({**HEAD, "users": users}, users=True),
        ):
            with pytest.raises(ConfigError, match="has its users in LDAP"):
                call()
        assert outside.admin.export_definitions() == HEAD
