"""What the broker asks back leaves the buffer unless the application has got it (D-11, F-22)."""

from __future__ import annotations

import pytest

from raybroker.wire.native import frames as wire
from tests.unit.client.fakes import Scripted, run, turns
from tests.unit.client.test_withdrawn import bodies, opened


def recall(scripted: Scripted, *ranges: tuple[int, int], epoch: int = 1) -> None:
    scripted.host.link.write(wire.recall(1, epoch, list(ranges)))


@pytest.mark.parametrize("mode", ["client", "auto"])
def test_what_was_not_begun_is_given_back_and_the_rest_stays(mode: str) -> None:
    async def work() -> None:
        scripted, session, consumer = await opened()
        session.mode = mode
        scripted.host.deliver([b"1", b"2", b"3", b"4"])
        scripted.host.deliver([b"5", b"6"], tag=5)
        await turns()
        assert bodies(consumer.take_messages(2)) == [b"1", b"2"]
        recall(scripted, (1, 3), (6, 6))
        await turns()
        assert [f.ranges for f in scripted.host.of(wire.RecalledFrame)] == [[(3, 3), (6, 6)]]
        assert consumer.buffered == 2
        assert bodies(consumer.take_messages(9)) == [b"4", b"5"]
        recall(scripted, (1, 6))
        await turns()
        assert [f.ranges for f in scripted.host.of(wire.RecalledFrame)][1:] == [[]], "an answer comes in any case"
        session.mode = "client"
        session.acknowledge(None)
        await turns()
        assert [f.ranges for f in scripted.host.of(wire.AckFrame)] == [[(1, 2), (4, 5)]]
        assert scripted.host.of(wire.SettleFrame) == [], "nothing else is said of what was given back"

    run(work)


def test_what_is_given_back_is_asked_for_anew_after_the_answer() -> None:
    async def work() -> None:
        scripted, _, consumer = await opened(limit=4)
        scripted.host.deliver([b"1", b"2", b"3", b"4"])
        await turns()
        recall(scripted, (3, 4))
        await turns()
        assert [type(f) for f in scripted.host.frames if isinstance(f, wire.RecalledFrame | wire.CreditFrame)] == [
            wire.RecalledFrame,
            wire.CreditFrame,
        ]
        assert [f.credit for f in scripted.host.of(wire.CreditFrame)] == [2]
        assert bodies(consumer.take_messages(9)) == [b"1", b"2"]

    run(work)


def test_a_question_about_an_ended_attachment_has_no_answer() -> None:
    async def work() -> None:
        scripted, _, consumer = await opened()
        scripted.host.deliver([b"1"])
        recall(scripted, (1, 1), epoch=9)
        await turns()
        assert scripted.host.of(wire.RecalledFrame) == []
        assert bodies(consumer.take_messages(5)) == [b"1"]

    run(work)
