"""What the broker takes back before it is settled leaves the buffer and the books (W-82)."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from raybroker.client.consumer.acknowledging import unacknowledged_ranges
from raybroker.client.consumer.consumer import ConsumerCore
from raybroker.client.consumer.message import Message
from raybroker.client.session.session import SessionCore
from raybroker.content.headers import encode_header
from raybroker.wire.native import frames as wire
from tests.unit.client.fakes import Scripted, run, turns

PAST = 1


def bodies(messages: list[Message]) -> list[bytes]:
    return [message.body for message in messages]


async def opened(**options: Any) -> tuple[Scripted, SessionCore, ConsumerCore]:
    scripted = Scripted()
    scripted.host.answers["open_consumer"] = {"epoch": 1, "limit": options.get("limit", 1000), "active": True}
    session = scripted.session()
    return scripted, session, await scripted.consumer(session, **options)


def withdraw(scripted: Scripted, *ranges: tuple[int, int], epoch: int = 1) -> None:
    scripted.host.link.write(wire.withdrawn(1, epoch, list(ranges)))


@pytest.mark.parametrize("one_by_one", [True, False])
def test_withdrawn_messages_are_not_handed_out(one_by_one: bool) -> None:
    async def work() -> None:
        scripted, session, consumer = await opened()
        scripted.host.deliver([b"1", b"2", b"3", b"4"])
        scripted.host.deliver([b"5", b"6"], tag=5)
        scripted.host.deliver([b"7"], tag=7)
        await turns()
        assert bodies(consumer.take_messages(1)) == [b"1"]
        withdraw(scripted, (1, 1), (3, 3), (5, 6))
        await turns()
        assert consumer.buffered == 3
        found = []
        while consumer.has_something():
            found += (
                [m] if one_by_one and (m := consumer.take_one()) else [] if one_by_one else consumer.take_messages(2)
            )
        assert bodies(found) == [b"2", b"4", b"7"]
        assert consumer.buffered == 0
        session.acknowledge(None)
        await turns()
        assert [f.ranges for f in scripted.host.of(wire.AckFrame)] == [[(2, 2), (4, 4), (7, 7)]]
        assert scripted.host.of(wire.SettleFrame) == []

    run(work)


def test_those_of_an_ended_attachment_are_not_meant() -> None:
    async def work() -> None:
        scripted, _, consumer = await opened()
        scripted.host.deliver([b"1"])
        withdraw(scripted, (1, 1), epoch=9)
        await turns()
        assert bodies(consumer.take_messages(5)) == [b"1"]

    run(work)


def test_a_buffer_that_is_withdrawn_whole_is_empty_and_asks_for_more() -> None:
    async def work() -> None:
        scripted, _, consumer = await opened(limit=2)
        scripted.host.deliver([b"1", b"2"])
        await turns()
        withdraw(scripted, (1, 2))
        await turns()
        assert not consumer.has_something()
        assert [f.credit for f in scripted.host.of(wire.CreditFrame)] == [2]
        scripted.host.deliver([b"3"], tag=3)
        await turns()
        assert bodies(consumer.take_messages(5)) == [b"3"]

    run(work)


def test_withdrawn_ones_that_have_expired_are_settled_by_nobody() -> None:
    async def work() -> None:
        scripted, _, consumer = await opened()
        scripted.host.deliver([b"1", b"2", b"3"], expires=array("Q", (PAST, PAST, 0)))
        await turns()
        withdraw(scripted, (1, 1))
        withdraw(scripted, (1, 1))
        await turns()
        assert consumer.buffered == 2
        assert bodies(consumer.take_messages(5)) == [b"3"]
        await turns()
        assert [f.ranges for f in scripted.host.of(wire.SettleFrame)] == [[(2, 2)]]
        assert consumer.buffered == 0

    run(work)


@pytest.mark.parametrize(("outcome", "held"), [("fail", True), ("release", True), ("reject", False)])
def test_while_a_message_of_a_unit_is_given_back_nothing_is_handed_out(outcome: str, held: bool) -> None:
    async def work() -> None:
        scripted, session, consumer = await opened()
        header = encode_header(None, None, None, None, unit="u")
        scripted.host.deliver([b"1", b"2"], headers=[header, header])
        await turns()
        first = consumer.take_one()
        assert first is not None
        assert first.unit_of_order == "u"
        confirmations = session.settle_as(first, outcome)
        assert (consumer.take_one() is None) == held
        assert consumer.take_messages(1) == []
        waiting = consumer.arrival_future()
        assert not waiting.done()
        while not confirmations[0].done():
            await turns(1)
        await turns()
        assert session.handed.holds_back == 0
        if held:
            assert waiting.done()
            assert bodies(consumer.take_messages(5)) == [b"2"]

    run(work)


def test_ranges() -> None:
    assert unacknowledged_ranges.ranges_of([1, 2, 3, 7, 9, 10]) == [(1, 3), (7, 7), (9, 10)]
    assert unacknowledged_ranges.within([(1, 3), (6, 8)], 2, 1, 6) == frozenset({1, 4, 5})
    rows = [[1, 5, 10], [8, 9, 20]]
    assert unacknowledged_ranges.cut_ranges(rows, [(2, 3), (5, 8), (30, 40)]) == 4
    assert rows == [[1, 1, 10], [4, 4, 13], [9, 9, 21]]


def test_giving_back_while_the_consumer_is_being_attached_anew_gives_nothing_back() -> None:
    async def work() -> None:
        scripted, _, consumer = await opened()
        host = scripted.host
        host.silent.add("open_consumer")
        host.link.abort()
        while len(host.calls("open_consumer")) < 2:
            await turns()
        await consumer.release()
        assert host.calls("release") == []
        attaching = next(f for f in reversed(host.of(wire.CallFrame)) if f.op == "open_consumer")
        host.link.write(wire.reply(attaching.request, {"epoch": 2, "limit": 1000, "active": True}))
        host.deliver([b"1"], handle=attaching.args["handle"], epoch=2)
        await turns()
        assert bodies(consumer.take_messages(1)) == [b"1"]

    run(work)
