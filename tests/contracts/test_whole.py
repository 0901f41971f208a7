"""The handles of both faces over a whole broker in the process: what two ends agree on beside the wire."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import raybroker as rb
from raybroker import aio, errors
from raybroker.client.session import xa
from tests.contracts.handle_basics import held
from tests.contracts.handles import LoopbackBroker, bodies, cut, take, until
from tests.unit.client.fakes import run

Connect = Callable[..., Any]
ONLY_BLOCKING = pytest.mark.parametrize("connect", ["blocking"], indirect=True)
"""For listeners that use other handles: asynchronous ones are below."""


@pytest.fixture(params=["blocking", "aio"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Makes started connections to one broker."""
    with LoopbackBroker(face=request.param) as broker:
        yield broker.connect


# ---- transactions ----------------------------------------------------------------------------------------------------


def test_what_a_transaction_sent_and_received_happens_at_the_commit_or_never(connect: Connect) -> None:
    connection, other = connect(), connect().session()
    session = connection.session(transacted=True)
    producer, seen = session.producer("out"), other.consumer("out")
    other.producer("in").send_many(range(3))
    consumer = session.consumer("in")
    assert bodies(take(consumer, 2)) == [0, 1]
    producer.send("a")
    assert producer.send_many(["b", "c"]) == 2
    assert seen.receive(timeout=0.05) is None
    session.rollback()
    again = take(consumer, 3)
    assert [(m.body, m.redelivered) for m in again] == [(0, True), (1, True), (2, False)]
    producer.send("d")
    assert held(connection, "in") == 3
    session.commit()
    assert bodies(take(seen, 1)) == ["d"]
    assert seen.receive(timeout=0.05) is None
    assert held(connection, "in") == 0


def test_closing_a_session_rolls_back(connect: Connect) -> None:
    connection = connect()
    connection.session().producer("in").send_many(range(2))
    session = connection.session(transacted=True)
    session.producer("out").send("never")
    take(session.consumer("in"), 2)
    session.close()
    assert bodies(take(connection.session().consumer("in"), 2)) == [0, 1]
    until(lambda: held(connection, "out") == 0)


@pytest.mark.parametrize("commits", [True, False])
def test_handles_that_were_closed_in_a_transaction_are_part_of_it(connect: Connect, commits: bool) -> None:
    connection = connect()
    connection.session().producer("in").send_many(range(3))
    session = connection.session(transacted=True)
    producer, consumer = session.producer("out"), session.consumer("in")
    future = producer.send_async("sent")
    take(consumer, 2)
    producer.close()
    consumer.close()
    if commits:
        session.commit()
    else:
        session.rollback()
    seen = connect().session()
    assert bodies(take(seen.consumer("in"), 1 if commits else 3)) == ([2] if commits else [0, 1, 2])
    if commits:
        assert bodies(take(seen.consumer("out"), 1)) == ["sent"]
        assert future.done()
    else:
        assert held(connection, "out") == 0
    session.producer("out").send("next")
    session.commit()


def test_after_a_lost_connection_the_transaction_is_gone_and_the_next_one_is_open(connect: Connect) -> None:
    connection = connect()
    session = connection.session(transacted=True)
    producer = session.producer("out")
    producer.send("lost")
    producer.send_async("lost").result(20)
    cut(connection)
    with pytest.raises(errors.TransactionRolledBackError):
        session.commit()
    producer.send("kept")
    session.commit()
    assert bodies(take(connect().session().consumer("out"), 1)) == ["kept"]


def test_too_many_messages_in_a_transaction_roll_it_back(connect: Connect) -> None:
    session = connect().session(transacted=True)
    producer = session.producer("out")
    with pytest.raises(errors.ResourceAllocationError, match=r"imq\.transaction\.producer\.maxNumMsgs"):
        _send_all(producer, session)
    session.rollback()
    producer.send("fits")
    session.commit()
    assert bodies(take(connect().session().consumer("out"), 1)) == ["fits"]


def _send_all(producer: Any, session: Any) -> None:
    for n in range(1001):
        producer.send(n)
    session.commit()


