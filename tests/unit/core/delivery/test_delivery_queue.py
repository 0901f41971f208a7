"""A delivery queue without its destination: it returns what it decides, and touches no record and no other part."""

from __future__ import annotations

from array import array

from raybroker.core.blocks.block_entry import Columns
from raybroker.core.delivery.dead_letters import Dead
from raybroker.core.outcome import Deliver
from raybroker.core.subscription import Subscription
from tests.unit.core.parts import NOW, Parts


def test_what_is_handed_out_is_an_effect_and_what_has_to_be_written_is_returned() -> None:
    parts = Parts()
    one = parts.consumer()
    ordinal = parts.arrive(3)
    found = parts.queue.dispatch()
    assert parts.out.after_durable == [Deliver(one.attachment, 1, ordinal, 0b111, 1)]
    assert [(run.ordinal, run.mask, run.attempts) for run in found.recorded] == [(ordinal, 0b111, 1)]
    assert (found.settled, found.dead, found.redelivered, parts.out.records) == ([], [], 0, [])


def test_a_non_persistent_delivery_goes_at_once_and_is_not_written() -> None:
    parts = Parts()
    parts.consumer(no_ack=True)
    parts.arrive(1, persistent=False)
    found = parts.queue.dispatch()
    assert ([type(effect) for effect in parts.out.immediate], found.recorded) == ([Deliver], [])
    assert [delivery.count for delivery in found.settled] == [1]


def test_what_has_expired_is_returned_as_dead_and_the_rest_is_handed_out() -> None:
    parts = Parts()
    one = parts.consumer()
    ordinal = parts.arrive(2, Columns(expires=array("Q", [NOW, 0])))
    found = parts.queue.dispatch()
    assert [(dead.run.mask, dead.reason) for dead in found.dead] == [(0b01, "EXPIRED")]
    assert parts.out.after_durable == [Deliver(one.attachment, 1, ordinal, 0b10, 1)]


def test_failed_deliveries_rest_or_are_dead_and_both_are_written() -> None:
    parts = Parts(redeliveryLimit=0)
    one = parts.consumer()
    parts.arrive(1)
    parts.queue.dispatch()
    found = parts.queue.failed(list(one.settle_tags(1, 1)), 50)
    assert [row.value for row in found.rows] == [1]
    assert [dead.reason for dead in found.dead] == ["UNDELIVERABLE"]
    parts = Parts(redeliveryLimit=1)
    one = parts.consumer()
    parts.arrive(1)
    parts.queue.dispatch()
    found = parts.queue.failed(list(one.settle_tags(1, 1)), 50)
    assert ([row.until_ms for row in found.rows], found.dead) == ([NOW + 50], [])
    assert [due_ms for due_ms, _ in parts.queue.delayed.runs()] == [NOW + 50]


def test_what_is_given_back_waits_at_its_old_place() -> None:
    parts = Parts()
    one = parts.consumer(credit=1)
    first = parts.arrive(1)
    parts.arrive(1)
    parts.queue.dispatch()
    parts.queue.give_back(list(one.settle_tags(1, 1)))
    assert next(parts.queue.pending.runs()).ordinal == first


def test_units_of_order_take_over_with_their_first_block_and_leave_with_their_last_message() -> None:
    parts = Parts()
    one = parts.consumer()
    parts.arrive(2, Columns(units=("a", None)))
    assert parts.queue.pending is not parts.queue.plain
    parts.queue.settle_units()
    parts.queue.dispatch()
    assert list(parts.queue.units) == ["a"]
    parts.queue.pending.settled([delivery.run for delivery in one.settle_tags(1, 2)])
    parts.queue.settle_units()
    assert (parts.queue.pending is parts.queue.plain, dict(parts.queue.units)) == (True, {})


def test_while_insertion_is_paused_nothing_waits() -> None:
    parts = Parts()
    parts.policy.paused["insertion"] = 0
    parts.arrive(2)
    assert parts.queue.pending.count == 0
    parts.policy.paused.clear()
    parts.queue.show_hidden()
    assert parts.queue.pending.count == 2


def test_a_subscription_owes_what_it_was_told_and_a_queue_what_is_held() -> None:
    parts = Parts(Subscription(name="s"))
    ordinal = parts.arrive(2)
    assert (parts.queue.durable, parts.queue.owed(ordinal), parts.queue.owed(9)) == (False, 0b11, 0)
    parts = Parts()
    ordinal = parts.arrive(3)
    parts.index.settle_messages(ordinal, 0b1)
    assert (parts.queue.owed(ordinal), parts.queue.owed(9)) == (0b110, 0)


def test_dead_letters_that_come_back_wait_again() -> None:
    parts = Parts()
    ordinal = parts.arrive(1)
    (run,) = parts.queue.remove({ordinal: 1})
    parts.queue.dead_letters.add(run)
    parts.queue.dead_letters_back(ordinal, 1)
    assert (parts.queue.pending.count, parts.index.dead) == (1, 0)
    assert Dead(run, "EXPIRED").comment == ""


def test_time_wakes_at_the_first_birth_or_lease() -> None:
    parts = Parts()
    parts.arrive(1, Columns(deliver_at=array("Q", [NOW + 90])))
    parts.queue.dispatch_gate.is_open_for(1, parts.policy.attributes, NOW)
    parts.queue.plan_wake()
    assert parts.out.wake_at == NOW + 90
    parts.consumer(lease_ms=30)
    parts.arrive(1)
    parts.queue.dispatch()
    parts.queue.plan_wake()
    assert parts.out.wake_at == NOW + 30
