"""A connection whose other end takes nothing is given up once; one that takes a little now and then is not."""

from __future__ import annotations

import asyncio

from raybroker.transport.unread import UnreadWatch


class Connection:
    bytes_out = unsent_bytes = 0


def test_who_takes_nothing_is_given_up_and_who_takes_a_byte_is_not() -> None:
    async def story() -> None:
        told: list[str] = []
        stuck, slow, idle, never = Connection(), Connection(), Connection(), Connection()
        over = asyncio.Event()

        def give_up(why: str) -> None:
            told.append(why)
            over.set()

        watches = [UnreadWatch(0.4, one, give_up) for one in (stuck, slow, idle)] + [UnreadWatch(-1, never, give_up)]
        for one in (stuck, slow, never):
            one.bytes_out = one.unsent_bytes = 1000
        for watch in watches:
            watch.start()

        async def read_slowly() -> None:
            while not over.is_set():
                slow.unsent_bytes -= 1
                await asyncio.sleep(0)
                slow.bytes_out += 1
                slow.unsent_bytes += 1  # It never becomes less, and is other bytes each time.
                await asyncio.sleep(0.01)

        async with asyncio.timeout(30):
            await asyncio.gather(over.wait(), read_slowly())
        for watch in watches:
            watch.stop()
        (why,) = told
        assert "nothing of 1000 bytes" in why
        assert "raybroker.service.unread_timeout" in why

    asyncio.run(story())
