"""Checkpoints within transactions (N7): with the commit, and the message goes on; with a rollback it is as before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import raybroker as rb
from raybroker.errors import IllegalStateError, MessageFormatError, TransactionRolledBackError
from tests.contracts.handles import create, nothing, take, until


@pytest.fixture
def connection() -> Iterator[Any]:
    with rb.loopback(broker="steps") as found:
        yield found


def started(connection: Any) -> tuple[str, str, Any, Any, Any]:
    """A queue of work with one piece, a queue of results, and a transacted session that has taken the piece."""
    work, results = create(connection, "work"), create(connection, "results")
    connection.session().producer(work).send("piece")
    session = connection.session(transacted=True)
    consumer, producer = session.consumer(work), session.producer(results)
    return work, results, session, consumer, producer


def test_a_step_commits_its_results_and_its_checkpoint_and_goes_on_with_the_message(connection: Any) -> None:
    work, results, session, consumer, producer = started(connection)
    message = consumer.receive(timeout=10)
    seen = connection.session().consumer(results)
    for step in range(3):
        assert message.checkpoint_state is None, "what came with this delivery stays what it was"
        producer.send(step)
        message.checkpoint({"done": step + 1})
        session.commit()
        assert seen.receive(timeout=10).body == step
        assert connection.admin().query_destination("queue", work)["unacknowledged"] == 1
        assert nothing(consumer), "the message is still in hand"
    session.close()
    again = connection.session(ack="client").consumer(work).receive(timeout=10)
    assert again.redelivered
    assert again.checkpoint_state == {"done": 3}
    again.acknowledge()


def test_a_rollback_keeps_the_checkpoint_from_before(connection: Any) -> None:
    _, results, session, consumer, producer = started(connection)
    message = consumer.receive(timeout=10)
    producer.send("first")
    message.checkpoint("first")
    session.commit()
    producer.send("second")
    message.checkpoint("second")
    message.checkpoint("third")
    session.rollback()
    again = consumer.receive(timeout=10)
    assert (again.body, again.checkpoint_state) == ("piece", "first")
    session.commit()
    assert nothing(consumer), "a commit without a checkpoint acknowledges it"
    (found,) = take(connection.session().consumer(results), 1)
    assert found.body == "first"


def test_the_last_checkpoint_of_a_transaction_counts_and_others_are_acknowledged(connection: Any) -> None:
    work, _, session, consumer, _ = started(connection)
    connection.session().producer(work).send_many(["b", "c", "d"])
    messages = [consumer.receive(timeout=10) for _ in range(4)]
    messages[1].checkpoint(1)
    messages[1].checkpoint(2)
    messages[3].checkpoint(3)
    session.commit()
    assert connection.admin().query_destination("queue", work)["messages"] == 2
    session.rollback()
    again = [consumer.receive(timeout=10) for _ in range(2)]
    assert {message.body: message.checkpoint_state for message in again} == {"b": 2, "d": 3}
    session.commit()
    assert connection.admin().query_destination("queue", work)["messages"] == 0


def test_what_cannot_be_kept_rolls_everything_back(connection: Any) -> None:
    _, results, session, consumer, producer = started(connection)
    message = consumer.receive(timeout=10)
    producer.send("lost")
    message.checkpoint("x" * 100_000)
    with pytest.raises(MessageFormatError, match="maxCheckpointBytes"):
        session.commit()
    again = consumer.receive(timeout=10)
    assert again.checkpoint_state is None
    assert nothing(connection.session().consumer(results))
    session.commit()
    with pytest.raises(IllegalStateError, match="settled"):
        again.checkpoint("late")


def go_on(message: Any, session: Any) -> None:
    message.checkpoint("late")
    session.commit()


def test_a_message_that_has_gone_to_others_rolls_everything_back(connection: Any) -> None:
    work, results = create(connection, "work"), create(connection, "results")
    connection.session().producer(work).send("piece")
    session = connection.session(transacted=True)
    consumer = session.consumer(work, ack_timeout_ms=50)
    message = consumer.receive(timeout=10)
    other = connection.session(ack="client").consumer(work)
    taken = other.receive(timeout=10)
    session.producer(results).send("zombie")
    with pytest.raises((TransactionRolledBackError, IllegalStateError)):
        go_on(message, session)
    assert nothing(connection.session().consumer(results))
    assert taken.checkpoint_state is None
    taken.acknowledge()


def test_a_consumer_that_is_closed_before_keeps_the_commit_from_happening(connection: Any) -> None:
    work, results, session, consumer, producer = started(connection)
    message = consumer.receive(timeout=10)
    producer.send("lost")
    message.checkpoint("lost")
    consumer.close()
    with pytest.raises(IllegalStateError, match="closed before the checkpoint"):
        session.commit()
    assert nothing(connection.session().consumer(results))
    again = connection.session(ack="client").consumer(work).receive(timeout=10)
    assert again.checkpoint_state is None
    again.acknowledge()


def test_the_call_of_a_listener_refuses_it(connection: Any) -> None:
    _, _, session, consumer, _ = started(connection)
    said: list[str] = []

    def handle(message: Any) -> None:
        try:
            message.checkpoint(1)
        except IllegalStateError as error:
            said.append(str(error))
        session.commit()

    consumer.on_message(handle)
    until(lambda: said)
    assert "receive the messages instead" in said[0]


def test_it_survives_a_restart(tmp_path: Any) -> None:
    with rb.loopback(broker="steps", store=tmp_path) as first:
        work, _, session, consumer, producer = started(first)
        message = consumer.receive(timeout=10)
        producer.send("one")
        message.checkpoint({"step": 1})
        session.commit()
        message.checkpoint({"step": 2})
    with rb.loopback(broker="steps", store=tmp_path) as second:
        again = second.session(ack="client").consumer(work).receive(timeout=10)
        assert again.checkpoint_state == {"step": 1}
        again.acknowledge()
