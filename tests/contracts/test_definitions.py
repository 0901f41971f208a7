"""Definitions: exported from one broker, shown as a plan and imported into another."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from raybroker.errors import ConfigError, InvalidDestinationError, InvalidSelectorError
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.conftest import MakeBroker
from tests.contracts.handles import WAIT_S, until

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
    assert done(imported) == done(planned) == [
        "create quota small", "create template t", "create policy p", "create queue dead", "update queue mq.sys.dmq",
        "create queue orders", "create topic prices", "create subscription audit of client me",
        "update properties broker",
    ]  # fmt: skip
    assert other.export_definitions() == exported
    assert done(other.import_definitions(exported)) == []
    assert done(other.import_definitions(HEAD)) == []
    assert len(other.import_definitions(HEAD)["left"]) == 8
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
    ):  # fmt: skip
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
        ("create", "new", "done"), ("destroy", "audit of client me", "failed"), ("destroy", "old", "not done"),
    ]  # fmt: skip
    assert "in use; close its consumers first" in report["steps"][1]["reason"]
    assert not report["complete"]
    consumer.close()
    assert done(admin.import_definitions({**HEAD, "queues": {"new": {}}, "topics": {"prices": {}}}, prune=True)) == [
        "destroy subscription audit of client me", "destroy queue old",
    ]  # fmt: skip


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
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=text):
            admin.import_definitions(wrong, dry_run=True)


def some(random_: random.Random) -> dict[str, Any]:
    """Definitions with whatever may stand in each other's way."""
    names = ["a", "b", "c", "d"]
    random_.shuffle(names)
    quotas = {name: {"MessagesMaximum": random_.choice([50, 60, -1])} for name in random_.sample("xyz", 2)}
    templates = {
        name: {"maxNumMsgs": random_.choice([3, 4]), "quota": random_.choice([*quotas, ""]),
               "expirationPolicy": random_.choice(["Default", "Discard"])}
        for name in random_.sample("tuv", 2)
    }  # fmt: skip
    queues: dict[str, Any] = {}
    for place, name in enumerate(names[: random_.randrange(5)]):
        queues[name] = {"maxNumMsgs": random_.choice([-1, 20, 30]), "quota": random_.choice([*quotas, ""])}
        if random_.random() < 0.7 and place:
            queues[name]["errorDestination"] = names[random_.randrange(place)]
        if random_.random() < 0.5:
            queues[name]["messagesHigh"], queues[name]["messagesLow"] = 15, 5
    topics = {name: {"useDMQ": random_.random() < 0.5} for name in random_.sample(names, 2)}
    return {
        **HEAD, "quotas": quotas, "templates": templates, "queues": queues, "topics": topics,
        "policies": {name: {"pattern": random_.choice([">", "a"]), "operator": random_.random() < 0.5,
                            "attributes": {"redeliveryLimit": random_.randrange(3)}}
                     for name in random_.sample("pqr", 2)},
        "subscriptions": [{"name": name, "topic": random_.choice([*topics])} for name in random_.sample("st", 1)],
        "properties": {"imq.log.level": random_.choice(["INFO", "ERROR"])},
    }  # fmt: skip


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
        assert done(second.import_definitions({**exported, "queues": {
            **exported["queues"], "more": {}}})) == ["create queue more"]  # fmt: skip
        rig.connect("b3").session().producer("more").send("x")
        assert rig.connect("b3").session().receive("more", timeout=WAIT_S).body == "x"
        done(second.import_definitions(HEAD, prune=True))
        until(lambda: rig.connect("b3").admin().export_definitions() == HEAD)
        assert done(first.import_definitions(exported)) != []
        for broker in ("b1", "b2", "b3"):
            found = rig.connect(broker).admin()
            until(lambda found=found: {**found.export_definitions(), "queues": 0} == {**exported, "queues": 0})
