"""The memory for large bodies of one connection."""

from __future__ import annotations

import asyncio
import gc

from raybroker.client.connection.body_room import BodyRoom, CountedBody


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_bodies_wait_in_their_order_until_others_are_gone() -> None:
    async def story() -> None:
        room = BodyRoom(10)
        await room.take_room(6)
        body = CountedBody(bytes(6), room)
        done: list[int] = []

        async def want(size: int) -> None:
            await room.take_room(size)
            done.append(size)

        tasks = [asyncio.create_task(want(size)) for size in (5, 1, 4)]
        await turns()
        assert (done, room.held) == ([], 6)
        del body
        gc.collect()
        await turns()
        assert (done, room.held) == ([5, 1, 4], 10)
        await asyncio.gather(*tasks)

    asyncio.run(story())


def test_one_alone_has_room_whatever_it_has() -> None:
    async def story() -> None:
        room = BodyRoom(10)
        await room.take_room(50)
        waiting = asyncio.create_task(room.take_room(50))
        await turns()
        assert not waiting.done()
        room.give_back(50)
        await waiting
        assert room.held == 50

    asyncio.run(story())


def test_whoever_waits_no_longer_keeps_nobody_waiting() -> None:
    async def story() -> None:
        room = BodyRoom(10)
        await room.take_room(10)
        first, second = asyncio.create_task(room.take_room(9)), asyncio.create_task(room.take_room(1))
        await turns()
        room.give_back(1)
        await turns()
        assert not second.done()  # It is not its turn.
        first.cancel()
        await turns()
        assert second.done()
        assert room.held == 10
        third = asyncio.create_task(room.take_room(10))
        await turns()
        room.give_back(10)
        asyncio.get_running_loop().call_soon(third.cancel)  # It has just got its room.
        await turns()
        assert third.cancelled()
        assert room.held == 0

    asyncio.run(story())