@ONLY_BLOCKING
def test_calls_of_a_transacted_listener_share_transactions_and_failures_do_not(connect: Connect) -> None:
    connection = connect(maxMessagesInTransaction=5)
    connection.session().producer("in").send_many(range(12))
    session = connection.session(transacted=True)
    producer, calls = session.producer("out"), list[int]()

    def listen(message: Any) -> None:
        calls.append(message.body)
        producer.send(message.body)
        if message.body == 7 and message.delivery_count < 3:
            raise ValueError(message.body)

    session.consumer("in").on_message(listen, backoff=0)
    found = take(connect().session().consumer("out"), 12)
    assert bodies(found) == list(range(12))
    until(lambda: held(connection, "in") == 0)
    assert calls == [0, 1, 2, 3, 4, 5, 6, 7, 5, 6, 7, 7, 8, 9, 10, 11]


def test_a_branch_goes_through_every_state_and_is_found_by_another_connection(connect: Connect) -> None:
    other = connect().session()
    other.producer("in").send_many(range(3))
    connection = connect(xa=True)
    session = connection.session()
    consumer, producer, seen = session.consumer("in"), session.producer("out"), other.consumer("out")
    with pytest.raises(errors.IllegalStateError, match="start"):
        producer.send("x")
    with pytest.raises(errors.IllegalStateError, match="start"):
        consumer.receive(timeout=0)
    first, second, third = (rb.Xid(1, gtrid) for gtrid in (b"1", b"2", b"3"))
    session.xa.start(first)
    assert bodies(take(consumer, 1)) == [0]
    producer.send("a")
    session.xa.end(first)
    assert session.xa.prepare(first) == xa.XA_OK
    session.xa.commit(first)
    session.xa.start(second)
    assert bodies(take(consumer, 1)) == [1]
    producer.send("never")
    session.xa.end(second)
    session.xa.rollback(second)
    session.xa.start(third)
    again = take(consumer, 1)[0]
    assert (again.body, again.redelivered) == (1, True)
    producer.send("b")
    session.xa.end(third, xa.TMSUSPEND)
    session.xa.start(third, xa.TMRESUME)
    producer.send("c")
    session.xa.end(third)
    session.xa.prepare(third)
    connection.close()
    session = connect(xa=True).session()
    assert session.xa.recover() == [third]
    session.xa.commit(third)
    assert session.xa.recover() == []
    assert bodies(take(seen, 3)) == ["a", "b", "c"]


# ---- topics ----------------------------------------------------------------------------------------------------------


def test_every_subscriber_gets_a_copy_of_what_it_selects(connect: Connect) -> None:
    connection = connect()
    session, topic = connection.session(), connection.session().topic("prices")
    everything, some = session.consumer(topic), session.consumer("topic:prices", selector="x > 1")
    others = session.consumer(topic, no_local=True)
    for n in range(4):
        session.producer(topic).send(n, properties={"x": n})
    connect().session().producer(topic).send(9, properties={"x": 0})
    assert bodies(take(everything, 5)) == [0, 1, 2, 3, 9]
    assert bodies(take(some, 2)) == [2, 3]
    assert bodies(take(others, 1)) == [9]
    with pytest.raises(errors.InvalidSelectorError):
        session.consumer(topic, selector="x > > 1")


def test_a_durable_subscription_keeps_messages_for_its_client(connect: Connect) -> None:
    connection = connect(client_id="billing")
    session = connection.session()
    topic = session.topic("orders")
    session.durable_consumer(topic, "audit").close()
    session.producer(topic).send_many(range(3))
    consumer = session.durable_consumer("orders", "audit")
    assert bodies(take(consumer, 3)) == [0, 1, 2]
    with pytest.raises(errors.IllegalStateError):
        session.durable_consumer(topic, "audit")
    with pytest.raises(errors.IllegalStateError):
        session.unsubscribe("audit")
    consumer.close()
    session.unsubscribe("audit")
    with pytest.raises(errors.InvalidDestinationError):
        session.unsubscribe("audit")
    nobody = connect().session()
    with pytest.raises(errors.IllegalStateError, match="client id"):
        nobody.durable_consumer(topic, "audit")
    with pytest.raises(errors.InvalidDestinationError, match="subscriptions"):
        session.durable_consumer("queue:orders", "audit")
    with pytest.raises(errors.InvalidDestinationError, match="pattern"):
        session.shared_consumer("orders.*", "pool")
    with pytest.raises(TypeError, match="prefetsch"):
        session.shared_consumer(topic, "pool", prefetsch=1)


