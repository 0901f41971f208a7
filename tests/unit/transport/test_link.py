"""The link: frames through a pipe or a socket, errors that end it once, and reading that can be paused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raybroker.errors import BrokerError, ProtocolError, SecurityError
from raybroker.model.blocks.block import encode_block
from raybroker.transport.link import SOON_BYTES_MAX, Link, memory_pair
from raybroker.transport.loops import new_event_loop
from raybroker.wire.native import frames as wire
from raybroker.wire.native.connection import TOKEN_BYTES, Native, preface

TOKEN = bytes(TOKEN_BYTES)


class End:
    """One side of a connection, and everything that happened to it."""

    def __init__(self, token: bytes | None) -> None:
        self.frames: list[wire.Frame] = []
        self.ended: list[BrokerError | None] = []
        self.writable = 0
        self.link = Link(
            Native(token=token), on_frames=self.frames.extend, on_lost=self.ended.append, on_writable=self._went_on
        )

    def _went_on(self) -> None:
        self.writable += 1


class Pair:
    """A listening and a connecting end over ``kind`` of transport."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.host, self.client = End(TOKEN), End(None)
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Pair:
        loop = asyncio.get_running_loop()
        if self.kind == "pipe":
            memory_pair(loop, self.client.link, self.host.link)
        else:
            self._server = await loop.create_server(lambda: self.host.link, "127.0.0.1", 0)
            await loop.create_connection(lambda: self.client.link, *self._server.sockets[0].getsockname()[:2])
        return self

    async def __aexit__(self, *_: object) -> None:
        self.client.link.abort()
        self.host.link.abort()
        await until(lambda: self.client.ended and self.host.ended)
        if self._server is not None:
            self._server.close()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for is seen from outside only
            await asyncio.sleep(0.001)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = new_event_loop()
    unseen: list[str] = []
    loop.set_exception_handler(lambda _, context: unseen.append(str(context)))
    try:
        loop.run_until_complete(work())
    finally:
        loop.close()
    assert unseen == []


kinds = pytest.mark.parametrize("kind", ["pipe", "socket"])


@kinds
def test_frames_go_both_ways_whole_and_in_order(kind: str) -> None:
    async def work() -> None:
        async with Pair(kind) as pair:
            block = encode_block([b"x" * 3_000_000], producer=1, first_seq=1, timestamp_ms=0, persistent=True, kinds=0)
            pair.client.link.write(preface(TOKEN))
            for n in range(200):
                pair.client.link.write(wire.ping(n), *wire.send(1, n, block) if n % 50 == 0 else (wire.flow(True),))
            await until(lambda: len(pair.host.frames) == 400)
            assert [f.nonce for f in pair.host.frames if isinstance(f, wire.PingFrame)] == list(range(200))
            assert [f.block.body(0).nbytes for f in pair.host.frames if isinstance(f, wire.SendFrame)] == [
                3_000_000
            ] * 4
            pair.host.link.write(wire.pong(7))
            await until(lambda: pair.client.frames)
            assert pair.client.frames == [wire.PongFrame(7)]
            assert pair.host.link.bytes_in > 12_000_000

    run(work)


@kinds
@pytest.mark.parametrize(
    ("data", "error"), [(bytes(60), SecurityError), (preface(TOKEN) + b"\1\0\0\0\x63", ProtocolError)]
)
def test_an_illegal_peer_ends_the_link_once_and_is_not_heard_again(
    kind: str, data: bytes, error: type[BrokerError]
) -> None:
    async def work() -> None:
        async with Pair(kind) as pair:
            pair.client.link.write(data)
            pair.client.link.write(preface(TOKEN) + wire.ping(1))
            await until(lambda: pair.host.ended and pair.client.ended)
            assert [type(e) for e in pair.host.ended] == [error]
            assert pair.host.frames == []
            pair.host.link.write(wire.pong(1))
            pair.host.link.close()
        assert len(pair.host.ended) == len(pair.client.ended) == 1

    run(work)


