"""Messages and templates in the hands of administrators: delete, move, export, import (W-129, W-131, W-58)."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.client.admin.admin import pages
from raybroker.errors import (
    ConfigError,
    InvalidDestinationError,
    InvalidSelectorError,
    MessageFormatError,
    ResourceAllocationError,
)
from tests.contracts.conftest import TWO_FACES, OneStore
from tests.contracts.handle_basics import held
from tests.contracts.handles import LoopbackBroker, bodies, create, nothing, state_of, take, until


def filled(broker: LoopbackBroker, connection: Any, count: int = 6, **attributes: Any) -> tuple[str, list[str]]:
    """A queue whose consumers are paused, with messages that have a property n; its name and their ids."""
    name = create(connection, broker.name(), **attributes)
    producer = connection.session().producer(name)
    ids = [producer.send(n, properties={"n": n}) for n in range(count)]
    connection.admin().pause_destination("queue", name, "consumers")
    return name, ids


# ---- delete and move (W-129) -----------------------------------------------------------------------------------------


def test_messages_are_deleted_by_selector_by_id_or_all(broker: LoopbackBroker) -> None:
    """W-129"""
    connection = broker.connect()
    name, ids = filled(broker, connection)
    admin = connection.admin()
    assert admin.delete_messages("queue", name, "n < 2") == 2
    assert admin.delete_messages("queue", name, ids=[ids[3], ids[0], "ID:0-1"]) == 1
    assert admin.delete_messages("queue", name, "n > 2", [ids[2], ids[4]]) == 1
    admin.resume_destination("queue", name)
    assert bodies(take(connection.session().consumer(name), 2)) == [2, 5]


def test_messages_move_with_their_ids_and_headers(broker: LoopbackBroker) -> None:
    """W-129: ID unchanged"""
    connection = broker.connect()
    name, ids = filled(broker, connection)
    target = create(connection, broker.name())
    assert connection.admin().move_messages("queue", name, target, selector="n >= 4") == 2
    found = take(connection.session().consumer(target), 2)
    assert [(m.id, m.body, m.properties, m.redelivered) for m in found] == [
        (ids[n], n, {"n": n}, False) for n in (4, 5)
    ]
    assert held(connection, name) == 4
    assert connection.admin().move_messages("queue", name, target) == 4
    assert held(connection, name) == 0


@pytest.mark.parametrize("way", ["move", "import", "move to a topic", "out of the dead message queue"])
def test_what_was_delivered_before_stays_redelivered_with_its_count(broker: LoopbackBroker, way: str) -> None:
    """W-129: whoever trusts the flag does not handle it twice unknowingly"""
    connection = broker.connect(client_id=broker.name())
    admin, session = connection.admin(), connection.session(ack="client")
    name, target = create(connection, broker.name()), broker.name()
    kind, dying = "topic" if way.endswith("topic") else "queue", way.startswith("out")
    create(connection, target, kind)
    session.producer(name).send_many(["tried", "fresh"])
    consumer = session.consumer(name, prefetch=1)
    for again in (True, False):
        (message,) = take(consumer, 1)
        assert message.body == "tried"
        message.fail() if again or not dying else message.reject("it is wrong")
    consumer.close()
    source = "mq.sys.dmq" if dying else name
    until(lambda: held(connection, source) == 1 + (not dying))
    admin.pause_destination("queue", name, "consumers")
    reader = session.durable_consumer(f"topic:{target}", "d") if kind == "topic" else session.consumer(target)
    if way == "import":
        admin.import_messages("queue", target, admin.export_messages("queue", source)["blocks"])
    else:
        admin.move_messages("queue", source, target, target_type=kind)
    found = [(m.body, m.redelivered, m.delivery_count) for m in take(reader, 1 + (not dying))]
    assert found == [("tried", True, 3), ("fresh", False, 1)][: 1 + (not dying)]


def test_what_a_consumer_holds_is_neither_moved_nor_deleted(broker: LoopbackBroker) -> None:
    """W-129: only what is visible or delayed"""
    connection = broker.connect()
    name, target = create(connection, broker.name()), create(connection, broker.name())
    session = connection.session(ack="client")
    session.producer(name).send_many(range(3))
    session.producer(name).send("later", delivery_delay_ms=60_000)
    (message,) = take(session.consumer(name, prefetch=1), 1)
    connection.admin().pause_destination("queue", name, "consumers")
    assert connection.admin().move_messages("queue", name, target, ids=[message.id]) == 0
    assert connection.admin().delete_messages("queue", name) == 3
    message.acknowledge()
    assert held(connection, name) == 0


def test_moving_to_a_topic_publishes(broker: LoopbackBroker) -> None:
    """W-129"""
    connection = broker.connect()
    name, _ = filled(broker, connection, 2)
    topic = create(connection, broker.name(), "topic")
    subscriber = connection.session().consumer(f"topic:{topic}")
    assert connection.admin().move_messages("queue", name, topic, "topic") == 2
    assert bodies(take(subscriber, 2)) == [0, 1]


def test_a_target_that_is_full_missing_or_the_source_moves_nothing(broker: LoopbackBroker) -> None:
    """W-129"""
    connection = broker.connect()
    name, _ = filled(broker, connection, 3)
    full = create(connection, broker.name(), maxNumMsgs=0)
    admin = connection.admin()
    with pytest.raises(ResourceAllocationError, match=full):
        admin.move_messages("queue", name, full)
    for target in (name, "absent"):
        with pytest.raises(InvalidDestinationError, match=target):
            admin.move_messages("queue", name, target)
    with pytest.raises(InvalidSelectorError, match="column"):
        admin.delete_messages("queue", name, "n = ")
    assert held(connection, name) == 3


def test_what_was_deleted_and_moved_stays_so_over_a_restart(store: OneStore) -> None:
    """W-129"""
    broker = store.open()
    connection = broker.connect()
    create(connection, "target")
    name, _ = filled(broker, connection)
    connection.admin().delete_messages("queue", name, "n < 2")
    connection.admin().move_messages("queue", name, "target", selector="n = 5")
    again = store.crash().connect()
    again.admin().resume_destination("queue", name)  # The pause holds over a restart too.
    assert bodies(take(again.session().consumer(name), 3)) == [2, 3, 4]
    assert bodies(take(again.session().consumer("target"), 1)) == [5]


# ---- export and import (W-129) ---------------------------------------------------------------------------------------


def test_exported_messages_can_be_imported_into_another_broker(broker: LoopbackBroker) -> None:
    """W-129: whole, in order, with their ids, and in pages"""
    connection = broker.connect()
    name = create(connection, broker.name())
    producer = connection.session().producer(name)
    ids = [producer.send("x" * 1000, properties={"n": n}, priority=n % 10) for n in range(20)]
    admin = connection.admin()
    asked: list[Any] = []

    def ask(start: Any) -> Any:
        asked.append(start)
        return admin.export_messages("queue", name, "n >= 5", start=start, max_bytes=4000)

    blocks = [block for page in pages(ask) for block in page["blocks"]]
    assert len(asked) > 2
    assert held(connection, name) == 20
    with LoopbackBroker() as other:
        there = other.connect()
        create(there, "imported")
        assert there.admin().import_messages("queue", "imported", blocks) == 15
        found = take(there.session().consumer("imported"), 15)
        assert sorted(m.id for m in found) == sorted(ids[5:])
        assert [m.priority for m in found] == sorted((n % 10 for n in range(5, 20)), reverse=True)
        assert {m.properties["n"] for m in found} == set(range(5, 20))


def test_what_is_no_export_or_does_not_fit_is_not_imported(broker: LoopbackBroker) -> None:
    """W-129: all or none"""
    connection = broker.connect()
    name, _ = filled(broker, connection, 3)
    small = create(connection, broker.name(), maxNumMsgs=2)
    blocks = connection.admin().export_messages("queue", name)["blocks"]
    with pytest.raises(ResourceAllocationError, match=small):
        connection.admin().import_messages("queue", small, blocks)
    for bad in (b"", b"rubbish", blocks[0][:-1], blocks[0] + b"x"):
        with pytest.raises(MessageFormatError, match="block 0"):
            connection.admin().import_messages("queue", small, [bad])
    assert held(connection, small) == 0


# ---- templates (W-131, W-58) -----------------------------------------------------------------------------------------


def test_a_template_supplies_what_a_destination_does_not_say(broker: LoopbackBroker) -> None:
    """W-131: a value of the destination's own wins"""
    connection = broker.connect()
    admin = connection.admin()
    admin.create_template("small", maxNumMsgs=5, consumerFlowLimit=7, maxNumActiveConsumers=2)
    queue = create(connection, broker.name(), template="small", consumerFlowLimit=9)
    topic = create(connection, broker.name(), "topic", template="small")
    attributes = state_of(connection, queue)["attributes"]
    assert [attributes[k] for k in ("maxNumMsgs", "consumerFlowLimit", "maxNumActiveConsumers")] == [5, 9, 2]
    assert attributes["template"] == "small"
    assert state_of(connection, topic, "topic")["attributes"]["maxNumMsgs"] == 5
    assert admin.list_templates() == [
        {"name": "small", "attributes": {"maxNumMsgs": 5, "consumerFlowLimit": 7, "maxNumActiveConsumers": 2}}
    ]


