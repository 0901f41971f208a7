"""Sockets that have not said what they want: bounded in all and by address; their first byte stays where it is."""

from __future__ import annotations

import asyncio
import socket

from raybroker.services.listening.accepting import first_byte
from raybroker.services.listening.arrivals import ARRIVING_MAX, ARRIVING_OF_ADDRESS_MAX, Arrivals


def test_bounds_hold_until_somebody_leaves() -> None:
    async def story() -> None:
        arrivals, leave = Arrivals(), asyncio.Event()
        ended: list[str] = []

        async def stay() -> None:
            await leave.wait()

        def come(address: str) -> bool:
            return arrivals.start(address, stay, lambda: ended.append(address))

        assert all(come("a") for _ in range(ARRIVING_OF_ADDRESS_MAX))
        assert not come("a")
        others = ARRIVING_MAX - ARRIVING_OF_ADDRESS_MAX
        assert all(come(str(number)) for number in range(others))
        assert len(arrivals) == ARRIVING_MAX
        first = next(iter(arrivals._tasks))
        await asyncio.sleep(0)
        assert come("z"), "the one that came first makes room"
        await asyncio.wait([first])
        assert first.cancelled()
        await asyncio.sleep(0)
        assert ended == ["a"], "whoever makes room is told of"
        assert len(arrivals) == ARRIVING_MAX
        leave.set()
        await asyncio.gather(*arrivals._tasks)
        await asyncio.sleep(0)
        assert len(arrivals) == 0
        assert not arrivals._by_address
        assert come("a")
        arrivals.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert ended == ["a"], "nobody else came instead of the others"

    asyncio.run(story())


def test_a_socket_that_makes_room_before_its_work_begins_is_closed() -> None:
    async def story() -> None:
        arrivals = Arrivals(1, 1)
        pairs = [socket.socketpair() for _ in range(3)]
        began: list[int] = []

        def come(number: int) -> bool:
            async def work() -> None:
                began.append(number)
                await asyncio.Event().wait()

            return arrivals.start(str(number), work, pairs[number][0].close)

        assert all(come(number) for number in range(3))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert began == [2]
        assert [one.fileno() == -1 for one, _ in pairs] == [True, True, False]
        arrivals.cancel()
        for pair in pairs:
            for one in pair:
                one.close()

    asyncio.run(story())


def test_the_first_byte_is_seen_and_not_taken() -> None:
    async def story() -> None:
        one, other = socket.socketpair()
        with one, other:
            one.setblocking(False)
            waiting = asyncio.create_task(first_byte(one))
            await asyncio.sleep(0)
            other.sendall(b"\x16rest")
            assert await waiting == 0x16
            assert one.recv(100) == b"\x16rest"
            other.close()
            assert await first_byte(one) == -1

    asyncio.run(story())