@kinds
def test_what_was_written_before_closing_still_arrives(kind: str) -> None:
    async def work() -> None:
        async with Pair(kind) as pair:
            pair.client.link.write(preface(TOKEN) + wire.ping(1))
            await until(lambda: pair.host.frames)  # A socket that is closed with something unread resets its peer.
            pair.host.link.write(wire.event("closing", {"code": "store"}))
            pair.host.link.close()
            await until(lambda: pair.client.ended)
            assert pair.client.frames == [wire.EventFrame("closing", {"code": "store"})]
            assert pair.client.ended == [None]

    run(work)


@kinds
def test_a_paused_link_delivers_nothing_until_it_goes_on(kind: str) -> None:
    async def work() -> None:
        async with Pair(kind) as pair:
            pair.client.link.write(preface(TOKEN) + wire.ping(1))
            await until(lambda: pair.host.frames)
            pair.host.link.pause_reading()
            pair.host.link.pause_reading()
            for n in range(2, 5):
                pair.client.link.write(wire.ping(n))
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(pair.host.frames) == 1
            pair.host.link.resume_reading()
            pair.host.link.resume_reading()
            await until(lambda: len(pair.host.frames) == 4)
            assert pair.host.frames == [wire.PingFrame(n) for n in range(1, 5)]

    run(work)


def test_a_link_whose_peer_does_not_read_says_so_and_says_when_it_goes_on() -> None:
    async def work() -> None:
        async with Pair("socket") as pair:
            pair.client.link.write(preface(TOKEN) + wire.ping(1))
            await until(lambda: pair.host.frames)
            pair.host.link.pause_reading()
            block = encode_block([b"x" * 1_000_000], producer=1, first_seq=1, timestamp_ms=0, persistent=True, kinds=0)
            written = 0
            while not pair.client.link.congested:
                pair.client.link.write(*wire.send(1, 1, block))
                written += 1
                assert written < 200
                await asyncio.sleep(0)
            assert pair.client.writable == 0
            pair.host.link.resume_reading()
            await until(lambda: pair.client.writable)
            assert not pair.client.link.congested
            await until(lambda: len(pair.host.frames) == 1 + written)

    run(work)


@kinds
def test_what_may_wait_for_the_end_of_the_turn_leaves_in_one_write_and_in_order(kind: str) -> None:
    async def work() -> None:
        async with Pair(kind) as pair:
            link = pair.client.link
            link.write(preface(TOKEN))
            before = link.writes
            for n in range(3):
                link.write_soon(wire.ping(n))
            assert link.writes == before
            await asyncio.sleep(0)
            assert link.writes == before + 1, "three frames, one write"
            link.write_soon(wire.ping(3))
            link.write(wire.ping(4))
            assert link.writes == before + 2, "what waited goes along with the next write, before it"
            await asyncio.sleep(0)
            assert link.writes == before + 2
            await until(lambda: len(pair.host.frames) == 5)
            assert [frame.nonce for frame in pair.host.frames if isinstance(frame, wire.PingFrame)] == list(range(5))
            assert link.traffic() == (0, before + 2, len(preface(TOKEN)) + 5 * len(wire.ping(0)))

    run(work)


@kinds
def test_much_does_not_wait_and_the_end_of_a_link_does_not_forget_what_waits(kind: str) -> None:
    async def work() -> None:
        async with Pair(kind) as pair:
            link = pair.client.link
            link.write(preface(TOKEN))
            large = bytes(SOON_BYTES_MAX)
            block = encode_block([large], producer=1, first_seq=1, timestamp_ms=0, persistent=True, kinds=0)
            before = link.writes
            link.write_soon(*wire.send(1, 1, block))
            assert link.writes == before + 1
            link.write_soon(wire.ping(7))
            link.close()
            await until(lambda: pair.host.ended)
            assert [type(frame) for frame in pair.host.frames] == [wire.SendFrame, wire.PingFrame]
            link.write_soon(wire.ping(8))
            await asyncio.sleep(0)
            assert link.writes == before + 2, "nothing is written to what has ended"

    run(work)
