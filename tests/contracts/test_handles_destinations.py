"""Destinations through handles and admin: creation, limits at their exact boundaries, every refusal (area D, B-10)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from raybroker import errors
from raybroker.errors import (
    ConfigError,
    InvalidDestinationError,
    MessageTooLargeError,
    NotSupportedError,
    QuotaExceededError,
    ResourceAllocationError,
)
from tests.contracts.conftest import ONE_FACE, TWO_FACES, MakeBroker
from tests.contracts.handle_basics import held
from tests.contracts.handles import (
    LoopbackBroker,
    bodies,
    buffered,
    create,
    is_awaited,
    names_of,
    state_of,
    take,
    until,
)

# ---- auto-creation and names (D-04, D-21, D-22) ----------------------------------------------------------------------


@pytest.mark.parametrize("who", ["producer", "consumer"])
def test_opening_a_missing_queue_creates_it_with_the_attributes_for_that(make_broker: MakeBroker, who: str) -> None:
    broker = make_broker(imq__autocreate__queue__consumerFlowLimit=7, imq__autocreate__destination__maxNumMsgs=3)
    connection, name = broker.connect(), broker.name()
    getattr(connection.session(), who)(name)
    state = state_of(connection, name)
    assert state["auto_created"]
    assert state["attributes"]["consumerFlowLimit"] == 7
    assert state["attributes"]["maxNumMsgs"] == 3
    assert (state["messages"], state["type"], state["state"]) == (0, "queue", "RUNNING")


def test_the_defaults_of_an_auto_created_queue_are_those_of_the_seeds(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    connection.session().producer(name)
    attributes = state_of(connection, name)["attributes"]
    assert (attributes["maxNumMsgs"], attributes["maxTotalMsgBytes"], attributes["maxBytesPerMsg"]) == (
        100_000,
        10 * 1024 * 1024,
        10_240,
    )
    assert (attributes["consumerFlowLimit"], attributes["limitBehavior"]) == (1000, "REJECT_NEWEST")


@pytest.mark.parametrize("who", ["producer", "consumer"])
def test_with_auto_creation_off_a_missing_queue_is_an_error_that_says_what_to_do(
    make_broker: MakeBroker, who: str
) -> None:
    broker = make_broker(imq__autocreate__queue=False)
    connection, name = broker.connect(), broker.name()
    session = connection.session()
    with pytest.raises(InvalidDestinationError, match=f"raybroker create dst -t q -n {name}"):
        getattr(session, who)(name)
    assert names_of(connection) == []
    connection.admin().create_destination("queue", name)
    getattr(session, who)(name)


@pytest.mark.parametrize(
    "name", ["", "a b", "1a", "-a", ".a", "mq.sys", "ä", "a/b", "a\0", "a" * 256, "queue\n", None, 5, b"orders", ["a"]]
)
@TWO_FACES
def test_a_bad_name_is_refused_everywhere_and_creates_nothing(broker: LoopbackBroker, name: Any) -> None:
    connection = broker.connect()
    session = connection.session()
    for call in (
        session.queue,
        lambda n: session.producer("" if n is None else n),
        session.consumer,  # None: an unnamed one.
        lambda n: connection.admin().create_destination("queue", n),
    ):
        with pytest.raises(InvalidDestinationError):
            call(name)
    assert names_of(connection) == []


@pytest.mark.parametrize("name", ["a", "_a", "$a", "orders.eu-1", "mqtt", "A" * 255, "Ab9"])
def test_a_good_name_works_and_case_counts(broker: LoopbackBroker, name: str) -> None:
    connection = broker.connect()
    session = connection.session()
    session.producer(name).send("x")
    assert take(session.consumer(session.queue(name)), 1)[0].destination == name
    other = "".join(c.swapcase() for c in name)
    if other != name:
        assert session.consumer(other).receive(timeout=0.02) is None


@ONE_FACE
def test_an_unused_auto_created_queue_goes_after_its_time_and_one_in_use_stays(make_broker: MakeBroker) -> None:
    broker = make_broker(imq__autocreate__reaptime=1)
    connection = broker.connect()
    session = connection.session()
    unused, sent_to, listened, kept = (broker.name() for _ in range(4))
    session.producer(unused).close()
    producer = session.producer(sent_to)
    producer.send("x")
    producer.close()
    listening = session.consumer(listened)
    connection.admin().create_destination("queue", kept)

    def names() -> set[str]:
        return set(names_of(connection))

    until(lambda: unused not in names())
    assert names() == {sent_to, listened, kept}
    assert session.consumer(unused).receive(timeout=0.01) is None
    assert bodies(take(session.consumer(sent_to), 1)) == ["x"]
    listening.close()


# ---- administration (D-03) -------------------------------------------------------------------------------------------


def test_create_query_update_list_and_destroy(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    admin = connection.admin()
    names = sorted(broker.name() for _ in range(3))
    for name in names:
        admin.create_destination("q", name, maxNumMsgs=5, consumerFlowLimit="20", maxBytesPerMsg="1k")
    attributes = state_of(connection, names[0])["attributes"]
    assert (attributes["maxNumMsgs"], attributes["consumerFlowLimit"], attributes["maxBytesPerMsg"]) == (5, 20, 1024)
    assert attributes["maxTotalMsgBytes"] == -1
    assert not state_of(connection, names[0])["auto_created"]
    admin.update_destination("queue", names[0], maxNumMsgs=6, consumerFlowLimit=21)
    attributes = state_of(connection, names[0])["attributes"]
    assert (attributes["maxNumMsgs"], attributes["consumerFlowLimit"], attributes["maxBytesPerMsg"]) == (6, 21, 1024)
    assert names_of(connection) == names
    assert [row["name"] for row in admin.list_destinations("queue")] == [*sorted([*names, "mq.sys.dmq"])]
    assert admin.list_destinations("topic") == []
    admin.destroy_destination("queue", names[1])
    assert names_of(connection) == [names[0], names[2]]
    for verb in (admin.query_destination, admin.destroy_destination, admin.purge_destination):
        with pytest.raises(InvalidDestinationError, match=names[1]):
            verb("queue", names[1])
    with pytest.raises(InvalidDestinationError, match=names[1]):
        admin.update_destination("queue", names[1], maxNumMsgs=1)
    assert admin.query_broker()["destinations"] == 3, "mq.sys.dmq is one of them"


@pytest.mark.parametrize(
    ("attributes", "word"),
    [
        ({"maxNumMsg": 1}, "maxNumMsgs"),
        ({"ConsumerFlowLimit": 1}, "consumerFlowLimit"),
        ({"maxNumMsgs": -2}, "maxNumMsgs"),
        ({"maxNumMsgs": "many"}, "many"),
        ({"maxNumActiveConsumers": 0}, "maxNumActiveConsumers"),
        ({"consumerFlowLimit": 1 << 31}, "consumerFlowLimit"),
        ({"limitBehavior": "SOMETHING"}, "REJECT_NEWEST"),
        ({"sharedConsumerFlowLimit": 1}, "topics"),
        ({"hosting": "cloud"}, "dedicated"),
        ({"imq.autocreate.queue": True}, "broker property"),
        ({"maxTotalMsgBytes": "10g"}, "1024m"),
    ],
)
@TWO_FACES
def test_an_unknown_attribute_or_a_value_out_of_bounds_changes_nothing(
    broker: LoopbackBroker, attributes: dict[str, Any], word: str
) -> None:
    connection, name = broker.connect(), broker.name()
    admin = connection.admin()
    with pytest.raises((ConfigError, NotSupportedError), match=word):
        admin.create_destination("queue", name, **attributes)
    assert names_of(connection) == []
    admin.create_destination("queue", name)
    before = state_of(connection, name)["attributes"]
    with pytest.raises((ConfigError, NotSupportedError), match=word):
        admin.update_destination("queue", name, maxNumProducers=7, **attributes)
    assert state_of(connection, name)["attributes"] == before


@TWO_FACES
def test_what_is_fixed_at_creation_cannot_be_changed(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    admin = connection.admin()
    admin.create_destination("queue", name, isLocalOnly=False)
    for change in ({"isLocalOnly": True}, {"hosting": "dedicated"}):
        with pytest.raises(ConfigError, match="fixed"):
            admin.update_destination("queue", name, maxNumMsgs=3, **change)
    assert state_of(connection, name)["attributes"]["maxNumMsgs"] == -1
    with pytest.raises(InvalidDestinationError, match="exists already"):
        admin.create_destination("queue", name)


def test_purging_discards_what_waits_and_leaves_what_a_consumer_holds(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    connection.admin().create_destination("queue", name, consumerFlowLimit=2)
    session = connection.session(ack="client")
    session.producer(name).send_many(range(10))
    consumer = session.consumer(name)
    first = take(consumer, 1)
    until(lambda: buffered(consumer) >= 1)
    connection.admin().purge_destination("queue", name)
    state = state_of(connection, name)
    assert (state["waiting"], state["messages"]) == (0, state["unacknowledged"])
    take(consumer, state["messages"] - 1)
    first[0].acknowledge()
    assert held(connection, name) == 0
    connection.admin().purge_destination("queue", name)
    session.producer(name).send("after")
    assert bodies(take(consumer, 1)) == ["after"]


def test_destroying_a_queue_in_use_tells_its_producers_and_consumers(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    connection.admin().create_destination("queue", name)
    session, listening = connection.session(), connection.session(ack="client")
    producer, idle = session.producer(name), session.consumer(name)
    busy = listening.consumer(name)
    producer.send_many(range(3))
    take(busy, 1) if buffered(busy) else None
    raised: list[BaseException] = []

    def receive() -> None:
        try:
            while True:
                idle.receive(timeout=20)
        except errors.BrokerError as error:
            raised.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    until(lambda: is_awaited(idle) or not thread.is_alive())
    connection.admin().destroy_destination("queue", name)
    thread.join(20)
    assert [type(e) for e in raised] == [InvalidDestinationError]
    assert "destroyed" in str(raised[0])
    for call in (lambda: producer.send("x"), lambda: producer.send_many(["x"]), lambda: producer.send_async("x")):
        with pytest.raises(InvalidDestinationError, match="destroyed"):
            call()

    def drained() -> bool:
        return busy.receive(timeout=0.01) is None

    with pytest.raises(InvalidDestinationError, match="destroyed"):
        until(lambda: drained() and None)
    session.close()
    listening.close()
    again = connection.session()
    again.producer(name).send("new")
    assert bodies(take(again.consumer(name), 1)) == ["new"], "a new queue of that name has nothing of the old one"
    assert connection.admin().query_destination("queue", name)["messages_in"] == 1


# ---- limits (D-06 … D-08, D-14, B-10) --------------------------------------------------------------------------------


def test_the_message_after_the_last_that_fits_is_refused_and_fits_again_after_one_is_consumed(
    broker: LoopbackBroker,
) -> None:
    connection, name = broker.connect(), broker.name()
    connection.admin().create_destination("queue", name, maxNumMsgs=3)
    session = connection.session()
    producer = session.producer(name)
    for n in range(3):
        producer.send(n)
    with pytest.raises(QuotaExceededError, match=r"maxNumMsgs=3") as caught:
        producer.send(3)
    assert (caught.value.code, caught.value.definite, caught.value.retryable) == ("quota_exceeded", True, True)
    producer.send(9, persistent=False)
    until(lambda: state_of(connection, name)["refused"] == 2)
    assert state_of(connection, name)["messages"] == 3, "a non-persistent message is dropped silently"
    consumer = session.consumer(name)
    take(consumer, 1)
    consumer.close()
    producer.send(4)
    with pytest.raises(QuotaExceededError):
        producer.send(5)
    assert bodies(take(session.consumer(name), 3)) == [1, 2, 4]
    assert state_of(connection, name)["refused"] == 3


def test_bytes_may_overshoot_by_one_message(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    connection.admin().create_destination("queue", name, maxTotalMsgBytes=100)
    producer = connection.session().producer(name)
    producer.send(b"x" * 99)
    producer.send(b"y" * 50)
    with pytest.raises(QuotaExceededError, match="maxTotalMsgBytes=100"):
        producer.send(b"")
    assert state_of(connection, name)["bytes"] == 149


@pytest.mark.parametrize("attribute", ["maxBytesPerMsg", "imq.message.max_size"])
def test_a_message_of_exactly_the_largest_size_is_taken_and_one_byte_more_is_not(
    make_broker: MakeBroker, attribute: str
) -> None:
    own = attribute == "maxBytesPerMsg"
    broker = make_broker(**({} if own else {"imq__message__max_size": 1000}))
    connection, name = broker.connect(), broker.name()
    connection.admin().create_destination("queue", name, **({"maxBytesPerMsg": 1000} if own else {}))
    session = connection.session()
    producer = session.producer(name)
    producer.send(b"x" * 1000)
    producer.send("ö" * 500)
    for too_large in (b"x" * 1001, "ö" * 500 + "x", {"k": b"x" * 1000}):
        with pytest.raises(MessageTooLargeError, match=rf"{attribute}=1000"):
            producer.send(too_large)
        with pytest.raises(MessageTooLargeError, match=rf"{attribute}=1000"):
            producer.send_async(too_large).result(20)
        with pytest.raises(MessageTooLargeError, match=rf"{attribute}=1000"):
            producer.send_many([b"fits", too_large])
    found = session.consumer(name).receive_many(10, timeout=5)
    assert bodies(found)[:2] == [b"x" * 1000, "ö" * 500]
    assert all(body == b"fits" for body in bodies(found)[2:])


def test_of_a_block_what_fits_is_taken_and_the_rest_is_refused_one_by_one(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    connection.admin().create_destination("queue", name, maxNumMsgs=5, maxBytesPerMsg=10)
    session = connection.session()
    producer = session.producer(name)
    sizes = [1, 11, 2, 3, 12, 4, 5, 6, 7]
    futures = [producer.send_async(b"x" * size) for size in sizes]
    outcome = [type(future.exception(20)).__name__ for future in futures]
    assert outcome == [
        "NoneType",
        "MessageTooLargeError",
        "NoneType",
        "NoneType",
        "MessageTooLargeError",
        "NoneType",
        "NoneType",
        "QuotaExceededError",
        "QuotaExceededError",
    ]
    with pytest.raises(QuotaExceededError):
        producer.send_many([b"x"] * 3)
    found = take(session.consumer(name), 5)
    assert [len(m) for m in found] == [1, 2, 3, 4, 5]


def test_more_producers_than_allowed_are_refused(broker: LoopbackBroker) -> None:
    connection, name = broker.connect(), broker.name()
    connection.admin().create_destination("queue", name, maxNumProducers=2)
    session = connection.session()
    first, second = session.producer(name), session.producer(name)
    with pytest.raises(ResourceAllocationError, match="maxNumProducers=2"):
        session.producer(name)
    first.close()
    third = session.producer(name)  # held until it was counted: one that nothing refers to is let go
    third.send("x")
    assert state_of(connection, name)["producers"] == 2
    second.close()
    third.close()


@ONE_FACE
def test_a_queue_that_is_made_beside_a_topic_of_its_name_is_told(
    broker: LoopbackBroker, caplog: pytest.LogCaptureFixture
) -> None:
    connection, name, other = broker.connect(), broker.name(), broker.name()
    create(connection, name, "topic")
    session = connection.session()
    with caplog.at_level("WARNING", "raybroker"):
        session.producer(f"topic:{name}").send("to the topic")
        session.producer(other).send("to a queue alone")
        assert [record for record in caplog.records if "topic of that name" in record.getMessage()] == []
        session.producer(name).send("to a queue")
    (said,) = [record.getMessage() for record in caplog.records if "topic of that name" in record.getMessage()]
    assert f"queue {name} was created automatically" in said
    assert f"topic:{name}" in said
    assert state_of(connection, name)["messages"] == 1
