"""maximumMessageSize: body and headers of a message, held against what is sent and not against what is moved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from raybroker.errors import ConfigError, MessageTooLargeError
from raybroker.model.blocks.large_block import LARGE_BODY_BYTES
from tests.contracts.conftest import OneStore
from tests.contracts.handles import WAIT_S, LoopbackBroker, bodies, create, nothing, state_of, take, until
from tests.contracts.stomp_rig import StompRig
from tests.contracts.test_rest import Served

MOST = 200
HEADERS = {"a": "x" * 20}
HEADER_BYTES = 27
"""A map of one letter and a map of one property, as msgpack has them."""
FITS, TOO_LARGE = b"x" * (MOST - HEADER_BYTES), b"x" * (MOST - HEADER_BYTES + 1)
REFUSAL = rf"a message of {MOST + 1} bytes, {HEADER_BYTES} of them headers, exceeds maximumMessageSize={MOST}"


def test_body_and_headers_count_together_to_the_byte(broker: LoopbackBroker) -> None:  # W-54
    connection = broker.connect()
    name = create(connection, broker.name(), maximumMessageSize=MOST)
    session = connection.session()
    producer = session.producer(name)
    producer.send(FITS, properties=HEADERS)
    producer.send(b"x" * MOST)
    with pytest.raises(MessageTooLargeError, match=REFUSAL) as caught:
        producer.send(TOO_LARGE, properties=HEADERS)
    assert name in str(caught.value)
    for more in ({"correlation_id": "c"}, {"type": "t"}, {"properties": {"p": 1}}):
        with pytest.raises(MessageTooLargeError, match=f"maximumMessageSize={MOST}"):
            producer.send(b"x" * MOST, **more)
    with pytest.raises(MessageTooLargeError, match=REFUSAL):
        producer.send_async(TOO_LARGE, properties=HEADERS).result(WAIT_S)
    with pytest.raises(MessageTooLargeError, match=REFUSAL):
        producer.send_many([b"", TOO_LARGE, b""], properties=[HEADERS] * 3)
    producer.send(TOO_LARGE, properties=HEADERS, persistent=False)
    until(lambda: state_of(connection, name)["refused"] == 7)
    assert bodies(take(session.consumer(name), 4)) == [FITS, b"x" * MOST, b"", b""]


def test_of_a_transaction_nothing_comes_when_one_message_is_too_large(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    name = create(connection, broker.name(), maximumMessageSize=MOST)
    session = connection.session(transacted=True)
    producer = session.producer(name)
    producer.send(FITS, properties=HEADERS)
    producer.send_async(TOO_LARGE, properties=HEADERS)
    with pytest.raises(MessageTooLargeError):
        session.commit()
    session.rollback()
    assert nothing(connection.session().consumer(name))


def test_units_of_work_quotas_and_duplicates_are_held_against_it_too(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    admin = connection.admin()
    admin.create_quota("room", MessagesMaximum=2)
    name = create(connection, broker.name(), maximumMessageSize=MOST, quota="room", duplicateWindowMs=60_000)
    session = connection.session()
    producer = session.producer(name)
    with pytest.raises(MessageTooLargeError):
        producer.send(b"x" * MOST, dedup_id="one")
    assert producer.send(b"x", dedup_id="one"), "what was refused is not known"
    admin.update_destination("queue", name, maximumMessageSize=1)
    producer.send(b"x" * MOST, dedup_id="one")
    assert bodies(take(session.consumer(name), 1)) == [b"x"], "a message that was taken is a duplicate, not too large"


def test_it_changes_while_producers_send(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    name = create(connection, broker.name())
    producer = connection.session().producer(name)
    producer.send(TOO_LARGE, properties=HEADERS)
    connection.admin().update_destination("queue", name, maximumMessageSize=MOST)
    with pytest.raises(MessageTooLargeError):
        producer.send(TOO_LARGE, properties=HEADERS)
    connection.admin().update_destination("queue", name, maximumMessageSize=MOST + 1)
    producer.send(TOO_LARGE, properties=HEADERS)
    assert state_of(connection, name)["messages"] == 2


def test_what_is_moved_is_not_held_against_it(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    admin = connection.admin()
    target = create(connection, broker.name(), maximumMessageSize=1)
    name = create(connection, broker.name(), errorDestination=target, redeliveryLimit=0)
    session = connection.session(ack="client")
    producer = session.producer(name)
    producer.send(TOO_LARGE, properties=HEADERS)
    (dead,) = take(session.consumer(name), 1)
    dead.reject("no")
    assert bodies(take(connection.session().consumer(target), 1)) == [TOO_LARGE]
    other = create(connection, broker.name())
    connection.session().producer(other).send(TOO_LARGE, properties=HEADERS)
    admin.pause_destination("queue", other, "consumers")
    assert admin.move_messages("queue", other, target) == 1
    assert bodies(take(connection.session().consumer(target), 1)) == [TOO_LARGE]


def test_a_schedule_is_refused_when_it_is_made_and_its_messages_come_whatever_the_limit_is_then(
    broker: LoopbackBroker,
) -> None:
    connection = broker.connect()
    name = create(connection, broker.name(), maximumMessageSize=MOST)
    session = connection.session()
    producer = session.producer(name)
    with pytest.raises(MessageTooLargeError, match=f"maximumMessageSize={MOST}"):
        producer.send(b"x" * MOST, properties=HEADERS, schedule="@every 1s")
    producer.send(FITS, schedule="@every 1s")
    connection.admin().update_destination("queue", name, maximumMessageSize=1)
    assert bodies(take(session.consumer(name), 1)) == [FITS]


def test_a_large_message_is_refused_before_its_body_is_sent(store: OneStore, tmp_path: Path) -> None:
    connection = store.open().connect()
    size = LARGE_BODY_BYTES + 100
    name = create(connection, "large", maximumMessageSize=size)
    session = connection.session()
    producer = session.producer(name)
    with pytest.raises(MessageTooLargeError, match=f"maximumMessageSize={size} of destination large"):
        producer.send(bytes(size), properties=HEADERS)
    assert list(tmp_path.rglob("body-*")) == []
    producer.send(bytes(size))
    producer.send(bytes(size - HEADER_BYTES), properties=HEADERS)
    assert [len(message.body) for message in take(session.consumer(name), 2)] == [size, size - HEADER_BYTES]


def test_a_limit_below_maxbytespermsg_is_refused_and_says_which_is_never_reached(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    name = create(connection, broker.name(), maxBytesPerMsg=100)
    for attempt in (
        lambda: connection.admin().update_destination("queue", name, maximumMessageSize=99),
        lambda: create(connection, broker.name(), maxBytesPerMsg="1k", maximumMessageSize=1023),
    ):
        with pytest.raises(ConfigError, match=r"maxBytesPerMsg = \d+ would never be reached: maximumMessageSize"):
            attempt()
    connection.admin().update_destination("queue", name, maximumMessageSize=100)
    assert connection.admin().query_destination("queue", name)["attributes"]["maximumMessageSize"] == 100


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_over_stomp_and_http_the_same_limit_holds(opened: ExitStack, tmp_path: Path) -> None:
    (tmp_path / "stomp").mkdir()
    rig = StompRig(tmp_path / "stomp", opened)
    rig.admin.create_destination("queue", "q", maximumMessageSize=MOST)
    error = rig.user().refused("SEND", {"destination": "/queue/q", "a": "x" * 20}, b"x" * MOST)
    assert f"exceeds maximumMessageSize={MOST}" in error.headers["message"]
    assert rig.admin.query_destination("queue", "q")["messages"] == 0
    (tmp_path / "http").mkdir()
    served = Served(tmp_path / "http", opened)
    served.admin.create_destination("queue", "q", maximumMessageSize=MOST)
    answer: httpx.Response = served.ann.post("/queues/q/messages", json={"body": "x" * MOST, "properties": {"a": 1}})
    assert answer.status_code == 413
    assert f"maximumMessageSize={MOST}" in answer.text
    assert served.send("fits").is_success


def test_a_message_over_the_limit_of_what_nobody_has_created_is_told_which_property_raises_it(
    broker: LoopbackBroker,
) -> None:
    connection, name, setting = broker.connect(), broker.name(), "imq.autocreate.destination.maxBytesPerMsg"
    producer = connection.session().producer(name)
    for size in (10 * 1024 + 1, LARGE_BODY_BYTES + 1):  # One that leaves in pieces is refused before it does.
        with pytest.raises(MessageTooLargeError, match=rf"exceeds maxBytesPerMsg=10240 of .*{setting}"):
            producer.send(b"x" * size)
    connection.admin().update_destination("queue", name, maxBytesPerMsg=20)
    with pytest.raises(MessageTooLargeError, match="exceeds maxBytesPerMsg=20 of") as caught:
        producer.send(b"x" * 21)
    assert setting not in str(caught.value), "an administrator has said so"
