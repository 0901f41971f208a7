"""Sessions of long polls: how many there may be, whose they are, when they end, and what is told again."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from raybroker.services.http.http_bounds import CERTIFICATE
from raybroker.services.listening.arrivals import Origin
from raybroker.services.rest.long_poll import NUMBER, PATH, SESSION, LongPoll


class Rig:
    """Long polls whose listener is the test."""

    def __init__(self, **bounds: Any) -> None:
        self.came: list[tuple[socket.socket, str, Origin]] = []
        self.polls = LongPoll(lambda *came: self.came.append(came), self._read, **bounds)

    @asynccontextmanager
    async def _read(self, request: Any, most: int) -> AsyncIterator[bytes]:
        yield request.body_bytes

    async def ask(
        self,
        what: str = "",
        key: str = "",
        number: int = 0,
        body: bytes = b"",
        *,
        address: str = "192.0.2.1",
        scheme: str = "http",
        **state: Any,
    ) -> tuple[int, bytes]:
        from starlette.requests import Request

        headers = [(SESSION.lower().encode(), key.encode()), (NUMBER.lower().encode(), str(number).encode())]
        request: Any = Request(
            {
                "type": "http",
                "method": "POST",
                "path": PATH,
                "headers": headers,
                "client": (address, 7),
                "scheme": scheme,
                "state": state,
            }
        )
        request.body_bytes = body
        answer = await self.polls.steps[PATH + what](request)
        return answer.status_code, bytes(answer.body)

    async def open(self, **how: Any) -> str:
        status, body = await self.ask(**how)
        assert status == 201, body
        return str(json.loads(body)["session"])


def run(work: Callable[[Rig], Awaitable[None]], **bounds: Any) -> None:
    async def working() -> None:
        rig = Rig(**bounds)
        try:
            async with asyncio.timeout(60):
                await work(rig)
        finally:
            await rig.polls.close()
            for taken, _, _ in rig.came:
                taken.close()

    asyncio.run(working())


def test_bytes_pass_both_ways_and_answers_are_told_again_until_the_next_is_asked_for() -> None:
    async def work(rig: Rig) -> None:
        key = await rig.open()
        taken, peer, origin = rig.came[0]
        assert (peer, origin) == ("192.0.2.1:7", Origin(encrypted=False))
        for _ in range(2):
            assert await rig.ask("/up", key, 1, b"one") == (204, b"")
        await rig.ask("/up", key, 2, b"two")
        loop = asyncio.get_running_loop()
        assert await loop.sock_recv(taken, 100) in (b"onetwo", b"one")
        taken.send(b"answer")
        for _ in range(2):
            assert await rig.ask("/down", key, 1) == (200, b"answer")
        assert (await rig.ask("/down", key, 2)) == (204, b"")
        taken.close()
        assert (await rig.ask("/down", key, 3))[0] == 410
        assert not rig.polls.sessions

    run(work, wait_s=0.05)


def test_a_poll_that_is_asked_for_again_takes_the_place_of_the_one_that_waits() -> None:
    async def work(rig: Rig) -> None:
        key = await rig.open()
        first = asyncio.create_task(rig.ask("/down", key, 1))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(rig.ask("/down", key, 1))
        await asyncio.sleep(0.01)
        assert (first.done(), second.done()) == (True, False)
        rig.came[0][0].send(b"once")
        assert await second == (200, b"once")
        assert await first == (204, b"")
        assert await rig.ask("/down", key, 1) == (200, b"once")

    run(work, wait_s=30)


def test_a_session_is_for_who_comes_as_its_opener_came() -> None:
    async def work(rig: Rig) -> None:
        key = await rig.open(scheme="https", **{CERTIFICATE: b"ann"})
        assert rig.came[0][2] == Origin(encrypted=True, certificate=b"ann")
        assert (await rig.ask("/up", key, 1, b"x", scheme="https", **{CERTIFICATE: b"bob"}))[0] == 410
        assert (await rig.ask("/up", key, 1, b"x", scheme="https"))[0] == 410
        assert (await rig.ask("/up", key, 1, b"x"))[0] == 410
        other_address = await rig.ask("/up", key, 1, b"x", address="192.0.2.9", scheme="https", **{CERTIFICATE: b"ann"})
        assert other_address[0] == 204

    run(work)


def test_sessions_are_bounded_in_all_and_for_one_address() -> None:
    async def work(rig: Rig) -> None:
        keys = [await rig.open() for _ in range(2)]
        assert (await rig.ask())[0] == 503
        await rig.open(address="192.0.2.2")
        assert (await rig.ask(address="192.0.2.3"))[0] == 503
        await rig.ask("/end", keys[0])
        await rig.open(address="192.0.2.3")
        assert len(rig.polls.sessions) == 3

    run(work, most=3, of_address=2)


def test_a_session_that_nobody_asks_for_ends_and_so_does_its_connection() -> None:
    async def work(rig: Rig) -> None:
        await rig.open()
        taken = rig.came[0][0]
        assert await asyncio.get_running_loop().sock_recv(taken, 1) == b""
        assert not rig.polls.sessions

    run(work, expire_s=0.1)


def test_bytes_that_the_broker_does_not_take_wait_and_more_requests_do_not() -> None:
    async def work(rig: Rig) -> None:
        key = await rig.open()
        piece = b"x" * (1 << 20)
        waiting, number = [], 0
        while not waiting or waiting[-1].done():
            number += 1
            waiting.append(asyncio.create_task(rig.ask("/up", key, number, piece)))
            await asyncio.sleep(0.05)
        again = asyncio.create_task(rig.ask("/up", key, number, piece))
        await asyncio.sleep(0.01)
        assert (await rig.ask("/up", key, number, piece))[0] == 503
        await rig.ask("/end", key)
        assert (await waiting[-1])[0] == (await again)[0] == 410

    run(work)


@pytest.mark.parametrize("what", ["/down", "/up"])
def test_when_the_server_ends_whoever_waits_is_told(what: str) -> None:
    async def work(rig: Rig) -> None:
        key = await rig.open()
        waiting = asyncio.create_task(rig.ask("/down", key, 1))
        await asyncio.sleep(0.01)
        await rig.polls.close()
        assert (await waiting)[0] == 410
        assert (await rig.ask(what, key, 1))[0] == 410

    run(work, wait_s=30)


def test_where_clients_pause_between_polls_a_session_lives_longer_than_a_pause() -> None:
    polls = LongPoll(lambda *came: None, None, pull_s=100, expire_s=60)  # type: ignore[arg-type]
    assert polls._expire_s == 300
    assert polls._wait_s < 1
