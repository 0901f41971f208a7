"""A channel: requests and confirmations find who waits for them, also when the link ends first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

import pytest

from raybroker.client.cluster.directory import DestinationPlace
from raybroker.client.connection.channel import Channel
from raybroker.errors import BrokerError, ConnectionLostError, IllegalStateError, SecurityError, StoreError
from raybroker.transport.link import Link, memory_pair
from raybroker.wire.native import frames as wire
from raybroker.wire.native.connection import Native

TOKEN = bytes(32)


class FakeHost:
    """The other end: keeps every frame, and answers with what a test gives it."""

    def __init__(self, token: bytes = TOKEN) -> None:
        self.frames: list[wire.Frame] = []
        self.ended: list[object] = []
        self.answer: Callable[[wire.CallFrame], bytes] = lambda call: wire.reply(call.request, None)
        self.link = Link(Native(token=token), on_frames=self._take, on_lost=self.ended.append)

    def _take(self, frames: list[wire.Frame]) -> None:
        self.frames += frames
        for frame in frames:
            if isinstance(frame, wire.CallFrame):
                self.link.write(self.answer(frame))

    async def dial(self, factory: Callable[[], Link]) -> None:
        memory_pair(asyncio.get_running_loop(), factory(), self.link)

    async def channel(self, timeout_s: float = 5.0) -> Channel:
        return await Channel.open(DestinationPlace("host", TOKEN, self.dial), {}, timeout_s)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 20))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_an_answer_goes_to_its_request_whatever_the_order() -> None:
    async def work() -> None:
        host = FakeHost()
        channel = await host.channel()
        host.answer = lambda call: b""
        first, second = (asyncio.ensure_future(channel.call(op, {})) for op in ("a", "b"))
        await turns()
        calls = [f for f in host.frames if isinstance(f, wire.CallFrame) and f.op in "ab"]
        host.link.write(wire.reply(calls[1].request, "for b"), wire.failed(calls[0].request, "store", "for a"))
        host.link.write(wire.reply(999, "for nobody"), wire.acked(998, 0))
        assert await second == "for b"
        with pytest.raises(StoreError, match="for a"):
            await first

    run(work)


def test_everything_that_waits_fails_when_the_link_ends_and_says_why() -> None:
    async def work() -> None:
        host = FakeHost()
        channel = await host.channel()
        host.answer = lambda call: b""
        waiting = asyncio.ensure_future(channel.call("a", {}))
        confirmed: Future[int] = Future()
        channel.acknowledge(1, 1, [(1, 1)], confirmed)
        await turns()
        host.link.write(wire.event("closing", {"code": "store", "text": "the disk is gone"}))
        host.link.close()
        with pytest.raises(ConnectionLostError, match="the disk is gone"):
            await waiting
        assert isinstance(confirmed.exception(0), ConnectionLostError)
        late: Future[int] = Future()
        channel.acknowledge(1, 1, [(1, 1)], late)
        assert isinstance(late.exception(0), ConnectionLostError)
        with pytest.raises(ConnectionLostError):
            await channel.call("b", {})

    run(work)


def test_more_ranges_than_a_frame_holds_go_in_several_and_each_is_confirmed() -> None:
    async def work() -> None:
        host = FakeHost()
        channel = await host.channel()
        ranges = [(2 * n, 2 * n) for n in range(70_000)]
        confirmed: Future[int] = Future()
        channel.acknowledge(1, 1, ranges, confirmed)
        await turns()
        acks = [f for f in host.frames if isinstance(f, wire.AckFrame)]
        assert [r for a in acks for r in a.ranges] == ranges
        assert len(acks) == 3
        for ack, unknown in zip(acks, (2, 0, 1), strict=True):
            assert not confirmed.done()
            host.link.write(wire.acked(ack.request, unknown))
            await turns()
        assert confirmed.result(0) == 3, "what the host did not know of any part"
        assert not channel.lost

    run(work)


@pytest.mark.parametrize("event", ["destroyed", "halted"])
def test_what_is_not_confirmed_fails_with_its_handle(event: str) -> None:
    async def work() -> None:
        host = FakeHost()
        channel = await host.channel()
        mine, other = Future[int](), Future[int]()
        channel.acknowledge(1, 1, [(1, 1)], mine)
        channel.settle_deliveries(2, 1, "release", -1, "", [(1, 1)], other)
        await turns()
        host.link.write(wire.event(event, {"handle": 1, "code": "store_damaged", "text": "a byte has changed"}))
        await turns()
        assert isinstance(mine.exception(0), BrokerError)
        assert not other.done()

    run(work)


def test_a_handle_is_closed_after_its_acknowledgements_are_answered() -> None:
    async def work() -> None:
        host = FakeHost()
        channel = await host.channel()
        confirmed: Future[int] = Future()
        channel.acknowledge(1, 1, [(1, 1)], confirmed)
        channel.acknowledge(2, 1, [(1, 1)], Future())
        waiting = asyncio.ensure_future(channel.confirmed(1))
        await turns()
        assert not waiting.done()
        request = next(f.request for f in host.frames if isinstance(f, wire.AckFrame))
        host.link.write(wire.acked(request, 0))
        await waiting
        assert confirmed.result(0) == 0
        lost = asyncio.ensure_future(channel.confirmed(2))
        await turns()
        host.link.abort()
        await lost

    run(work)


def test_a_confirmation_that_nobody_waits_for_any_more_disturbs_nothing() -> None:
    async def work() -> None:
        host = FakeHost()
        channel = await host.channel()
        given_up: Future[int] = Future()
        channel.acknowledge(1, 1, [(1, 1)], given_up)
        given_up.cancel()
        await turns()
        request = next(f.request for f in host.frames if isinstance(f, wire.AckFrame))
        host.link.write(wire.acked(request, 0))
        assert await channel.call("a", {}) is None

    run(work)


def test_a_wrong_token_or_a_silent_host_is_no_open_channel_and_leaves_no_link() -> None:
    async def work() -> None:
        stranger = FakeHost(token=bytes(range(32)))
        with pytest.raises(ConnectionLostError):
            await stranger.channel()
        await turns()
        assert isinstance(stranger.ended[0], SecurityError)
        assert stranger.frames == []
        silent = FakeHost()
        silent.answer = lambda call: b""
        with pytest.raises(ConnectionLostError, match="no answer"):
            await silent.channel(timeout_s=0.05)
        refusing = FakeHost()
        refusing.answer = lambda call: wire.failed(call.request, "illegal_state", "the host has stopped")
        with pytest.raises(IllegalStateError, match="stopped"):
            await refusing.channel()
        await turns()
        assert len(silent.ended) == len(refusing.ended) == 1

    run(work)


def test_what_a_host_may_not_say_ends_the_channel() -> None:
    async def work() -> None:
        host = FakeHost()
        channel = await host.channel()
        host.link.write(wire.flow(True))
        await turns()
        assert channel.lost
        assert host.ended

    run(work)


def test_silence_between_two_pings_ends_the_channel() -> None:
    async def work() -> None:
        host = FakeHost()
        channel = await host.channel()
        channel.ping()
        await turns()
        host.link.write(wire.pong(0))
        await turns()
        channel.ping()
        channel.ping()
        await turns()
        assert channel.lost

    run(work)
