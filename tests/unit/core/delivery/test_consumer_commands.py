"""What each word of a consumer does to its delivery queue, and what it is told."""

from __future__ import annotations

from typing import Any

import pytest

from raybroker.core import command as cmd
from raybroker.core.counters import Counters
from raybroker.core.delivery import consumer_commands
from raybroker.core.delivery.consumers import Consumer
from raybroker.core.delivery.delivery_queue import DeliveryQueue
from raybroker.core.delivery.plain import PlainPending
from raybroker.core.durable import records
from raybroker.core.outcome import Acked, Drained, Outcome, Promoted, Released, Withdrawn
from raybroker.core.settlement import Settlement
from raybroker.core.subscription import Subscription
from raybroker.model.errors import InvalidSelectorError, ResourceAllocationError
from raybroker.model.naming.names import DestinationType
from tests.unit.core.parts import NOW, Parts

ONE, TWO = 7, 8
HANDLERS = {
    cmd.AttachConsumer: consumer_commands.attach_consumer,
    cmd.DetachConsumer: consumer_commands.detach_consumer,
    cmd.Grant: consumer_commands.grant,
    cmd.Drain: consumer_commands.drain,
    cmd.Missed: consumer_commands.missed,
    cmd.Acknowledge: consumer_commands.acknowledge,
    cmd.Settle: consumer_commands.settle,
    cmd.TakeBack: consumer_commands.take_back,
    cmd.Begun: consumer_commands.begun,
    cmd.Extend: consumer_commands.extend,
    cmd.Release: consumer_commands.release,
    cmd.Hold: consumer_commands.hold,
    cmd.Proceed: consumer_commands.proceed,
}


class Served:
    """One delivery queue, and who has left it."""

    kind: DestinationType = "queue"
    name = "d"

    def __init__(self, subscription: Subscription | None = None, **attributes: Any) -> None:
        self.parts = Parts(subscription, **attributes)
        self.current = self.parts.step
        self.policy = self.parts.policy
        self.queue = self.parts.queue
        self.queue_of: dict[int, DeliveryQueue] = {}
        self.counters = Counters()
        self.settlement = Settlement(self.current, self.parts.index, self.counters, self._clear)
        self.left: list[int] = []

    def _clear(self, queue: DeliveryQueue, ordinal: int, mask: int) -> tuple[int, bool]:
        return mask, self.parts.index.held[ordinal].left == mask.bit_count()

    def queue_for(self, command: cmd.AttachConsumer) -> DeliveryQueue:
        return self.queue

    def left_by(self, queue: DeliveryQueue) -> None:
        self.left.append(queue.number)

    def do(self, command: cmd.Command, *, later_ms: int = 0) -> Outcome:
        """What a command decides, before anything is handed out."""
        out = self.current.begin(self.current.now_ms + later_ms)
        HANDLERS[type(command)](self, command, out)  # type: ignore[operator]
        return out

    def attach(self, number: int = ONE, limit: int = -1, flow: str = "credit", **more: Any) -> Consumer:
        self.do(cmd.AttachConsumer(number, flow, limit, more.pop("no_ack", False), more.pop("held", False), **more))
        return self.queue.consumers.by_attachment[number]

    def hand_out(self) -> None:
        self.settlement.dispatched(self.queue, self.queue.dispatch())

    def given(self, count: int = 3, limit: int = -1, flow: str = "credit", **more: Any) -> Consumer:
        """A consumer that has the messages of a stored block."""
        one = self.attach(limit=limit, flow=flow, **more)
        self.parts.index.held[self.parts.arrive(count)].stored = True
        self.hand_out()
        assert [item.count for item in one.unsettled] == [count]
        return one

    def waiting(self) -> list[tuple[int, int, int]]:
        """(mask, attempts, failures) of what waits."""
        return [(run.mask, run.attempts, run.failures) for run in self.queue.pending.runs()]


def written(out: Outcome) -> list[tuple[int, list[records.Span], list[records.RecordRow]]]:
    found = [records.decode(entry.meta) for entry in out.records]
    return [(one.kind, one.spans, one.rows) for one in found]


def unsettled(consumer: Consumer) -> list[int]:
    return [tag for item in consumer.unsettled for tag in range(item.tag, item.tag + item.count)]


# ---- coming and leaving ----------------------------------------------------------------------------------------------


def test_a_consumer_that_comes_is_served_by_its_delivery_queue() -> None:
    destination = Served()
    one = destination.attach(limit=2, owner="s", lease_ms=5, remote=True)
    assert (destination.queue_of, list(destination.current.touched)) == ({ONE: destination.queue}, [1])
    assert (one.active, one.serving, one.room(), one.owner, one.lease_ms, one.asked.remote) == (
        True,
        True,
        2,
        "s",
        5,
        True,
    )
    assert destination.attach(TWO, held=True, no_ack=True).room() == 0
    assert destination.queue.consumers.by_attachment[TWO].no_ack


