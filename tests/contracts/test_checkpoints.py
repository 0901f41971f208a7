"""Checkpoints of deliveries (N7): how far the work on a message was, for whoever gets it next."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import IllegalStateError, MessageFormatError
from tests.contracts.handles import create, until


@pytest.fixture
def connection() -> Iterator[Any]:
    with rb.loopback(broker="checkpoints") as found:
        yield found


def received(consumer: Any) -> Any:
    message = consumer.receive(timeout=10)
    assert message is not None
    return message


def test_the_last_one_comes_with_each_further_delivery(connection: Any) -> None:
    """By message, whatever else is in its block; and not with what nobody has said anything of"""
    name = create(connection, "q")
    connection.session().producer(name).send_many(range(3))
    consumer = connection.session(ack="client").consumer(name)
    messages = [received(consumer) for _ in range(3)]
    assert [message.checkpoint_state for message in messages] == [None] * 3
    messages[1].checkpoint({"page": 1})
    messages[1].checkpoint({"page": 2, "found": ["a", "b"]})
    messages[2].checkpoint("half")
    for message in messages:
        message.fail(0)
    again = {message.body: message for message in (received(consumer) for _ in range(3))}
    assert again[0].checkpoint_state is None
    assert again[1].checkpoint_state == {"page": 2, "found": ["a", "b"]}
    assert again[2].checkpoint_state == "half"
    copy = pickle.loads(pickle.dumps(again[1]))
    assert copy.checkpoint_state == {"page": 2, "found": ["a", "b"]}
    consumer.close()
    other = connection.session(ack="client").consumer(name)
    assert {message.body: message.checkpoint_state for message in (received(other) for _ in range(3))}[2] == "half"


@pytest.mark.parametrize("persistent", [True, False])
def test_it_is_as_durable_as_its_message(tmp_path: Path, persistent: bool) -> None:
    with rb.loopback(tmp_path) as connection:
        connection.session().producer("q").send("work", persistent=persistent)
        received(connection.session(ack="client").consumer("q")).checkpoint(b"half")
    for _ in range(2):
        with rb.loopback(tmp_path) as connection:
            message = connection.session(ack="client").consumer("q").receive(timeout=10 if persistent else 0.1)
            assert (message is not None) == persistent
            assert message is None or message.checkpoint_state == b"half"


def test_it_goes_with_its_message(connection: Any) -> None:
    name = create(connection, "q")
    producer = connection.session().producer(name)
    producer.send("first")
    consumer = connection.session(ack="client").consumer(name)
    message = received(consumer)
    message.checkpoint("half")
    message.acknowledge_this()
    with pytest.raises(IllegalStateError, match="settled"):
        message.checkpoint("more")
    producer.send("second")
    assert received(consumer).checkpoint_state is None


def test_who_has_lost_a_message_cannot_overwrite_it(connection: Any) -> None:
    name = create(connection, "q")
    connection.session().producer(name).send("work")
    slow = connection.session(ack="client").consumer(name, ack_timeout_ms=200)
    zombie = received(slow)
    zombie.checkpoint("a third")
    other = connection.session(ack="client").consumer(name)
    mine = received(other)
    assert mine.checkpoint_state == "a third"
    mine.checkpoint("half")
    with pytest.raises(IllegalStateError):
        zombie.checkpoint("from the grave")
    mine.fail(0)
    slow.close()
    assert received(other).checkpoint_state == "half"


def test_its_size_is_bounded_by_the_destination(connection: Any) -> None:
    name = create(connection, "q", maxCheckpointBytes=100)
    connection.session().producer(name).send("work")
    message = received(connection.session(ack="client").consumer(name))
    with pytest.raises(MessageFormatError, match="maxCheckpointBytes of q is 100"):
        message.checkpoint(b"x" * 101)
    message.checkpoint(b"x" * 90)
    message.acknowledge_this()


def test_a_listener_goes_on_where_the_call_before_has_ended(connection: Any) -> None:
    name = create(connection, "q")
    steps: list[int] = []

    def handle(message: Any) -> None:
        for step in range(message.checkpoint_state or 0, 4):
            steps.append(step)
            message.checkpoint(step + 1)
            if step == 1 and not message.redelivered:
                raise RuntimeError("killed")

    connection.session().consumer(name).on_message(handle, backoff=0.01)
    connection.session().producer(name).send("work")
    until(lambda: steps == [0, 1, 2, 3])