def test_consumers_of_a_shared_subscription_share_its_messages(connect: Connect) -> None:
    session = connect().session()
    topic = session.topic("orders")
    pair = [session.shared_consumer(topic, "pool", prefetch=1) for _ in range(2)]
    session.producer(topic).send_many(range(20))
    found: list[Any] = []
    until(lambda: [found.extend(c.receive_many(1, timeout=0.01)) for c in pair] and len(found) == 20)
    assert sorted(bodies(found)) == list(range(20))
    session.shared_durable_consumer(topic, "kept").close()
    session.producer(topic).send("waits")
    assert bodies(take(session.shared_durable_consumer(topic, "kept"), 1)) == ["waits"]


def test_handles_on_a_pattern_reach_every_topic_that_matches_also_later(connect: Connect) -> None:
    session = connect().session()
    consumer, producer = session.consumer(session.topic("w.*.x")), session.producer("topic:w>")
    assert producer.send("nobody is there").startswith("ID:")
    plain = [session.consumer(f"topic:w.{name}.x") for name in "ab"]
    session.consumer("topic:w.a")
    until(lambda: len(producer._core._members) == 3 and len(consumer.info()["topics"]) == 2)
    assert producer.send_async("all").result(20)
    assert producer.send_many(["m", "n"]) == 2
    for one in plain:
        assert bodies(take(one, 3)) == ["all", "m", "n"]
    found = take(consumer, 6)
    assert sorted(bodies(found)) == ["all", "all", "m", "m", "n", "n"]
    assert {m.destination for m in found} == {"w.a.x", "w.b.x"}
    heard: list[Any] = []
    listening = connect().session()
    listening.consumer("topic:w.*.x").on_message(lambda message: heard.append(message.body))
    until(lambda: len(next(iter(listening._consumers)).info()["topics"]) == 2)
    producer.send("z")
    until(lambda: heard == ["z", "z"])
    consumer.close()
    with pytest.raises(errors.IllegalStateError, match="closed"):
        consumer.receive(timeout=0.01)
    producer.close()
    with pytest.raises(errors.IllegalStateError, match="closed"):
        producer.send("late")


# ---- the rest --------------------------------------------------------------------------------------------------------


def test_a_temporary_destination_belongs_to_its_connection(connect: Connect) -> None:
    connection = connect()
    session, other = connection.session(), connect().session()
    queue, topic = session.temporary_queue(), session.temporary_topic()
    consumer, subscriber = session.consumer(queue), session.consumer(topic)
    other.producer(queue.text).send("q")
    other.producer(topic).send("t")
    assert bodies([*take(consumer, 1), *take(subscriber, 1)]) == ["q", "t"]
    with pytest.raises(errors.InvalidDestinationError, match="temporary"):
        other.consumer(queue)
    with pytest.raises(errors.IllegalStateError, match="in use"):
        queue.delete()
    consumer.close()
    queue.delete()
    queue.delete()
    connection.close()
    left = {row["name"] for row in connect().admin().list_destinations()}
    assert not left & {queue.name, topic.name}


@ONLY_BLOCKING
def test_a_request_gets_its_own_answer_and_a_late_one_is_dropped(connect: Connect) -> None:
    session, serving = connect().session(), connect().session()
    late, answers = list[Any](), serving.consumer("service")

    def serve() -> None:
        for message in answers:
            if message.body == "slow":
                late.append(message)
            else:
                producer = serving.producer(message.reply_to)
                producer.send(message.body * 2, correlation_id=message.correlation_id)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert session.request("service", 21, timeout=20, properties={"a": 1}).body == 42
    with pytest.raises(errors.RequestTimeoutError, match="service"):
        session.request("service", "slow", timeout=0.05)
    until(lambda: late)
    late_producer = connect().session().producer(late[0].reply_to)
    late_producer.send("late", correlation_id=late[0].correlation_id)
    assert session.request("service", "x", timeout=20).body == "xx"
    with pytest.raises(TypeError, match="reply_to"):
        session.request("service", "x", reply_to="q")
    answers._core.shut()
    thread.join(20)
    assert not thread.is_alive()


