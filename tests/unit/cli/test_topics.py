"""Topics, subscriptions, templates and the options of send and receive, from the command line."""

from __future__ import annotations

from typing import Any

import pytest

import raybroker as rb
from raybroker.cli import connecting
from tests.unit.cli.conftest import Kept


@pytest.fixture
def billing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A loopback with a client id, and a durable subscription that nobody uses with two messages."""
    with rb.loopback(client_id="billing") as connection:
        monkeypatch.setattr(connecting, "connect", Kept(connection).connect)
        session = connection.session()
        topic = session.topic("prices")
        session.durable_consumer(topic, "audit", selector="price > 5").close()
        producer = session.producer(topic)
        for price in (1, 7, 8):
            producer.send("x", properties={"price": price})
        producer.close()
        yield connection


def test_subscriptions_are_listed(raybroker: Any, billing: Any) -> None:
    header, line = raybroker.output("list", "dur", "-d", "prices").splitlines()
    assert header.split()[:5] == ["NAME", "CLIENT_ID", "TOPIC", "STATE", "MESSAGES"]
    assert line.split()[:5] == ["audit", "billing", "prices", "INACTIVE", "2"]
    assert raybroker.json("list", "dur")[0]["selector"] == "price > 5"
    consumer = billing.session().durable_consumer(billing.session().topic("prices"), "audit", selector="price > 5")
    assert raybroker.output("list", "dur").splitlines()[1].split()[3] == "ACTIVE"
    assert raybroker("destroy", "dur", "-f", "-n", "audit", "-c", "billing").exit_code == 1
    consumer.close()


def test_subscriptions_are_purged_and_destroyed(raybroker: Any, billing: Any) -> None:
    assert raybroker("purge", "dur", "-f", "-n", "audit").exit_code == 1
    assert raybroker.output("purge", "dur", "-f", "-n", "audit", "-c", "billing") == "purged subscription audit\n"
    assert raybroker.json("list", "dur")[0]["messages"] == 0
    assert raybroker("destroy", "dur", "-f", "-n", "audit", "-c", "billing", "-d", "other").exit_code == 1
    out = raybroker.output("destroy", "dur", "-f", "-n", "audit", "-c", "billing", "-d", "prices", "-f")
    assert out == "destroyed subscription audit\n"
    assert raybroker.json("list", "dur") == []


def test_a_topic_and_a_queue_may_share_a_name(raybroker: Any, broker: Any) -> None:
    for letter, word in (("q", "queue"), ("t", "topic")):
        assert raybroker.output("create", "dst", "-t", letter, "-n", "a") == f"created {word} a\n"
    raybroker.output("update", "dst", "-t", "t", "-n", "a", "-o", "maxNumMsgs=3")
    assert raybroker.json("query", "dst", "-t", "t", "-n", "a")["attributes"]["maxNumMsgs"] == 3
    assert raybroker.json("query", "dst", "-t", "q", "-n", "a")["attributes"]["maxNumMsgs"] == -1
    raybroker.output("destroy", "dst", "-t", "q", "-n", "a", "-f")
    assert [row["type"] for row in raybroker.json("list", "dst") if row["name"] == "a"] == ["topic"]


def test_a_message_to_a_topic_reaches_its_subscribers(raybroker: Any, broker: Any) -> None:
    session = broker.session()
    consumer = session.consumer(session.topic("news"))
    assert raybroker.output("send", "news", "hello", "-t", "t") == "sent 1 message to news\n"
    assert consumer.receive(timeout=10).body == "hello"
    assert raybroker("receive", "news", "-t", "t", "--timeout", "0.05").exit_code == 1


def test_send_gives_messages_a_priority_and_an_end(raybroker: Any, broker: Any) -> None:
    raybroker.output("send", "a", "low", "--priority", "1", "--ttl", "1h")
    raybroker.output("send", "a", "high", "--priority", "9")
    first, second = (raybroker.json("receive", "a") for _ in range(2))
    assert [(row["body"], row["priority"]) for row in (first, second)] == [("high", 9), ("low", 1)]
    assert (first["expiration"], second["expiration"] - second["timestamp"]) == (0, 3_600_000)


def test_a_delayed_message_is_there_and_does_not_come_yet(raybroker: Any, broker: Any) -> None:
    raybroker.output("send", "a", "later", "--delay", "1h")
    assert raybroker("receive", "a", "--timeout", "0.05").exit_code == 1
    assert [row["state"] for row in raybroker.json("list", "msg", "-n", "a")] == ["delayed"]


def test_receive_takes_what_the_selector_wants(raybroker: Any, broker: Any) -> None:
    for n in range(4):
        raybroker.output("send", "a", f"m{n}", "-p", f"n={n}")
    assert raybroker.output("receive", "a", "--selector", "n = 2", "--timeout", "10") == "m2\n"
    assert raybroker.output("receive", "a", "--count", "3", "--timeout", "10").split() == ["m0", "m1", "m3"]


def test_browse_shows_all_and_takes_nothing(raybroker: Any, broker: Any) -> None:
    broker.session().producer("a").send_many(str(n) for n in range(5))
    assert raybroker.output("receive", "a", "--browse").split() == ["0", "1", "2", "3", "4"]
    assert raybroker.output("receive", "a", "--browse", "--count", "2").split() == ["0", "1"]
    result = raybroker("receive", "a", "--browse", "--selector", "n = 1")
    assert (result.exit_code, result.stderr) == (1, "raybroker: no message is in a\n")
    assert raybroker.json("query", "dst", "-n", "a")["messages"] == 5


def test_templates_supply_what_a_destination_does_not_say(raybroker: Any, broker: Any) -> None:  # W-131
    out = raybroker.output("create", "tpl", "-n", "small", "-o", "maxNumMsgs=5", "-o", "useDMQ=false")
    assert out == "created template small\n"
    raybroker.output("create", "dst", "-n", "a", "-o", "template=small", "-o", "maxBytesPerMsg=1k")
    raybroker.output("create", "dst", "-n", "b", "-o", "template=small", "-o", "maxNumMsgs=7")
    out = raybroker.output("update", "tpl", "-n", "small", "-o", "maxNumMsgs=6")
    assert out == "updated template small and 1 destination\n"
    found = {name: raybroker.json("query", "dst", "-n", name)["attributes"] for name in "ab"}
    assert (found["a"]["maxNumMsgs"], found["a"]["useDMQ"], found["a"]["maxBytesPerMsg"]) == (6, False, 1024)
    assert found["b"]["maxNumMsgs"] == 7
    assert raybroker.output("list", "tpl").splitlines()[1].split() == ["small", "maxNumMsgs=6", "useDMQ=false"]
    assert raybroker.output("destroy", "tpl", "-n", "small", "-f") == "destroyed template small\n"
    assert raybroker.json("list", "tpl") == []


def test_templates_of_a_loopback_with_a_store_are_kept(tmp_path: Any) -> None:
    with rb.loopback(tmp_path / "store") as connection:
        connection.admin().create_template("small", maxNumMsgs=5)
    with rb.loopback(tmp_path / "store") as connection:
        assert connection.admin().list_templates() == [{"name": "small", "attributes": {"maxNumMsgs": 5}}]
