"""Requests and replies: every way of JMS to say which request a message answers, and producers for many answers."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from raybroker.engine.destinations import temporary_destinations
from raybroker.errors import (
    IllegalStateError,
    InvalidDestinationError,
    MessageFormatError,
    RequestTimeoutError,
    TransactionRolledBackError,
)
from tests.contracts.handles import WAIT_S, LoopbackBroker, bodies, core_of, cut, state_of, take, until

Reply = Callable[[Any, Any], object]
REPLIES: dict[str, Reply] = {
    "reply()": lambda s, m: m.reply(m.body * 2),
    "correlation_id of the request": lambda s, m: s.producer(m.reply_to).send(
        m.body * 2, correlation_id=m.correlation_id
    ),
    "id of the request": lambda s, m: s.producer(m.reply_to).send(m.body * 2, correlation_id=m.id),
    "none": lambda s, m: s.producer().send(m.body * 2, destination=m.reply_to),
}


@contextmanager
def replier(broker: LoopbackBroker, queue: str, reply: Reply, most: int) -> Iterator[None]:
    """Answers ``most`` requests."""

    def work() -> None:
        session = broker.connect().session()
        consumer = session.consumer(queue)
        for _ in range(most):
            message = consumer.receive(WAIT_S)
            if message is not None:
                reply(session, message)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join(WAIT_S)
        assert not thread.is_alive()


@pytest.mark.parametrize("way", REPLIES)
def test_a_reply_is_taken_whatever_says_which_request_it_answers(broker: LoopbackBroker, way: str) -> None:
    session, queue = broker.connect().session(), broker.name()
    with replier(broker, queue, REPLIES[way], 3):
        assert [session.request(queue, number, WAIT_S).body for number in (1, 2, 3)] == [2, 4, 6]


def test_a_late_reply_without_a_correlation_id_is_not_taken_for_another_request(broker: LoopbackBroker) -> None:
    session, queue = broker.connect().session(), broker.name()
    other = broker.connect().session()
    consumer = other.consumer(queue)
    late = None
    for patience_s in (0.05, 1, 5):  # The shortest may be over before the request has left.
        with pytest.raises(RequestTimeoutError):
            session.request(queue, "first", patience_s)
        late = late or consumer.receive(patience_s + 0.5)
        if late is not None:
            break

    def both(session: Any, message: Any) -> None:
        session.producer(late.reply_to).send("late")
        message.reply("right")

    consumer.close()
    with replier(broker, queue, both, 1):
        assert session.request(queue, "second", WAIT_S).body == "right"


def test_a_reply_to_nothing_is_named_when_the_request_times_out(broker: LoopbackBroker) -> None:
    session, queue = broker.connect().session(), broker.name()
    wrong = lambda s, m: s.producer(m.reply_to).send("x", correlation_id="wrong")
    with replier(broker, queue, wrong, 1), pytest.raises(RequestTimeoutError, match=r"1 messages came.*message\.reply"):
        session.request(queue, 1, 1.5)


def test_a_message_without_reply_to_is_not_replied_to(broker: LoopbackBroker) -> None:
    session, queue = broker.connect().session(), broker.name()
    session.producer(queue).send("x", reply_to=None)
    consumer = session.consumer(queue)
    message = consumer.receive(WAIT_S)
    with pytest.raises(IllegalStateError, match="reply_to"):
        message.reply("y")
    session.producer(queue).send("x", reply_to=queue)
    message = consumer.receive(WAIT_S)
    with pytest.raises(TypeError, match="colour"):
        message.reply("y", colour="red")


def test_a_reply_belongs_to_the_transaction_that_received_the_request(broker: LoopbackBroker) -> None:
    connection, queue, answers = broker.connect(), broker.name(), broker.name()
    plain = connection.session()
    sent = plain.producer(queue).send("ask", reply_to=answers)
    session = connection.session(transacted=True)
    consumer = session.consumer(queue)
    consumer.receive(WAIT_S).reply("one")
    session.rollback()
    consumer.receive(WAIT_S).reply("two")
    assert state_of(connection, answers)["messages_in"] == 0  # What is not committed counts among "messages" at most.
    session.commit()
    answer = plain.consumer(answers).receive(WAIT_S)
    assert (answer.body, answer.correlation_id) == ("two", sent)


# ---- answers to who is gone ------------------------------------------------------------------------------------------

ANSWERS: dict[str, Reply] = {
    "reply()": lambda s, m: m.reply("answer"),
    "producer()": lambda s, m: s.producer(m.reply_to).send("answer"),
    "send_async": lambda s, m: s.producer().send_async("answer", destination=m.reply_to).result(WAIT_S),
}


@pytest.mark.parametrize("way", ANSWERS)
@pytest.mark.parametrize("end", ["close", "delete", "cut"])
@pytest.mark.parametrize("before", [0, 1])
def test_an_answer_to_a_requester_that_is_gone_fails_at_once(
    broker: LoopbackBroker, monkeypatch: pytest.MonkeyPatch, way: str, end: str, before: int
) -> None:
    """``before``: answers that the same session has sent there while the requester lived."""
    monkeypatch.setattr(temporary_destinations, "ORPHAN_MS", 20)
    asking, connection, queue = broker.connect(imqReconnectEnabled=False), broker.connect(), broker.name()
    asker = asking.session()
    answers = asker.temporary_queue()
    for number in range(before + 1):
        asker.producer(queue).send(number, reply_to=answers)
    session = connection.session()
    consumer = session.consumer(queue)
    for _ in range(before):
        ANSWERS[way](session, consumer.receive(WAIT_S))
    request = consumer.receive(WAIT_S)
    if end == "close":
        asking.close()
    elif end == "delete":
        answers.delete()
    else:
        cut(asking)
    there = connection.admin()
    until(lambda: not [row for row in there.list_destinations(temporary=True) if row["name"] == answers.name])
    began_s = time.monotonic()
    with pytest.raises(InvalidDestinationError, match=answers.name):
        ANSWERS[way](session, request)
    assert time.monotonic() - began_s < core_of(connection).attributes["raybroker.reconnect.timeout_ms"] / 2000
    session.producer(queue).send("the session goes on")
    assert consumer.receive(WAIT_S).body == "the session goes on"


@pytest.mark.parametrize("before", [True, False])
def test_a_transaction_with_an_answer_to_who_is_gone_is_rolled_back_at_once(
    broker: LoopbackBroker, before: bool
) -> None:
    """``before``: the answer is sent while the requester lives, which is gone when the session commits."""
    asking, connection, queue = broker.connect(), broker.connect(), broker.name()
    asker = asking.session()
    answers = asker.temporary_queue()
    asker.producer(queue).send("ask", reply_to=answers)
    session = connection.session(transacted=True)
    consumer = session.consumer(queue)
    request = consumer.receive(WAIT_S)
    if before:
        request.reply("answer")
    asking.close()
    began_s = time.monotonic()
    if not before:
        with pytest.raises(InvalidDestinationError, match=answers.name):
            request.reply("answer")
        session.rollback()
    else:
        with pytest.raises(TransactionRolledBackError):
            session.commit()
    assert time.monotonic() - began_s < core_of(connection).attributes["raybroker.reconnect.timeout_ms"] / 2000
    again = consumer.receive(WAIT_S)
    assert (again.body, again.redelivered) == ("ask", True)
    session.commit()
    assert state_of(connection, queue)["messages"] == 0


# ---- producers for many answers --------------------------------------------------------------------------------------


def test_an_unnamed_producer_sends_where_each_send_says(broker: LoopbackBroker) -> None:
    session, names = broker.connect().session(), [broker.name() for _ in range(3)]
    producer = session.producer(priority=7)
    for name in names:
        producer.send(f"{name}-1", destination=name)
        producer.send_async(f"{name}-2", destination=session.queue(name)).result(WAIT_S)
        assert producer.send_many([f"{name}-3"], destination=f"queue:{name}") == 1
    for name in names:
        found = take(session.consumer(name), 3)
        assert bodies(found) == [f"{name}-{n}" for n in (1, 2, 3)]
        assert {message.priority for message in found} == {7}
    for call in (producer.send, producer.send_async, lambda b: producer.send_many([b])):
        with pytest.raises(IllegalStateError, match="destination="):
            call("x")
    named = session.producer(names[0])
    with pytest.raises(IllegalStateError, match=names[0]):
        named.send("x", destination=names[1])
    with pytest.raises(MessageFormatError, match="priority"):
        producer.send("x", destination=names[0], priority=True)
    producer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        producer.send("x", destination=names[0])


def test_an_unnamed_producer_keeps_a_bounded_number_of_producers(broker: LoopbackBroker) -> None:
    connection = broker.connect()
    session, names = connection.session(), [broker.name() for _ in range(40)]
    producer = session.producer()
    for name in names:
        producer.send("x", destination=name)
    rows = connection.admin().list_destinations("queue")
    assert sum(row["messages"] for row in rows if row["name"] in names) == 40
    until(lambda: sum(row["producers"] for row in connection.admin().list_destinations("queue")) <= 32)


def test_producers_that_nothing_refers_to_are_closed_after_what_they_sent_is_settled(broker: LoopbackBroker) -> None:
    connection, queue = broker.connect(), broker.name()
    session = connection.session()
    futures = []
    for number in range(150):  # maxNumProducers is 100.
        futures.append(session.producer(queue).send_async(number))
        if number % 30 == 29:
            gc.collect()
            until(lambda: state_of(connection, queue)["producers"] < 100)
    for future in futures:
        future.result(WAIT_S)
    gc.collect()
    until(lambda: state_of(connection, queue)["producers"] == 0)
    assert state_of(connection, queue)["messages"] == 150


def test_a_producer_that_is_let_go_leaves_its_messages_to_the_transaction(broker: LoopbackBroker) -> None:
    connection, queue = broker.connect(), broker.name()
    session = connection.session(transacted=True)
    session.producer(queue).send_many(["a", "b"])
    gc.collect()
    until(lambda: state_of(connection, queue)["producers"] == 0)
    session.commit()
    assert state_of(connection, queue)["messages"] == 2
    session.producer(queue).send("c")
    session.rollback()
    assert state_of(connection, queue)["messages"] == 2


def test_closing_a_session_waits_for_what_let_go_producers_have_sent(broker: LoopbackBroker) -> None:
    connection, queue = broker.connect(), broker.name()
    session = connection.session()
    for number in range(20):
        session.producer(queue).send_async(number)
    gc.collect()
    session.close()
    assert state_of(connection, queue)["messages"] == 20


def test_a_temporary_destination_takes_any_number_of_producers(broker: LoopbackBroker) -> None:
    session, other = broker.connect().session(), broker.connect().session()
    answers = session.temporary_queue()
    consumer = session.consumer(answers)
    kept = [other.producer(answers.name) for _ in range(101)]
    kept[-1].send("last")
    assert consumer.receive(WAIT_S).body == "last"