@ONLY_BLOCKING
def test_requests_go_on_after_a_lost_connection(connect: Connect) -> None:
    connection, serving = connect(), connect().session()
    session = connection.session()

    def serve(message: Any) -> None:
        serving.producer(message.reply_to).send(message.body, correlation_id=message.correlation_id)

    serving.consumer("service").on_message(serve)
    assert session.request("service", 1, timeout=20).body == 1
    cut(connection)

    def answered() -> bool:
        try:
            return bool(session.request("service", 2, timeout=1).body == 2)
        except (errors.ConnectionLostError, errors.RequestTimeoutError):
            return False

    until(answered)


def test_browsing_takes_nothing_and_every_pass_looks_anew(connect: Connect) -> None:
    connection = connect(imqQueueBrowserMaxMessagesPerRetrieve=7)
    session = connection.session()
    producer = session.producer("shelf")
    producer.send_many(range(20))
    browser = session.browser("shelf")
    producer.send("later", properties={"a": 1})
    assert bodies(list(browser)) == list(range(20)), "a pass sees what was there when it was opened"
    assert bodies(list(browser))[-1] == "later"
    assert bodies(list(session.browser("shelf", selector="a = 1"))) == ["later"]
    assert held(connection, "shelf") == 21
    half = iter(browser)
    next(half)
    browser.close()
    with pytest.raises(errors.IllegalStateError, match="closed"):
        iter(browser).__next__()
    with pytest.raises(errors.InvalidDestinationError):
        session.browser("topic:prices")


def test_an_expired_message_is_never_handed_out_though_it_waits_in_the_buffer(connect: Connect) -> None:
    connection = connect()
    session = connection.session()
    producer, consumer = session.producer("soon"), session.consumer("soon")
    producer.send("gone", ttl_ms=40)
    producer.send("kept", ttl_ms=1_000_000, priority=9)
    until(lambda: consumer.info()["buffered"] == 2)
    expired_at = time.time() + 0.045
    until(lambda: time.time() > expired_at)
    found = take(consumer, 1)[0]
    assert (found.body, found.priority) == ("kept", 9)
    assert consumer.receive(timeout=0.01) is None
    until(lambda: held(connection, "soon") == 0)


def test_defaults_of_the_factory_hold_for_producers_that_say_nothing(connect: Connect) -> None:
    connection = connect(defaultTimeToLive=50_000, defaultPriority=7, defaultDeliveryMode="Non-Persistent")
    session = connection.session()
    consumer = session.consumer("plain")
    session.producer("plain").send("a")
    session.producer("plain", persistent=True, priority=2, ttl_ms=0).send("b", priority=3)
    found = {m.body: (m.persistent, m.priority, m.expiration > 0) for m in take(consumer, 2)}
    assert found == {"a": (False, 7, True), "b": (True, 3, False)}
    with pytest.raises(errors.MessageFormatError, match="ttl_ms"):
        session.producer("plain", ttl_ms=-1)
    with pytest.raises(errors.MessageFormatError, match="delivery_delay_ms"):
        session.producer("plain").send("x", delivery_delay_ms="soon")


def test_a_compressed_body_comes_back_whole(connect: Connect) -> None:
    session = connect().session()
    session.producer("small").send("x" * 10_000, properties={"JMS_SUN_COMPRESS": True, "a": 1}, correlation_id="c")
    session.producer("small").send("plain", properties={"JMS_SUN_COMPRESS": False})
    first, second = take(session.consumer("small"), 2)
    assert (first.body, first.properties["a"], first.correlation_id) == ("x" * 10_000, 1, "c")
    assert len(first) < 1000
    assert second.body == "plain"


@ONLY_BLOCKING
def test_outcomes_inside_a_listener_of_an_auto_session(connect: Connect) -> None:
    connection = connect()
    session, calls = connection.session(), list[tuple[int, int]]()

    def listen(message: Any) -> None:
        calls.append((message.body, message.delivery_count))
        if message.body == 1:
            message.reject("never")
        if message.body == 2 and message.delivery_count == 1:
            message.fail(0)

    connection.session().producer("work").send_many(range(4))
    session.consumer("work").on_message(listen)
    until(lambda: held(connection, "work") == 0)
    assert sorted(calls) == [(0, 1), (1, 1), (2, 1), (2, 2), (3, 1)]
    assert bodies(list(session.browser("mq.sys.dmq"))) == [1]


# ---- asynchronous handles, as a program writes them -----------------------------------------------------------------