def test_one_too_many_is_refused_and_changes_nothing_and_a_topic_has_room_for_all() -> None:
    destination = Served(maxNumActiveConsumers=1, maxNumBackupConsumers=0)
    destination.attach()
    with pytest.raises(ResourceAllocationError, match=r"^queue d has its 1 active and 0 backup consumers"):
        destination.attach(TWO)
    assert list(destination.queue_of) == list(destination.queue.consumers.by_attachment) == [ONE]
    destination = Served(Subscription(name="s"), maxNumActiveConsumers=1, maxNumBackupConsumers=0)
    assert (destination.attach().active, destination.attach(TWO).active) == (True, True)


def test_a_faulty_selector_leaves_no_consumer_behind() -> None:
    destination = Served()
    with pytest.raises(InvalidSelectorError):
        destination.attach(selector="a =")
    assert (destination.queue_of, destination.queue.consumers.by_attachment, destination.current.touched) == (
        {},
        {},
        {},
    )


def test_who_leaves_gives_back_in_order_and_takes_its_selector_with_it() -> None:
    destination = Served()
    destination.given()
    destination.attach(TWO, selector="a = 1")
    destination.do(cmd.DetachConsumer(TWO))
    assert not destination.queue.plain.selector_index
    out = destination.do(cmd.DetachConsumer(ONE))
    assert (destination.waiting(), out.records, destination.queue_of, destination.left) == (
        [(0b111, 1, 0)],
        [],
        {},
        [1, 1],
    )
    assert list(destination.current.touched) == [1]
    assert destination.do(cmd.DetachConsumer(ONE)) == Outcome()
    assert destination.left == [1, 1]


@pytest.mark.parametrize(
    ("begun", "lost", "seen", "waiting", "rows"),
    [
        (2, True, -1, [(0b011, 1, 1), (0b100, 1, 0)], [records.RecordRow(1, 0b011, 1)]),
        (2, False, -1, [(0b111, 1, 0)], []),
        (0, True, -1, [(0b111, 1, 0)], []),
        (0, False, 1, [(0b001, 1, 0), (0b110, 0, 0)], [records.RecordRow(1, 0b110, 0)]),
        (0, False, 0, [(0b111, 0, 0)], []),
    ],
)
def test_only_what_reached_the_application_counts(
    begun: int, lost: bool, seen: int, waiting: list[tuple[int, int, int]], rows: list[records.RecordRow]
) -> None:
    destination = Served()
    destination.given()
    destination.do(cmd.Begun(ONE, begun))
    out = destination.do(cmd.DetachConsumer(ONE, lost, seen))
    assert destination.waiting() == waiting
    assert [row for _, _, rows in written(out) for row in rows] == rows


def test_what_waits_is_told_that_a_consumer_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    destination = Served()
    destination.given()
    found: list[int] = []
    monkeypatch.setattr(PlainPending, "consumer_left", lambda pending: found.append(pending.count))
    destination.do(cmd.DetachConsumer(ONE))
    assert found == [3], "after what the consumer had is back"


def test_a_backup_takes_the_place_of_who_leaves_and_is_told_when_that_is_durable() -> None:
    destination = Served(maxNumActiveConsumers=1, maxNumBackupConsumers=1)
    destination.attach()
    assert not destination.attach(TWO).serving
    out = destination.do(cmd.DetachConsumer(ONE))
    assert (out.after_durable, destination.queue.consumers.by_attachment[TWO].serving) == ([Promoted(TWO)], True)


def test_nobody_is_promoted_in_a_subscription() -> None:
    destination = Served(Subscription(name="s"))
    destination.attach()
    destination.attach(TWO).active = False
    assert destination.do(cmd.DetachConsumer(ONE)).after_durable == []


def test_local_consumers_come_first_and_none_before_enough_are_there() -> None:
    destination = Served(localDeliveryPreferred=True)
    far, near = destination.attach(remote=True), destination.attach(TWO)
    assert (far.serving, near.serving) == (False, True)
    destination = Served(consumersBeforeDispatch=2)
    one = destination.attach()
    assert not one.serving
    destination.attach(TWO)
    assert one.serving


# ---- asking for messages ---------------------------------------------------------------------------------------------


def test_a_grant_gives_room_and_ends_drain_mode() -> None:
    destination = Served()
    one = destination.attach(limit=0)
    assert one.room() == 0
    destination.do(cmd.Grant(ONE, 3))
    assert (one.room(), list(destination.current.touched), list(destination.queue.consumers.turn)) == (3, [1], [one])
    destination.do(cmd.Drain(ONE, 2))
    assert (ONE in destination.queue.consumers.draining, one.room(), one.armed) == (True, 2, True)
    destination.do(cmd.Grant(ONE, 4))
    assert (destination.queue.consumers.draining, one.room(), one.armed) == ({}, 4, False)


