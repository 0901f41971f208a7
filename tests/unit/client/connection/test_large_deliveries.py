"""Large deliveries: bodies that are read before anybody sees the message, and what waits behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from raybroker.client.connection.large_deliveries import AHEAD, LargeDeliveries
from raybroker.client.connection.whole_body import WholeBody
from raybroker.model.blocks.block import Block, encode_block
from raybroker.model.blocks.large_block import PIECE_BYTES, PIECES_WAITING_MAX, LargeBlock, missing
from raybroker.model.errors import IllegalStateError
from raybroker.wire.native import frames as wire


def large(data: bytes, *, handle: int = 1, tag: int = 1, ordinal: int = 7) -> wire.DeliverLargeFrame:
    front = encode_block([data], producer=1, first_seq=1, timestamp_ms=1, persistent=True, kinds=0, front=True)
    return wire.DeliverLargeFrame(handle, 5, tag, 1, ordinal, LargeBlock.promised(front))


def small(*, handle: int = 1, tag: int = 2) -> wire.DeliverFrame:
    data = encode_block([b"small"], producer=1, first_seq=1, timestamp_ms=1, persistent=True, kinds=0)
    return wire.DeliverFrame(handle, 5, tag, 1, Block(data))


class Host:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[dict[str, Any], asyncio.Future[Any]]] = []
        self.delivered: list[Any] = []
        self.broke: list[BaseException] = []
        self.part = LargeDeliveries(self.request, self.delivered.append, self.broke.append)

    def request(self, op: str, args: dict[str, Any]) -> asyncio.Future[Any]:
        assert op == "read_body"
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked.append((args, future))
        return future

    async def answer(self, data: bytes) -> None:
        """Everything that is asked, until nothing more is."""
        while self.asked:
            args, future = self.asked.pop(0)
            start = args["piece"] * PIECE_BYTES
            if not future.cancelled():
                future.set_result(data[start : start + PIECE_BYTES])
            await turns()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(work: Callable[[Host], Awaitable[None]]) -> None:
    async def whole() -> None:
        await work(Host())

    asyncio.run(whole())


DATA = bytes(range(256)) * 10_000


def test_a_body_is_read_with_a_bounded_number_of_questions_and_then_delivered() -> None:
    async def work(host: Host) -> None:
        assert host.part.takes(large(DATA))
        assert host.part.behind
        await turns()
        assert [args["piece"] for args, _ in host.asked] == list(range(AHEAD))
        assert {(args["handle"], args["epoch"], args["ordinal"]) for args, _ in host.asked} == {(1, 5, 7)}
        await host.answer(DATA)
        (frame,) = host.delivered
        assert (type(frame), frame.tag) == (wire.DeliverFrame, 1)
        assert isinstance(frame.block.large, WholeBody)
        assert frame.block.large.data == DATA
        assert not host.part.behind

    run(work)


def test_what_follows_on_the_handle_waits_and_other_handles_do_not() -> None:
    async def work(host: Host) -> None:
        frames = [large(DATA, tag=1), small(tag=2), large(DATA[:300], tag=3), small(tag=4)]
        assert all(host.part.takes(frame) for frame in frames)
        assert not host.part.takes(small(handle=2))
        await turns()
        assert host.delivered == []
        await host.answer(DATA)
        assert [frame.tag for frame in host.delivered] == [1, 2, 3, 4]
        assert not host.part.takes(small(tag=5))

    run(work)


def test_a_message_that_is_gone_is_delivered_without_its_body() -> None:
    async def work(host: Host) -> None:
        host.part.takes(large(DATA))
        host.part.takes(small(tag=2))
        await turns()
        for _, future in host.asked:
            future.set_exception(IllegalStateError("gone"))
        await turns()
        assert [frame.tag for frame in host.delivered] == [1, 2]
        assert missing(host.delivered[0].block)

    run(work)


def test_a_body_of_another_length_is_none() -> None:
    async def work(host: Host) -> None:
        host.part.takes(large(DATA))
        await turns()
        await host.answer(DATA[:-1])
        assert missing(host.delivered[0].block)

    run(work)


def test_nothing_comes_after_the_connection_has_ended() -> None:
    async def work(host: Host) -> None:
        host.part.takes(large(DATA))
        host.part.takes(small(tag=2))
        await turns()
        host.part.lost()
        await turns()
        assert not host.part.behind
        assert host.delivered == []
        assert host.broke == []

    run(work)


def test_who_waits_for_a_handle_waits_until_everything_is_delivered() -> None:
    async def work(host: Host) -> None:
        await host.part.complete(1)
        host.part.takes(large(DATA))
        waiting = asyncio.ensure_future(host.part.complete(1))
        await turns()
        assert not waiting.done()
        await host.answer(DATA)
        await waiting
        assert len(host.delivered) == 1

    run(work)


def test_an_error_of_whoever_gets_it_is_told() -> None:
    async def work(host: Host) -> None:
        def refuse(frame: object) -> None:
            raise ValueError("not mine")

        part = LargeDeliveries(host.request, refuse, host.broke.append)
        part.takes(large(DATA[:100]))
        await turns()
        await host.answer(DATA[:100])
        assert [str(error) for error in host.broke] == ["not mine"]

    run(work)


def test_what_is_void_overtakes_nothing_that_comes_later() -> None:
    """A consumer gave everything back: what waits is delivered at once, without bodies, and reading ends."""

    async def work(host: Host) -> None:
        drained = wire.DrainedFrame(1, 5, 3)
        assert host.part.takes(large(DATA))
        assert host.part.takes(drained)
        assert host.part.takes(large(DATA, tag=2))
        assert host.part.takes(large(DATA, handle=2))
        await turns()
        host.part.deliver_now(1)
        host.part.deliver_now(3)
        assert [type(frame) for frame in host.delivered] == [wire.DeliverFrame, wire.DrainedFrame, wire.DeliverFrame]
        assert [missing(frame.block) for frame in (host.delivered[0], host.delivered[2])] == [True, True]
        assert not host.part.takes(small())
        await turns()
        await host.answer(DATA)
        assert [frame.handle for frame in host.delivered] == [1, 1, 1, 2]
        assert not missing(host.delivered[-1].block)
        assert not host.part.behind
        assert host.broke == []

    run(work)


def test_many_handles_ask_for_no_more_at_a_time_than_a_host_lets_wait() -> None:
    async def work(host: Host) -> None:
        handles = PIECES_WAITING_MAX // AHEAD + 4
        for handle in range(1, handles + 1):
            assert host.part.takes(large(DATA, handle=handle))
        await turns()
        assert len(host.asked) == PIECES_WAITING_MAX
        while host.asked:
            args, future = host.asked.pop(0)
            if args["handle"] == 2:
                future.set_exception(IllegalStateError("gone"))
            else:
                future.set_result(DATA[args["piece"] * PIECE_BYTES : (args["piece"] + 1) * PIECE_BYTES])
            await turns()
            assert len(host.asked) <= PIECES_WAITING_MAX
        assert len(host.delivered) == handles
        assert [frame.handle for frame in host.delivered if missing(frame.block)] == [2]
        assert not host.part.behind

    run(work)
