"""Properties that change while a broker runs: what they do at once, for how long, and on which brokers (A-17)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import ConfigError, InvalidDestinationError, MessageTooLargeError, ResourceAllocationError
from raybroker.model.errors import BrokerGoneError
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.conftest import TWO_FACES, MakeBroker
from tests.contracts.handles import until

LEVEL, SIZE, CREATE = "imq.log.level", "imq.message.max_size", "imq.autocreate.queue"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ClusterRig]:
    with ClusterRig(tmp_path) as made:
        yield made


# ---- one broker ------------------------------------------------------------------------------------------------------


def test_a_change_is_seen_by_the_next_message_and_the_next_destination(make_broker: MakeBroker) -> None:
    connection = make_broker().connect()
    admin = connection.admin()
    name = "known"
    admin.create_destination("queue", name)
    producer = connection.session().producer(name)
    producer.send(b"x" * 2048)
    found = admin.update_broker({SIZE: "1k", CREATE: "false"})
    assert found == {"brokers": {"loopback": {"changed": {SIZE: 1024, CREATE: False}, "unreached": []}}, "down": []}
    with pytest.raises(MessageTooLargeError, match=r"imq\.message\.max_size=1024"):
        producer.send(b"x" * 2048)
    producer.send(b"x" * 1024)
    with pytest.raises(InvalidDestinationError, match=r"imq\.autocreate\.queue is false"):
        connection.session().producer("unknown")
    admin.update_broker({SIZE: -1, CREATE: True}, "loopback")
    producer.send(b"x" * 2048)
    connection.session().producer("unknown").send(b"x")
    assert admin.query_broker()["changed"] == {SIZE: -1}


def test_what_queues_and_topics_are_made_with_changes(make_broker: MakeBroker) -> None:
    connection = make_broker().connect()
    admin = connection.admin()
    active, backup = (f"imq.autocreate.queue.maxNum{kind}Consumers" for kind in ("Active", "Backup"))
    admin.update_broker({active: 2, backup: 1, "imq.autocreate.destination.useDMQ": False})
    connection.session().producer("q").send(b"x")
    attributes = admin.query_destination("queue", "q")["attributes"]
    assert (attributes["maxNumActiveConsumers"], attributes["maxNumBackupConsumers"]) == (2, 1)
    assert attributes["useDMQ"] is False
    admin.update_broker({"imq.autocreate.topic": False})
    with pytest.raises(InvalidDestinationError, match=r"imq\.autocreate\.topic is false"):
        connection.session().producer("topic:t")


def test_what_becomes_of_dead_messages_changes(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture
) -> None:  # D-25
    connection = make_broker().connect()
    admin, name = connection.admin(), "dies-with-its-body"

    def dies(body: str) -> None:
        connection.session().producer(name).send(body, ttl_ms=1)
        found = admin.query_destination("queue", "mq.sys.dmq")["messages"]
        assert until(lambda: admin.query_destination("queue", "mq.sys.dmq")["messages"] > found)

    admin.update_broker({"imq.message.expiration.interval": 1})
    dies("whole")
    admin.update_broker({"imq.destination.DMQ.truncateBody": True, "imq.destination.logDeadMsgs": True})
    with caplog.at_level(logging.INFO):
        dies("cut")
        assert until(lambda: any(name in one.getMessage() for one in caplog.records))
    session = connection.session()
    assert [one.body for one in session.browser(session.queue("mq.sys.dmq"))] == ["whole", ""]


def test_limits_of_transactions_change_too(make_broker: MakeBroker) -> None:  # T-09
    connection = make_broker().connect()
    connection.admin().update_broker({"imq.transaction.producer.maxNumMsgs": 2})
    session = connection.session(transacted=True)
    producer = session.producer("q")
    for _ in range(3):
        producer.send(b"x")
    with pytest.raises(ResourceAllocationError, match=r"imq\.transaction\.producer\.maxNumMsgs"):
        session.commit()


def test_expired_messages_are_looked_for_as_often_as_it_says_now(make_broker: MakeBroker) -> None:  # B-09
    connection = make_broker(imq__message__expiration__interval=0).connect()
    admin = connection.admin()
    connection.session().producer("q").send(b"x", ttl_ms=50)
    admin.update_broker({"imq.message.expiration.interval": 1})
    assert until(lambda: admin.query_destination("queue", "q")["expired"] == 1)


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"imq.persist.store": "memory"}, "read when a broker starts"),
        ({LEVEL: "ERROR", SIZE: "all"}, "imq.message.max_size"),
        ({LEVEL: "ERROR", "imq.log.lvl": "x"}, "imq.log.lvl"),
    ],
)
@TWO_FACES
def test_nothing_is_changed_by_what_cannot_be(make_broker: MakeBroker, properties: Any, why: str) -> None:
    admin = make_broker().connect().admin()
    with pytest.raises(ConfigError, match=why):
        admin.update_broker(properties)
    with pytest.raises(BrokerGoneError):
        admin.update_broker({LEVEL: "ERROR"}, "b9")
    assert admin.query_broker()["changed"] == {}


def test_a_change_holds_after_a_restart_until_the_configuration_says_something_else(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with rb.loopback(store) as connection:
        connection.admin().create_template("t", maxNumMsgs=5)
        connection.admin().update_broker({SIZE: "1k"})
        connection.admin().create_template("u", maxNumMsgs=6)
    with rb.loopback(store) as connection:
        assert connection.admin().query_broker()["changed"] == {SIZE: 1024}
        assert len(connection.admin().list_templates()) == 2
        with pytest.raises(MessageTooLargeError):
            connection.session().producer("q").send(b"x" * 1025)
    with rb.loopback(store, properties={SIZE: "2k"}) as connection:
        assert connection.admin().query_broker()["changed"] == {}
        connection.session().producer("q").send(b"x" * 1025)


# ---- several brokers -------------------------------------------------------------------------------------------------


def test_one_broker_or_all_of_them_change(rig: ClusterRig) -> None:
    admin = rig.connect("b1").admin()
    assert set(admin.update_broker({LEVEL: "ERROR"}, "b2")["brokers"]) == {"b2"}
    assert [rig.brokers[name].config[LEVEL] for name in ("b1", "b2", "b3")] == ["INFO", "ERROR", "INFO"]
    found = admin.update_broker({LEVEL: "WARNING"})
    assert {name: row["changed"] for name, row in found["brokers"].items()} == {
        name: {LEVEL: "WARNING"} for name in ("b1", "b2", "b3")
    }
    assert found["down"] == []
    for broker in rig.brokers.values():
        assert broker.host._config.changed == {LEVEL: "WARNING"}


def test_the_port_of_a_port_mapper_is_of_one_broker(rig: ClusterRig) -> None:
    name = "imq.portmapper.port"
    admin = rig.connect("b1").admin()
    for value in (7777, "7777"):
        with pytest.raises(ConfigError, match=r"is of one broker, and b1, b2, b3 are up: name the one"):
            admin.update_broker({LEVEL: "ERROR", name: value})
    admin.update_broker({name: 7777}, "b2")
    assert [rig.brokers[broker].config[name] for broker in ("b1", "b2", "b3")] == [7676, 7777, 7676]
    for broker in ("b1", "b3"):
        admin.update_broker({name: 7777}, broker)
    exported = admin.export_definitions()
    assert exported["properties"] == {name: 7777}
    admin.update_broker({name: "0"})
    steps = admin.import_definitions(exported)["steps"]
    assert [(step["name"], step["state"]) for step in steps] == [("b1", "done"), ("b2", "done"), ("b3", "done")]
    assert {broker.config[name] for broker in rig.brokers.values()} == {7777}


def test_brokers_that_are_down_are_named_and_keep_what_they_had(rig: ClusterRig) -> None:
    rig.kill("b3")
    admin = rig.connect("b1").admin()
    assert until(lambda: admin.update_broker({LEVEL: "ERROR"})["down"] == ["b3"])
    with pytest.raises(BrokerGoneError, match="b3 is not up; up are b1, b2"):
        admin.update_broker({LEVEL: "ERROR"}, "b3")
    rig.kill("b2")
    rig.start("b2")
    rig.start("b3")
    assert [rig.brokers[name].config[LEVEL] for name in ("b1", "b2", "b3")] == ["ERROR", "ERROR", "INFO"]
    assert rig.brokers["b2"].host._config[LEVEL] == "ERROR"


def test_what_has_to_be_equal_changes_everywhere_and_brokers_still_join(rig: ClusterRig) -> None:  # K-18
    admin = rig.connect("b1").admin()
    with pytest.raises(ConfigError, match="the same on all brokers"):
        admin.update_broker({CREATE: False}, "b1")
    admin.update_broker({CREATE: False})
    rig.kill("b2")
    rig.start("b2")
    assert until(lambda: "b2" in rig.brokers["b1"].cluster.live() and "b1" in rig.brokers["b2"].cluster.live())
    with pytest.raises(InvalidDestinationError, match=r"imq\.autocreate\.queue is false"):
        rig.connect("b2").session().producer("unknown")


def test_one_that_missed_a_change_of_what_has_to_be_equal_is_refused_until_it_is_told(rig: ClusterRig) -> None:
    rig.kill("b3")
    admin = rig.connect("b1").admin()
    assert until(lambda: admin.update_broker({CREATE: False})["down"] == ["b3"])
    late = rig.start("b3")
    assert until(lambda: late.cluster.clustering.cluster_row().get("refusal"))
    assert "b3" not in rig.brokers["b1"].cluster.live()
    assert set(rig.connect("b3").admin().update_broker({CREATE: False}, "b3")["brokers"]) == {"b3"}
    assert until(lambda: "b3" in rig.brokers["b1"].cluster.live(), 20)