def test_changing_a_template_changes_who_follows_it(broker: LoopbackBroker) -> None:
    """W-58"""
    connection = broker.connect()
    admin = connection.admin()
    admin.create_template("small", maxNumMsgs=5)
    follows = create(connection, broker.name(), template="small")
    own = create(connection, broker.name(), template="small", maxNumMsgs=6)
    plain = create(connection, broker.name())
    assert admin.update_template("small", maxNumMsgs=50, redeliveryLimit=3) == 2
    limits = [state_of(connection, name)["attributes"]["maxNumMsgs"] for name in (follows, own, plain)]
    assert limits == [50, 6, -1]
    assert state_of(connection, own)["attributes"]["redeliveryLimit"] == 3
    admin.destroy_template("small")
    assert state_of(connection, follows)["attributes"]["maxNumMsgs"] == 50
    assert admin.list_templates() == []


def test_default_means_what_the_template_says(broker: LoopbackBroker) -> None:
    """W-58"""
    connection = broker.connect()
    connection.admin().create_template("logged", expirationPolicy="Log")
    name = create(connection, broker.name(), template="logged", expirationPolicy="Default")
    assert state_of(connection, name)["attributes"]["expirationPolicy"] == "Log"


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda a: a.create_template("a b", maxNumMsgs=1), "a b"),
        (lambda a: a.create_template("new", maxNumMsg=1), "maxNumMsgs"),
        (lambda a: a.create_template("new", maxNumMsgs=-5), "maxNumMsgs"),
        (lambda a: a.create_template("new", template="small"), "template"),
        (lambda a: a.create_template("small"), "exists already"),
        (lambda a: a.update_template("absent", maxNumMsgs=1), "'absent'.*small"),
        (lambda a: a.destroy_template("absent"), "'absent'"),
        (lambda a: a.create_destination("queue", "orders", template="absent"), "'absent'"),
    ],
)
@TWO_FACES
def test_a_bad_template_is_refused(broker: LoopbackBroker, call: Any, word: str) -> None:
    """W-131"""
    admin = broker.connect().admin()
    admin.create_template("small", maxNumMsgs=5)
    with pytest.raises(ConfigError, match=word):
        call(admin)
    assert [row["name"] for row in admin.list_templates()] == ["small"]


def test_templates_survive_a_restart(store: OneStore) -> None:
    """W-131"""
    connection = store.open().connect()
    connection.admin().create_template("small", maxNumMsgs=5)
    create(connection, "orders", template="small")
    again = store.crash().connect()
    assert again.admin().update_template("small", maxNumMsgs=8) == 1
    assert state_of(again, "orders")["attributes"]["maxNumMsgs"] == 8
    assert nothing(again.session().consumer("orders"), 0.005)
    assert store.open().connect().admin().list_templates() == [{"name": "small", "attributes": {"maxNumMsgs": 8}}]
