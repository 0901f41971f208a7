"""The asynchronous face in a cluster: the same members, units and transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from raybroker import aio
from raybroker.errors import OrderError
from raybroker.model.hashing import rendezvous
from tests.contracts.cluster_rig import ClusterRig
from tests.contracts.handles import WAIT_S

pytestmark = pytest.mark.xdist_group("cluster_aio")  # One worker makes what they share.

NAMES = ("b1", "b2", "b3")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterRig]:
    with ClusterRig(tmp_path_factory.mktemp("rig"), 3, raybroker__store__segment_bytes="1m") as found:
        yield found


def run(rig: ClusterRig, work: Callable[[Callable[..., aio.Connection]], Awaitable[None]], **attributes: Any) -> None:
    """``work`` gets a function that makes asynchronous connections with a home broker."""

    async def bounded() -> None:
        made: list[aio.Connection] = []

        def connect(home: str) -> aio.Connection:
            made.append(aio.Connection(rig.connect(home, started=False, **attributes)._core))
            return made[-1]

        try:
            await asyncio.wait_for(work(connect), 2 * WAIT_S)
        finally:
            for connection in made:
                await connection.close()

    asyncio.run(bounded())


async def take(consumer: Any, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        message = await consumer.receive(timeout=WAIT_S)
        assert message is not None, f"{len(found)} of {count} messages came"
        found.append(message)
    return found


def test_messages_of_all_brokers_come_and_are_acknowledged(rig: ClusterRig) -> None:
    async def work(connect: Callable[..., aio.Connection]) -> None:
        name = rig.name()
        connection = connect("b1")
        await connection.start()
        session = await connection.session(ack="client")
        consumer = await session.consumer(name, prefetch=5, threshold=50)
        for home in NAMES:
            other = await connect(home).session()
            producer = await other.producer(name)
            assert await producer.send_many([f"{home}-{n}" for n in range(20)]) == 20
        found = await take(consumer, 30)
        await session.recover()
        found = await take(consumer, 60)
        assert sorted(m.body for m in found) == sorted(f"{home}-{n}" for home in NAMES for n in range(20))
        await found[-1].acknowledge()
        assert await consumer.receive(timeout=0.05) is None

    run(rig, work)


def test_a_listener_hears_all_brokers(rig: ClusterRig) -> None:
    async def work(connect: Callable[..., aio.Connection]) -> None:
        name, found, done = rig.name(), set[str](), asyncio.Event()
        connection = connect("b2")
        await connection.start()

        async def listen(message: Any) -> None:
            found.add(message.body)
            if len(found) == 30:
                done.set()

        await (await (await connection.session()).consumer(name)).on_message(listen)
        for home in NAMES:
            producer = await (await connect(home).session()).producer(name)
            for n in range(10):
                await producer.send(f"{home}-{n}")
        await asyncio.wait_for(done.wait(), WAIT_S)

    run(rig, work)


def test_units_go_where_they_belong_without_blocking_the_loop(rig: ClusterRig) -> None:
    async def work(connect: Callable[..., aio.Connection]) -> None:
        name = rig.name()
        connection = connect("b1")
        await connection.start()
        session = await connection.session(ack="client")
        producer = await session.producer(name)
        units = [f"u{n % 40}" for n in range(2500)]
        assert await producer.send_many(range(2500), unit_of_order=units) == 2500
        futures = [await producer.send_async(2500 + n, unit_of_order=f"v{n}") for n in range(20)]
        await asyncio.gather(*map(asyncio.wrap_future, futures))
        await producer.send(2520, unit_of_order="w")
        consumer = await session.consumer(name, prefetch=3000)
        found: list[Any] = []
        while len(found) < 2521:
            some = await consumer.receive_many(500, timeout=WAIT_S)
            assert some
            found += some
            await some[-1].acknowledge()
        for message in found:
            assert message._delivery.consumer.broker == rendezvous(message.unit_of_order, NAMES)
        for unit in set(units):
            mine = [m.body for m in found if m.unit_of_order == unit]
            assert mine == sorted(mine)

    run(rig, work)


def test_a_transaction_is_over_all_its_brokers(rig: ClusterRig) -> None:
    async def work(connect: Callable[..., aio.Connection]) -> None:
        source, target = rig.name(), rig.name()
        for home in NAMES:
            await (await (await connect(home).session()).producer(source)).send(home)
        connection = connect("b1")
        await connection.start()
        session = await connection.session(transacted=True)
        consumer, producer = await session.consumer(source), await session.producer(target)
        for message in await take(consumer, 3):
            await producer.send(message.body, unit_of_order=message.body)
        await session.rollback()
        for message in await take(consumer, 3):
            await producer.send(message.body, unit_of_order=message.body)
        await session.commit()
        assert await consumer.receive(timeout=0.05) is None
        other = await connection.session()
        assert sorted(m.body for m in await take(await other.consumer(target), 3)) == list(NAMES)

    run(rig, work)


def test_an_unreachable_unit_is_an_order_error(tmp_path: Any) -> None:  # U13
    with ClusterRig(tmp_path, 3, raybroker__store__segment_bytes="1m") as own:

        async def work(connect: Callable[..., aio.Connection]) -> None:
            name = own.name()
            producer = await (await connect("b1").session()).producer(name)
            unit = next(f"u{n}" for n in range(99) if rendezvous(f"u{n}", NAMES) == "b3")
            await asyncio.to_thread(own.kill, "b3")
            with pytest.raises(OrderError):
                await producer.send("lost", unit_of_order=unit)
            with pytest.raises(OrderError):
                await producer.send_many(["lost"], unit_of_order=[unit])
            await producer.send("fine")

        run(own, work, raybroker__reconnect__timeout_ms=400)
