"""Units of work through the handles, over one broker and over several (W-94 … W-98)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raybroker.errors import ConfigError, MessageFormatError
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import DMQ, Broker, take, until

SINGLE = {"unitOfWorkHandlingPolicy": "SingleMessageDelivery"}


def part(unit: str, number: int, end: bool = False, **more: Any) -> dict[str, Any]:
    return {
        "JMS_BEA_UnitOfWork": unit,
        "JMS_BEA_UnitOfWorkSequenceNumber": number,
        "JMS_BEA_IsUnitOfWorkEnd": end,
        **more,
    }


def made(broker: Broker, kind: str = "queue", **attributes: Any) -> tuple[Any, str]:
    connection, name = broker.connect(), broker.name()
    connection.admin().create_destination(kind, name, **SINGLE, **attributes)
    return connection, name


def test_a_unit_is_received_as_one_message(broker: Broker) -> None:  # W-94, W-96
    connection, name = made(broker)
    session = connection.session()
    producer, consumer = session.producer(name), session.consumer(name)
    producer.send({"third": 3}, part("U", 3, True), type="T3")
    producer.send("first", part("U", 1, colour="red"), correlation_id="c")
    assert consumer.receive(timeout=0.05) is None
    producer.send(b"second", part("U", 2, colour="red"))
    (message,) = take(consumer, 1)
    assert message.body == ["first", b"second", {"third": 3}]
    assert message.body_type == "object"
    assert message.properties == {"JMS_BEA_UnitOfWork": "U"}
    assert message.correlation_id == "c"
    assert [p.body for p in message.parts] == message.body
    assert [p.properties.get("colour") for p in message.parts] == ["red", "red", None]
    assert [p.type for p in message.parts] == [None, None, "T3"]
    assert len({p.id for p in message.parts} | {message.id}) == 4


def test_other_messages_have_no_parts(broker: Broker) -> None:
    connection, name = made(broker)
    session = connection.session()
    session.producer(name).send("x")
    assert take(session.consumer(name), 1)[0].parts == []


def test_pickled_and_compressed_parts_are_whole_again(broker: Broker) -> None:
    connection, name = made(broker)
    session = connection.session()
    producer = session.producer(name, serializer="pickle")
    producer.send({1, 2}, part("U", 1))
    producer.send("z" * 500, part("U", 2, True, JMS_SUN_COMPRESS=True))
    (message,) = take(session.consumer(name, serializer="pickle"), 1)
    assert message.body == [{1, 2}, "z" * 500]


def test_who_does_not_unpickle_does_not_unpickle_parts(broker: Broker) -> None:
    connection, name = made(broker)
    session = connection.session()
    session.producer(name, serializer="pickle").send({1, 2}, part("U", 1, True))
    (message,) = take(session.consumer(name), 1)
    with pytest.raises(MessageFormatError, match="pickle"):
        _ = message.body


def test_a_part_that_is_wrong_raises_at_its_producer(broker: Broker) -> None:  # W-98
    connection, name = made(broker)
    producer = connection.session().producer(name)
    producer.send("a", part("U", 1))
    with pytest.raises(MessageFormatError, match="message 1 is there already"):
        producer.send("again", part("U", 1))
    with pytest.raises(MessageFormatError, match="not in both"):
        producer.send("both", part("U", 2), unit_of_order="order")


def test_a_transaction_with_a_wrong_part_cannot_be_committed(broker: Broker) -> None:  # W-98
    connection, name = made(broker)
    session = connection.session(transacted=True)
    producer = session.producer(name)
    producer.send("a", part("U", 1))
    producer.send("again", part("U", 1))
    with pytest.raises(MessageFormatError, match="there already"):
        session.commit()
    producer.send("a", part("U", 1, True))
    session.commit()
    assert take(connection.session().consumer(name), 1)[0].body == ["a"]


def test_incomplete_units_are_seen_by_administrators(broker: Broker) -> None:  # W-97
    connection, name = made(broker)
    connection.session().producer(name).send("a", part("U", 1))
    admin = connection.admin()
    row = admin.query_destination("queue", name)
    assert (row["messages"], row["incomplete"]) == (1, 1)
    (shown,) = admin.browse_messages("queue", name)["messages"]
    assert (shown["state"], shown["body"]) == ("hidden", "a")


def test_a_unit_is_shown_as_the_list_of_its_bodies(broker: Broker) -> None:
    connection, name = made(broker)
    producer = connection.session().producer(name)
    producer.send_many(["a", "b"], properties=[part("U", 1), part("U", 2, True)])
    until(lambda: connection.admin().query_destination("queue", name)["incomplete"] == 0)
    (shown,) = connection.admin().browse_messages("queue", name)["messages"]
    assert (shown["state"], shown["body"]) == ("waiting", ["a", "b"])


def test_a_unit_that_fails_too_often_dies_as_one_message(broker: Broker) -> None:
    connection, name = made(broker, redeliveryLimit=0)
    session = connection.session(ack="client")
    session.producer(name).send("a", part(name, 1, True))
    take(session.consumer(name), 1)[0].fail()
    admin, mine = connection.admin(), f"RAYBROKER_ORIGIN = 'queue:{name}'"
    (dead,) = until(lambda: admin.browse_messages("queue", DMQ, selector=mine)["messages"])
    assert dead["body"] == ["a"]


def test_a_destination_cannot_have_a_default_unit_of_order_as_well(broker: Broker) -> None:  # W-94
    with pytest.raises(ConfigError, match="exclude each other"):
        broker.connect().admin().create_destination("queue", broker.name(), unitOfOrder=True, **SINGLE)


# ---- over several brokers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize("routing", ["Hash", "PathService"])
def test_parts_of_one_unit_meet_on_one_broker(tmp_path: Path, distributed: bool, routing: str) -> None:  # W-94
    with ClusterRig(tmp_path, 3, raybroker__store__segment_bytes="1m") as rig:
        name = rig.name()
        rig.connect("b1").admin().create_destination(
            "queue", name, distributed=distributed, unitOfOrderRouting=routing, **SINGLE
        )
        producers = [rig.connect(home).session().producer(name) for home in ("b1", "b2", "b3")]
        units = [f"unit{n}" for n in range(12)]
        for number in range(1, 4):
            for at, unit in enumerate(units):
                producers[(at + number) % 3].send(f"{unit}-{number}", part(unit, number, number == 3))
        producers[0].send_many(
            [f"many{n}-{k}" for k in (2, 1) for n in range(6)],
            properties=[part(f"many{n}", k, k == 2) for k in (2, 1) for n in range(6)],
        )
        producers[0].send_many(["plain"], properties=[{"x": 1}])
        rows = rig.connect("b1").admin().query_destination("queue", name)
        assert rows["incomplete"] == 0
        assert rows["messages"] == 19
        assert sum(row["messages"] > 0 for row in rows["members"]) > 1
        consumers = [rig.connect(home).session().consumer(name) for home in ("b1", "b2", "b3")]
        found: list[Any] = []
        until(lambda: (found.extend(_all_of(consumers)), len(found) == 19)[1])
        wanted = [[f"{unit}-{n}" for n in (1, 2, 3)] for unit in units]
        wanted += [[f"many{n}-1", f"many{n}-2"] for n in range(6)]
        assert sorted(map(str, found)) == sorted(map(str, [*wanted, "plain"]))


def _all_of(consumers: list[Any]) -> list[Any]:
    """Bodies of what has come."""
    return [message.body for consumer in consumers for message in iter(consumer.receive_nowait, None)]