def test_what_was_missed_may_be_others_and_in_drain_mode_is_void() -> None:
    destination = Served()
    one = destination.attach(limit=0)
    assert destination.do(cmd.Missed(ONE, 2)).after_durable == []
    assert one.room() == 2
    destination.do(cmd.Drain(ONE, 1))
    one.armed = False
    assert destination.do(cmd.Missed(ONE, 5)).after_durable == [Drained(ONE, 5, 1)]
    assert (one.room(), one.armed) == (1, True)


def test_a_consumer_on_hold_gets_nothing_until_it_proceeds() -> None:
    destination = Served()
    one = destination.attach()
    destination.do(cmd.Hold(ONE))
    assert one.room() == 0
    destination.queue.consumers.turn.clear()
    one.queued = False
    destination.do(cmd.Proceed(ONE))
    assert (one.room() > 0, list(destination.queue.consumers.turn), list(destination.current.touched)) == (
        True,
        [one],
        [1],
    )


@pytest.mark.parametrize(
    "command",
    [
        cmd.Grant(9, 1),
        cmd.Drain(9, 1),
        cmd.Missed(9, 1),
        cmd.Hold(9),
        cmd.Proceed(9),
        cmd.Begun(9, 1),
        cmd.Extend(9, [(1, 1)]),
        cmd.TakeBack(9, 1),
        cmd.Acknowledge(9, [(1, 1)], 0),
        cmd.Settle(9, [(1, 1)], 0, "fail"),
    ],
)
def test_whom_nobody_knows_changes_nothing(command: cmd.Command) -> None:
    destination = Served()
    destination.given()
    assert destination.do(command) == Outcome()
    assert (destination.current.touched, destination.waiting()) == ({}, [])


def test_whom_nobody_knows_gets_its_answers() -> None:
    destination = Served()
    assert destination.do(cmd.Acknowledge(9, [(1, 2), (5, 5)], 4)).after_durable == [Acked(9, 4, 3)]
    assert destination.do(cmd.Settle(9, [(1, 2)], 4, "release")).after_durable == [Acked(9, 4, 2)]
    assert destination.do(cmd.Release(9, 1, 4)).immediate == [Released(9, 4, 1)]


# ---- outcomes of deliveries ------------------------------------------------------------------------------------------


def test_what_is_acknowledged_is_settled_and_the_unknown_counted() -> None:
    destination = Served()
    one = destination.given(limit=3, flow="prefetch")
    out = destination.do(cmd.Acknowledge(ONE, [(2, 3), (9, 9)], 4))
    assert out.after_durable[-1] == Acked(ONE, 4, 1)
    assert written(out) == [(records.ACKED, [], [records.RecordRow(1, 0b110)])]
    assert (unsettled(one), one.room(), list(destination.current.touched)) == ([1], 2, [1])
    out = destination.do(cmd.Acknowledge(ONE, [(2, 3)], 0))
    assert (out.after_durable, destination.current.touched) == ([], {})


def test_an_acknowledgement_of_nothing_is_a_sign_of_life_of_one_that_was_stalled() -> None:
    destination = Served()
    one = destination.attach()
    one.stalled = True
    destination.do(cmd.Acknowledge(ONE, [(9, 9)], 0))
    assert (one.stalled, list(destination.current.touched)) == (False, [1])


@pytest.mark.parametrize(
    ("command", "waiting", "kinds"),
    [
        (cmd.Settle(ONE, [(1, 2)], 4, "release"), [(0b11, 1, 0)], []),
        (cmd.Settle(ONE, [(1, 2)], 4, "unseen"), [(0b11, 0, 0)], [records.DISPATCHED]),
        (cmd.Settle(ONE, [(1, 2)], 4, "fail"), [(0b11, 1, 1)], [records.FAILED]),
        (cmd.Settle(ONE, [(1, 2)], 4, "fail", 50), [], [records.FAILED]),
        (cmd.Settle(ONE, [(1, 2)], 4, "reject", reason="bad"), [], [records.FAILED]),
        (cmd.Settle(ONE, [(1, 2)], 4, "expired"), [], []),
    ],
)
def test_every_other_outcome_gives_room_and_is_confirmed(
    command: cmd.Settle, waiting: list[tuple[int, int, int]], kinds: list[int]
) -> None:
    destination = Served()
    one = destination.given(limit=3, flow="prefetch")
    out = destination.do(command)
    assert (destination.waiting(), [kind for kind, _, _ in written(out)]) == (waiting, kinds)
    assert out.after_durable == [Acked(ONE, 4, 0)]
    assert (unsettled(one), one.room(), list(destination.current.touched)) == ([3], 2, [1])
    dead = {"reject": "ERROR", "expired": "EXPIRED"}.get(command.outcome)
    assert [effect.reason for effect in out.immediate] == ([dead] if dead else [])  # type: ignore[union-attr]
    assert [due_ms for due_ms, _ in destination.queue.delayed.runs()] == ([NOW + 50] if command.delay_ms > 0 else [])


