"""Attachments have numbers that are never used twice, and end with their destination."""

from __future__ import annotations

from typing import Any

from raybroker.core import command as cmd
from raybroker.core.outcome import Deliver
from raybroker.engine.sessions.attachments import ATTACHMENT_BITS, Attachments, Outbox
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import RecordingPeer


def test_numbers_of_a_later_incarnation_are_larger_than_all_before() -> None:
    destination, peer, outbox = Desk().add(), RecordingPeer(), Outbox()
    first, second = Attachments(3), Attachments(4)
    numbers = [first.attach(destination, peer, handle, outbox).number for handle in (1, 2)]
    assert numbers[1] == numbers[0] + 1
    assert second.attach(destination, peer, 1, outbox).number == (4 << ATTACHMENT_BITS) + 1 > max(numbers)
    assert set(first.by_number) == set(numbers)


def test_all_of_a_destination_end_and_others_stay() -> None:
    desk, peer = Desk(), RecordingPeer()
    one, other = desk.add("a"), desk.add("b")
    attachments = Attachments(1)
    ended = [attachments.attach(one, peer, handle, Outbox()) for handle in (1, 2)]
    stays = attachments.attach(other, peer, 3, Outbox())
    assert attachments.end_attachments(one) == ended
    assert attachments.by_number == {stays.number: stays}
    assert attachments.end_attachments(one) == []


def test_what_was_taken_back_from_a_consumer_with_a_deadline_may_not_leave() -> None:
    desk = Desk()
    destination = desk.add()
    attachments = Attachments(1)
    attachment = attachments.attach(destination, RecordingPeer(), 1, Outbox())
    assert attachment.state() is None, "it is not attached yet"
    attach: Any = cmd.AttachConsumer(attachment.number, "prefetch", 10, False, held=False)
    desk.executor.perform(destination, attach)
    desk.put(destination, "a", "b")
    (deliver,) = [one for one in desk.executor.effects if isinstance(one, Deliver)]
    attachment.leased = True
    assert attachment.may_leave(deliver)
    desk.executor.perform(destination, cmd.DetachConsumer(attachment.number))
    assert not attachment.may_leave(deliver)
    attachment.leased = False
    assert attachment.may_leave(deliver), "nobody takes back what has no deadline"