def over(work: Callable[[aio.Connection], Coroutine[Any, Any, None]], **properties: object) -> None:
    """Run ``work`` with a started connection to a broker of its own."""

    async def whole() -> None:
        async with await aio.loopback(properties=properties) as connection:
            await work(connection)

    run(whole)


async def received(consumer: aio.Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        message = await consumer.receive(timeout=10)
        assert message is not None, found
        found.append(message.body)
    return found


def test_a_transacted_listener_commits_batches() -> None:
    async def work(connection: aio.Connection) -> None:
        session, plain = await connection.session(transacted=True), await connection.session()
        producer, calls = await session.producer("out"), list[int]()

        async def listen(message: Any) -> None:
            calls.append(message.body)
            await producer.send(message.body)
            if message.body == 3 and message.delivery_count == 1:
                raise ValueError(message.body)

        await (await plain.producer("in")).send_many(range(5))
        await (await session.consumer("in")).on_message(listen)
        assert await received(await plain.consumer("out"), 5) == list(range(5))
        assert calls.count(3) == 2

    over(work, maxMessagesInTransaction=4)


def test_topics_subscriptions_and_patterns() -> None:
    async def work(connection: aio.Connection) -> None:
        session = await connection.session()
        topic = session.topic("prices")
        plain, some = await session.consumer(topic), await session.shared_consumer("prices", "pool", selector="x = 1")
        producer = await session.producer(topic)
        await producer.send("a")
        await producer.send("b", properties={"x": 1})
        assert await received(plain, 2) == ["a", "b"]
        assert await received(some, 1) == ["b"]
        assert connection.client_id is None
        with pytest.raises(errors.IllegalStateError, match="client id"):
            await session.durable_consumer(topic, "audit")
        kept = await session.shared_durable_consumer(topic, "kept")
        await kept.close()
        await session.unsubscribe("kept")
        pattern, every = await session.consumer("topic:>"), await session.producer("topic:>")
        await every.send("all")
        assert await received(pattern, 1) == ["all"]
        assert await every.send_many(["m"]) == 1
        assert await received(pattern, 1) == ["m"]
        await pattern.close()
        await every.close()

    over(work)


def test_temporary_destinations_requests_and_browsers() -> None:
    async def work(connection: aio.Connection) -> None:
        session = await connection.session()
        queue, topic = await session.temporary_queue(), await session.temporary_topic()
        consumer = await session.consumer(queue)
        await (await session.producer(queue)).send("x")
        assert await received(consumer, 1) == ["x"]
        await consumer.close()
        await queue.delete()
        await topic.delete()
        serving = await connection.session()
        answering = await serving.consumer("service")

        async def serve(message: Any) -> None:
            producer = await serving.producer(message.reply_to)
            await producer.send(message.body * 2, correlation_id=message.correlation_id)

        await answering.on_message(serve)
        assert (await session.request("service", 21, timeout=10)).body == 42
        with pytest.raises(errors.RequestTimeoutError):
            await session.request("nobody", 1, timeout=0.02)
        await (await session.producer("shelf")).send_many(range(5))
        browser = await session.browser("shelf")
        for _ in range(2):
            assert [m.body async for m in browser] == list(range(5))
        await browser.close()
        with pytest.raises(errors.IllegalStateError):
            aiter(browser)
        with pytest.raises(errors.InvalidDestinationError):
            await session.browser(topic)

    over(work)


def test_outcomes_and_deduplication() -> None:
    async def work(connection: aio.Connection) -> None:
        await connection.admin().create_destination("queue", "once", duplicateWindowMs=60_000, hosting="shared")
        session = await connection.session(ack="client")
        producer, consumer = await session.producer("once"), await session.consumer("once")
        for body in ("a", "b"):
            await producer.send(body, dedup_id="same")
        await producer.send("c")
        assert producer.duplicates == 1
        first, second = await consumer.receive(10), await consumer.receive(10)
        assert first is not None
        assert second is not None
        assert (first.body, second.body) == ("a", "c")
        await first.release()
        await second.fail(0)
        again = [await consumer.receive(10) for _ in range(2)]
        assert sorted(m.body for m in again if m is not None) == ["a", "c"]
        await again[-1].acknowledge()  # type: ignore[union-attr]
        connection.on_exception(lambda error: None)
        with pytest.raises(errors.IllegalStateError, match="client id is set before"):
            connection.client_id = "late"

    over(work)