def test_an_outcome_for_nothing_is_confirmed_as_unknown_and_touches_nobody() -> None:
    destination = Served()
    one = destination.given()
    out = destination.do(cmd.Settle(ONE, [(4, 6)], 4, "fail"))
    assert (out.after_durable, out.records, destination.current.touched) == ([Acked(ONE, 4, 3)], [], {})
    one.stalled = True
    destination.do(cmd.Settle(ONE, [(4, 4)], 0, "fail"))
    assert (one.stalled, list(destination.current.touched)) == (False, [1])


def test_what_is_taken_back_is_void_and_what_was_seen_of_it_has_failed() -> None:
    destination = Served()
    one = destination.given(limit=3, flow="prefetch")
    out = destination.do(cmd.TakeBack(ONE, 2, 50))
    assert out.after_durable == [Withdrawn(ONE, ((1, 3),))]
    assert (destination.waiting(), destination.queue.delayed.count, destination.queue.delayed.next_ms) == (
        [(0b100, 1, 0)],
        2,
        NOW + 50,
    )
    assert (unsettled(one), one.room(), one.stalled, one.window.left()) == ([], 0, True, 3)
    assert list(destination.current.touched) == [1]
    assert destination.do(cmd.TakeBack(ONE, 2)) == Outcome(), "nothing is left to take"


def test_a_later_word_about_what_has_begun_wakes_one_that_was_stalled_and_an_earlier_one_takes_nothing_back() -> None:
    destination = Served()
    one = destination.given()
    destination.do(cmd.Begun(ONE, 2))
    destination.do(cmd.Begun(ONE, 1))
    assert (one.begun, destination.current.touched) == (2, {})
    one.stalled = True
    destination.do(cmd.Begun(ONE, 2))
    assert (one.stalled, list(destination.current.touched)) == (False, [1])


def test_time_for_acknowledging_starts_again_for_those_that_have_a_limit() -> None:
    destination = Served()
    one = destination.given(lease_ms=100)
    out = destination.do(cmd.Extend(ONE, [(2, 3)]), later_ms=30)
    assert [(item.tag, item.until_ms) for item in one.unsettled] == [(1, NOW + 100), (2, NOW + 130)]
    assert out.wake_at == NOW + 100
    destination = Served()
    one = destination.given()
    assert destination.do(cmd.Extend(ONE, [(1, 3)])) == Outcome()
    assert [item.until_ms for item in one.unsettled] == [0]


def test_a_release_gives_everything_back_and_begins_anew() -> None:
    destination = Served()
    one = destination.given(limit=3)
    one.stalled = True
    out = destination.do(cmd.Release(ONE, 5, 4, consumed=1, delay_ms=50, reason="no", seen=2))
    assert out.immediate == [Released(ONE, 4, 4)]
    assert (destination.waiting(), destination.queue.delayed.count) == ([(0b010, 1, 0), (0b100, 0, 0)], 1)
    assert [kind for kind, _, _ in written(out)] == [records.DISPATCHED, records.FAILED]
    assert (unsettled(one), one.room(), one.stalled, list(destination.current.touched)) == ([], 5, False, [1])


def test_the_answer_to_a_release_comes_before_what_dies_of_it() -> None:
    destination = Served(redeliveryLimit=0)
    destination.given(1)
    out = destination.do(cmd.Release(ONE, 5, 4, consumed=1, reason="no"))
    assert [type(effect).__name__ for effect in out.immediate] == ["Released", "DeadLetter"]
    assert out.immediate[1].failure == "no"  # type: ignore[union-attr]


def test_a_release_without_credit_stays_in_drain_mode_and_skips_a_tag() -> None:
    destination = Served()
    one = destination.attach(limit=0)
    destination.do(cmd.Drain(ONE, 1))
    assert destination.do(cmd.Release(ONE, 0, 4)).immediate == [Released(ONE, 4, 2)]
    assert list(destination.queue.consumers.draining.values()) == [one]
    assert destination.do(cmd.Release(ONE, 3, 5)).immediate == [Released(ONE, 5, 2)]
    assert (destination.queue.consumers.draining, one.room()) == ({}, 3)
