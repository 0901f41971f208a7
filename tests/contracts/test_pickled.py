"""Handles in another process: what travels, what it is there, and what says that it cannot."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
from typing import Any

import pytest

import raybroker as rb
from raybroker import aio
from raybroker.client.destinations import Queue, Topic
from raybroker.errors import IllegalStateError, NoClusterError
from tests.contracts.handles import WAIT_S, until


def again(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


def consumers_of(connection: Any, name: str) -> Any:
    return connection.admin().query_destination("queue", name)


def test_a_connection_pickles_as_its_address_and_connects_on_first_use() -> None:
    with rb.loopback(broker="pickled1", client_id="billing") as connection:
        data = pickle.dumps(connection)
        copied = pickle.loads(data)
        assert "_core" not in vars(copied)
        assert pickle.dumps(copied) == data, "a copy that was not used travels on"
        copied.session().producer("q").send("there")
        assert connection.session().consumer("q").receive(WAIT_S).body == "there"
        assert (copied.client_id, copied._core.started) == (None, True)
        copied.close()


def test_a_copy_that_nothing_refers_to_closes_itself_after_what_it_sent_is_settled() -> None:
    with rb.loopback(broker="pickled2") as connection:
        copied = again(connection)
        core = copied._core
        session = copied.session()
        session.producer("q").send_async("late")
        del copied, session
        gc.collect()
        until(lambda: core.closed)
        assert connection.session().consumer("q").receive(WAIT_S).body == "late"


def test_a_copy_of_what_is_gone_says_so_on_first_use() -> None:
    with rb.loopback(broker="pickled3") as connection:
        copied = again(connection)
    with pytest.raises(NoClusterError, match="pickled3"):
        copied.session()


def test_a_producer_travels_with_its_destination_and_options() -> None:
    with rb.loopback(broker="pickled4") as connection:
        session = connection.session()
        producer = session.producer("q", priority=7, unit_of_order="u")
        copied = again(again(producer))
        copied.send("one")
        copied.send_async("two").result(WAIT_S)
        consumer = session.consumer("q")
        found = [consumer.receive(WAIT_S) for _ in range(2)]
        assert [(m.body, m.priority, m.unit_of_order) for m in found] == [("one", 7, "u"), ("two", 7, "u")]
        unnamed = again(session.producer())
        unnamed.send("three", destination="q")
        assert consumer.receive(WAIT_S).body == "three"
        core = copied._core
        del copied
        gc.collect()
        until(lambda: core.closed)
        with pytest.raises(IllegalStateError, match="transacted"):
            pickle.dumps(connection.session(transacted=True).producer("q"))


def test_a_message_travels_as_its_content() -> None:
    with rb.loopback() as connection:
        session = connection.session(ack="client")
        session.producer("q").send_many([{"n": n} for n in range(3)], properties=[{"a": n} for n in range(3)])
        session.producer("q").send((1, 2), correlation_id="c", reply_to="answers", type="t", priority=7, ttl_ms=60_000)
        consumer = session.consumer("q")
        for message in [consumer.receive(WAIT_S) for _ in range(4)]:
            for found in (again(message), copy.copy(message)):
                for name in (
                    "id",
                    "body",
                    "properties",
                    "destination",
                    "timestamp",
                    "expiration",
                    "priority",
                    "persistent",
                    "redelivered",
                    "delivery_count",
                    "correlation_id",
                    "reply_to",
                    "type",
                    "tag",
                ):
                    assert getattr(found, name) == getattr(message, name), name
                for settle in (
                    found.acknowledge,
                    found.acknowledge_this,
                    found.acknowledge_up_to,
                    found.release,
                    found.fail,
                    found.reject,
                    lambda found=found: found.reply("x"),
                ):
                    with pytest.raises(IllegalStateError, match="copy of a message"):
                        settle()


def test_destinations_travel_as_their_names() -> None:
    with rb.loopback() as connection:
        session = connection.session()
        for destination in (session.queue("q"), session.topic("t"), session.topic("t.*")):
            assert (again(destination), type(again(destination))) == (destination, type(destination))
        queue, topic = session.temporary_queue(), session.temporary_topic()
        assert (again(queue), type(again(queue)), type(again(topic))) == (queue, Queue, Topic)


def test_what_belongs_to_a_thread_says_what_to_pickle_instead() -> None:
    with rb.loopback(broker="pickled5") as connection:
        session = connection.session()
        session.producer("q")
        for thing in (session, session.consumer("q"), session.browser("q"), connection.admin()):
            with pytest.raises(IllegalStateError, match="pickle its connection"):
                pickle.dumps(thing)
    with rb.loopback() as alone, pytest.raises(IllegalStateError, match="unnamed loopback"):
        pickle.dumps(alone)


def test_asynchronous_handles_travel_as_blocking_ones_do() -> None:
    async def work() -> None:
        async with await aio.loopback(broker="pickled6") as connection:
            copied = again(connection)
            assert type(copied) is aio.Connection
            session = await copied.session()
            producer = await session.producer("q", priority=7)
            for thing in (session, await session.consumer("q"), await session.browser("q"), connection.admin()):
                with pytest.raises(IllegalStateError, match="pickle its connection"):
                    pickle.dumps(thing)
            sender = again(again(producer))
            assert "_core" not in vars(sender)
            first = asyncio.gather(sender.send("one"), sender.send_many(["two", "three"]), sender.send_async("four"))
            assert "_core" not in vars(sender), "the loop does not wait for the connection"
            _, count, future = await first
            await asyncio.wrap_future(future)
            assert count == 2
            assert len(sender.session.connection._sessions) == 1
            consumer = await session.consumer("q")
            found = [await consumer.receive(WAIT_S) for _ in range(4)]
            assert {(m.body, m.priority) for m in found} == {(text, 7) for text in ("one", "two", "three", "four")}
            hinting = again(await session.producer())
            hinting.disable_message_timestamp = True
            await hinting.send("five", destination="q")
            five = await consumer.receive(WAIT_S)
            assert (five.body, five.timestamp) == ("five", 0)
            unused = again(producer)
            async with unused:
                pass
            with pytest.raises(IllegalStateError, match="closed"):
                await unused.send("late")
            with pytest.raises(AttributeError, match="nothing"):
                _ = sender.nothing
            with pytest.raises(IllegalStateError, match="transacted"):
                pickle.dumps(await (await connection.session(transacted=True)).producer("q"))
            core = sender._core
            del sender, first
            gc.collect()
            await asyncio.to_thread(until, lambda: core.closed)
            await copied.close()

    asyncio.run(work())


def test_an_asynchronous_copy_of_what_is_gone_says_so_each_time() -> None:
    async def work() -> None:
        async with await aio.loopback(broker="pickled7") as connection:
            copied = again(await (await connection.session()).producer("q"))
        for _ in range(2):
            with pytest.raises(NoClusterError, match="pickled7"):
                await copied.send("x")

    asyncio.run(work())
