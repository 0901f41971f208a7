"""What leaves a consumer's buffer: expired messages do not, and what is handed out is told when it has to be."""

from __future__ import annotations

from array import array

import pytest

from raybroker.client.consumer.message import Message
from raybroker.wire.native import frames as wire
from tests.unit.client.fakes import Scripted, run, turns

PAST, NEVER = 1, 0


def bodies(messages: list[Message]) -> list[bytes]:
    return [message.body for message in messages]


@pytest.mark.parametrize("one_by_one", [True, False])
def test_an_expired_message_is_settled_and_not_handed_out(one_by_one: bool) -> None:
    async def work() -> None:
        scripted = Scripted()
        session = scripted.session()
        consumer = await scripted.consumer(session)
        later = scripted.core.clock.now_ms() + 1_000_000
        expires = array("Q", (NEVER, PAST, PAST, later, PAST))
        scripted.host.deliver([b"0", b"1", b"2", b"3", b"4"], expires=expires)
        await turns()
        found = []
        while consumer.has_something():
            found += (
                [m] if one_by_one and (m := consumer.take_one()) else [] if one_by_one else consumer.take_messages(2)
            )
        assert bodies(found) == [b"0", b"3"]
        assert [m.expiration for m in found] == [NEVER, later]
        assert consumer.buffered == 0
        session.acknowledge(None)
        await turns()
        settled = [(f.outcome, f.delay_ms, f.request, r) for f in scripted.host.of(wire.SettleFrame) for r in f.ranges]
        assert {row[:3] for row in settled} == {("expired", -1, 0)}
        assert sorted(t for *_, (a, b) in settled for t in range(a, b + 1)) == [2, 3, 5]
        assert [f.ranges for f in scripted.host.of(wire.AckFrame)] == [[(1, 1), (4, 4)]]

    run(work)


def test_nothing_but_expired_messages_is_nothing() -> None:
    async def work() -> None:
        scripted = Scripted()
        consumer = await scripted.consumer(scripted.session())
        scripted.host.deliver([b"a", b"b"], expires=array("Q", (PAST, PAST)))
        scripted.host.deliver([b"c"], tag=3)
        await turns()
        message = consumer.take_one()
        assert message is not None
        assert message.body == b"c"
        scripted.host.deliver([b"d"], tag=4, expires=array("Q", (PAST,)))
        await turns()
        assert consumer.take_one() is None
        assert consumer.take_messages(5) == []

    run(work)


def test_expired_messages_count_as_consumed_for_the_flow() -> None:
    async def work() -> None:
        scripted = Scripted()
        scripted.host.answers["open_consumer"] = {"epoch": 1, "limit": 2, "active": True}
        consumer = await scripted.consumer(scripted.session(), limit=2)
        scripted.host.deliver([b"a", b"b"], expires=array("Q", (PAST, PAST)))
        await turns()
        assert consumer.take_one() is None
        await turns()
        assert [f.credit for f in scripted.host.of(wire.CreditFrame)][-1] >= 1

    run(work)


def test_messages_that_are_looked_at_are_handed_out_together_as_others_are() -> None:
    """What a delivery costs is paid once, though some of it may expire, or went back to the broker."""

    async def work() -> None:
        scripted = Scripted()
        session = scripted.session()
        consumer = await scripted.consumer(session)
        parts: list[int] = []
        hand_out = session.handed_out
        session.handed_out = lambda count: parts.append(count) or hand_out(count)  # type: ignore[method-assign,func-returns-value]
        later = scripted.core.clock.now_ms() + 1_000_000
        scripted.host.deliver([b"0", b"1", b"2", b"3", b"4"], expires=array("Q", (later, later, PAST, later, later)))
        scripted.host.deliver([b"5", b"6", b"7"], tag=6)
        await turns()
        assert consumer.give_up([(8, 8)])[0] == [(8, 8)]
        assert bodies(consumer.take_messages(9)) == [b"0", b"1", b"3", b"4", b"5", b"6"]
        assert parts == [2, 2, 2]
        session.acknowledge(None)
        await turns()
        assert [f.ranges for f in scripted.host.of(wire.AckFrame)] == [[(1, 2), (4, 7)]]

    run(work)


def test_without_acknowledgements_expired_messages_are_only_dropped() -> None:
    async def work() -> None:
        scripted = Scripted()
        consumer = await scripted.consumer(scripted.session("none"))
        scripted.host.deliver([b"a", b"b"], expires=array("Q", (PAST, NEVER)), attempt=2)
        await turns()
        assert bodies(consumer.take_messages(9)) == [b"b"]
        await turns()
        assert scripted.host.of(wire.SettleFrame) + scripted.host.of(wire.BegunFrame) == []

    run(work)


def test_the_host_hears_that_a_message_of_a_later_attempt_was_handed_out_once_for_each_run() -> None:
    async def work() -> None:
        scripted = Scripted()
        consumer = await scripted.consumer(scripted.session())
        scripted.host.deliver([b"first"])
        scripted.host.deliver([b"a", b"b", b"c"], tag=2, attempt=2)
        await turns()
        assert len(consumer.take_messages(3)) == 3
        await turns()
        assert [f.tag for f in scripted.host.of(wire.BegunFrame)] == [3]
        assert consumer.take_one() is not None
        await turns()
        assert [(f.handle, f.epoch, f.tag) for f in scripted.host.of(wire.BegunFrame)] == [(1, 1, 3), (1, 1, 4)]

    run(work)


def test_recover_tells_what_the_application_had_got_and_the_delay_of_the_session() -> None:
    async def work() -> None:
        scripted = Scripted(defaultRedeliveryDelay=70)
        session = scripted.session()
        consumer = await scripted.consumer(session)
        scripted.host.deliver([b"a", b"b", b"c"])
        await turns()
        consumer.take_messages(2)
        await session.recover()
        session.redelivery_delay_ms = 5
        await session.recover()
        releases = scripted.host.calls("release")
        assert [(args["consumed"], args["delay_ms"]) for _, args in releases] == [(2, 70), (0, 5)]

    run(work)


def test_the_ack_deadline_of_what_waits_in_the_buffer_is_extended_and_of_what_was_received_is_not() -> None:
    async def work() -> None:
        scripted = Scripted()
        session = scripted.session()
        consumer = await scripted.consumer(session, lease_ms=30)
        assert scripted.host.calls("open_consumer")[0][1]["lease_ms"] == 30
        scripted.host.deliver([b"a", b"b", b"c"])
        scripted.host.deliver([b"d"], tag=4)
        await turns()
        held = consumer.take_messages(1)
        seen = len(scripted.host.of(wire.ExtendFrame))
        while len(scripted.host.of(wire.ExtendFrame)) == seen:
            await scripted_pause()
        assert scripted.host.of(wire.ExtendFrame)[seen].ranges == [(2, 3), (4, 4)]
        session.handed.in_hand = held[0]
        seen = len(scripted.host.of(wire.ExtendFrame))
        while len(scripted.host.of(wire.ExtendFrame)) == seen:
            await scripted_pause()
        assert scripted.host.of(wire.ExtendFrame)[-1].ranges == [(1, 1), (2, 3), (4, 4)]
        held[0].extend()
        await turns()
        assert [(1, 1)] in [f.ranges for f in scripted.host.of(wire.ExtendFrame)]
        await consumer.close()

    async def scripted_pause() -> None:
        await turns(1)

    run(work)
