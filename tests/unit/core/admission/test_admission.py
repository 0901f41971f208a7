"""What of a block is taken: limits at their exact boundaries, order, and what producers hear."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybroker.core import command as cmd
from raybroker.core.outcome import Gate, Recall, SendAnswered
from raybroker.core.subscription import Subscription
from raybroker.model.errors import ResourceAllocationError
from tests.unit.core.driven_destination import DrivenDestination, burials, columns, gates, handed, of, refusals


def filled(behavior: str, sizes: list[int], **limits: Any) -> tuple[DrivenDestination, int]:
    """A queue that holds single-message blocks of these sizes."""
    destination = DrivenDestination(limitBehavior=behavior, **limits)
    producer = destination.producer()
    for size in sizes:
        destination.send(producer, [size])
    return destination, producer


# ---- REJECT_NEWEST (D-13) ------------------------------------------------------------------------------------------


def test_the_nth_message_is_taken_and_the_next_refused() -> None:  # D-06
    destination, producer = filled("REJECT_NEWEST", [1, 1], maxNumMsgs=3)
    assert refusals(destination.send(producer, [1])) == []
    assert [(r.start, r.code) for r in refusals(destination.send(producer, [1]))] == [(0, "quota_exceeded")]
    assert destination.core.counters.refused == 1


def test_below_the_byte_limit_one_message_may_overshoot() -> None:  # D-07
    destination, producer = filled("REJECT_NEWEST", [9], maxTotalMsgBytes=10)
    assert refusals(destination.send(producer, [100])) == []
    assert [r.code for r in refusals(destination.send(producer, [0]))] == ["quota_exceeded"]


def test_a_message_of_exactly_the_size_limit_is_taken() -> None:  # D-08
    destination, producer = filled("FLOW_CONTROL", [], maxBytesPerMsg=5)
    out = destination.send(producer, [5, 6, 5])
    assert [(r.start, r.end, r.code) for r in refusals(out)] == [(1, 2, "message_too_large")]
    assert destination.core.block_index.messages == 2


def test_headers_count_where_they_are_given_and_a_retry_of_what_was_taken_is_none() -> None:  # W-54
    destination, producer = filled("FLOW_CONTROL", [], maximumMessageSize=5)
    out = destination.send(producer, [5, 5, 4], heads=[0, 1, 1], first=1)
    assert [(r.start, r.end, r.code) for r in refusals(out)] == [(1, 2, "message_too_large")]
    destination.do(cmd.Update(replace(destination.core.policy.attributes, maximumMessageSize=1)))
    assert refusals(destination.send(producer, [5], heads=[0], first=1)) == [], "it is held already"
    assert refusals(destination.send(producer, [5], first=9)) == [], "one that is moved has no heads"
    assert [r.code for r in refusals(destination.send(producer, [5], heads=[0], first=10))] == ["message_too_large"]
    assert destination.core.block_index.messages == 3


def test_who_sends_volatile_messages_is_told_of_refusals_alone() -> None:  # D-13
    destination, producer = filled("REJECT_NEWEST", [1], maxNumMsgs=2)
    assert of(destination.send(producer, [1], persistent=False), SendAnswered) == []
    out = destination.send(producer, [1], persistent=False)
    assert [(r.start, r.end, r.code) for r in refusals(out)] == [(0, 1, "quota_exceeded")]
    assert of(out, SendAnswered)[0] in out.immediate, "nothing of it waits for the disk"
    assert destination.core.block_index.messages == 2


def test_whoever_wants_to_be_told_is_told() -> None:  # W-74: the mode may be forced, the producer still waits
    destination = DrivenDestination()
    producer = destination.producer()
    assert len(of(destination.send(producer, [1], persistent=False, confirm=True), SendAnswered)) == 1
    assert of(destination.send(producer, [1], confirm=False), SendAnswered) == []


# ---- FLOW_CONTROL (D-10) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{"maxNumMsgs": 3}, {"maxTotalMsgBytes": 12}])
def test_a_full_destination_confirms_what_it_stores_and_tells_producers_to_wait(limits: dict[str, int]) -> None:
    destination, producer = filled("FLOW_CONTROL", [4, 4], **limits)
    other = destination.producer(8)
    out = destination.send(producer, [4])
    assert gates(out) == [(producer, "slow"), (other, "slow")]
    assert [sent.first_seq for sent in of(out, SendAnswered)] == [3]
    late = destination.send(producer, [4])
    assert [sent.first_seq for sent in of(late, SendAnswered)] == [4]
    assert of(late, Gate) == []
    assert destination.core.block_index.messages == 4, "the limit is a hint"
    volatile = destination.send(producer, [4], persistent=False)
    assert len(of(volatile, SendAnswered)) == 1, "it gives credit back"
    consumer, out = destination.open(3)
    assert gates(destination.ack(consumer, 1, 2)) == []
    assert gates(destination.ack(consumer, 3)) == [(producer, "open"), (other, "open")]


def test_one_below_the_limit_is_not_full() -> None:
    destination, producer = filled("FLOW_CONTROL", [1], maxNumMsgs=3)
    out = destination.send(producer, [1])
    assert len(of(out, SendAnswered)) == 1
    assert gates(out) == []


def test_a_producer_that_comes_to_a_full_destination_is_told_at_once() -> None:
    destination, _ = filled("FLOW_CONTROL", [1], maxNumMsgs=1)
    number = destination.number()
    out = destination.do(cmd.AttachProducer(number, 9))
    assert gates(out) == [(number, "slow")]


def test_raising_the_limit_opens_the_gate() -> None:
    destination, producer = filled("FLOW_CONTROL", [1], maxNumMsgs=1)
    from dataclasses import replace

    out = destination.do(cmd.Update(replace(destination.core.attributes, maxNumMsgs=2)))
    assert gates(out) == [(producer, "open")]


# ---- REMOVE_OLDEST and REMOVE_LOW_PRIORITY (D-11, D-12) ------------------------------------------------------------


@pytest.mark.parametrize("behavior", ["REMOVE_OLDEST", "REMOVE_LOW_PRIORITY"])
def test_exactly_as_many_go_as_have_to_by_count(behavior: str) -> None:
    destination, producer = filled(behavior, [1, 1, 1], maxNumMsgs=3)
    reason = behavior.removeprefix("REMOVE_")
    out = destination.send(producer, [1, 1])
    assert refusals(out) == []
    assert burials(out) == [(reason, 1, 1), (reason, 2, 1)]
    assert destination.core.block_index.messages - destination.core.block_index.dead == 3
    for _, ordinal, mask in burials(out):
        destination.do(cmd.SettleDeadLetters(0, ordinal, mask))
    assert destination.core.block_index.messages == 3


@pytest.mark.parametrize("behavior", ["REMOVE_OLDEST", "REMOVE_LOW_PRIORITY"])
def test_exactly_as_many_go_as_have_to_by_bytes(behavior: str) -> None:
    destination, producer = filled(behavior, [4, 4], maxTotalMsgBytes=12)
    assert burials(destination.send(producer, [4])) == [], "exactly the limit is within it"
    out = destination.send(producer, [5])
    assert [row[1] for row in burials(out)] == [1, 2]


def test_the_oldest_go_whatever_their_priority() -> None:
    destination = DrivenDestination(limitBehavior="REMOVE_OLDEST", maxNumMsgs=2)
    producer = destination.producer()
    destination.send(producer, [1, 1], columns=columns(2, priorities=[9, 0]))
    assert burials(destination.send(producer, [1])) == [("OLDEST", 1, 0b01)]


def test_the_lowest_priority_goes_and_of_it_the_oldest() -> None:  # D-12
    destination = DrivenDestination(limitBehavior="REMOVE_LOW_PRIORITY", maxNumMsgs=3)
    producer = destination.producer()
    destination.send(producer, [1] * 3, columns=columns(3, priorities=[9, 1, 1]))
    assert burials(destination.send(producer, [1])) == [("LOW_PRIORITY", 1, 0b010)]
    assert burials(destination.send(producer, [1], columns=columns(1, priority=0))) == [("LOW_PRIORITY", 3, 0b1)]


def test_what_an_application_has_begun_is_not_discarded() -> None:
    destination, producer = filled("REMOVE_OLDEST", [1, 1], maxNumMsgs=2)
    consumer = destination.consumer(2)
    out = destination.send(producer, [1])
    assert (burials(out), of(out, Recall)) == ([], [Recall(consumer, ((1, 1),))])
    out = destination.do(cmd.Recalled(consumer, ()))
    assert (burials(out), of(out, Recall)) == ([], [Recall(consumer, ((2, 2),))]), "it has begun the oldest"
    out = destination.do(cmd.Recalled(consumer, ()))
    assert burials(out) == [("OLDEST", 3, 1)], "of what is with nobody the newest is the oldest too"
    destination.do(cmd.SettleDeadLetters(0, 3, 1))
    assert destination.core.block_index.messages == 2


@pytest.mark.parametrize(("consumers", "each"), [(1, 5), (2, 2)])
def test_who_cannot_give_anything_back_leaves_the_newest_half(consumers: int, each: int) -> None:
    destination, producer = filled("REMOVE_OLDEST", [1] * 8, maxNumMsgs=10)
    for _ in range(consumers):
        destination.consumer(100, recalls=False)
    out = destination.send(producer, [1] * 8)
    assert sum(mask.bit_count() for _, _, mask in burials(out)) == 6
    held = [queue.have for queue in destination.core.queues[0].consumers.by_attachment.values()]
    assert max(held[1:], default=each) <= each, "the first was there before the others"
    assert destination.core.block_index.messages - destination.core.block_index.dead == 10


# ---- order, retries, pauses ----------------------------------------------------------------------------------------


def test_a_retry_is_stored_once_and_confirmed_again() -> None:
    destination, producer = filled("REJECT_NEWEST", [1])
    out = destination.send(producer, [1], first=1)
    assert of(out, SendAnswered) == [SendAnswered(producer, 1, 1, ())]
    assert out.accepted is None
    assert destination.core.block_index.messages == 1


def test_a_refused_message_may_not_come_after_later_ones() -> None:  # B-21
    destination, producer = filled("REJECT_NEWEST", [1, 1], maxNumMsgs=2)
    destination.send(producer, [1])
    consumer = destination.consumer(1)
    destination.ack(consumer, 1)
    destination.send(producer, [1])
    assert "later ones" in refusals(destination.send(producer, [1], first=3))[0].text


def test_a_producer_over_a_connection_that_it_has_left_is_not_heard() -> None:
    destination = DrivenDestination()
    old = destination.producer(7)
    new = destination.producer(7)
    assert destination.send(old, [1]).accepted is None
    assert destination.send(new, [1], first=1).accepted == 1


def test_a_full_store_refuses_persistent_messages_only() -> None:
    destination = DrivenDestination()
    producer = destination.producer()
    assert [r.code for r in refusals(destination.send(producer, [1], room=False))] == ["store_full"]
    destination.send(producer, [1], room=False, persistent=False)
    assert destination.core.block_index.messages == 1


def test_without_memory_everything_is_refused_but_what_is_held_already() -> None:  # B-17
    destination = DrivenDestination()
    producer = destination.producer()
    destination.send(producer, [1], first=1)
    assert refusals(destination.send(producer, [1], first=1, barred="no memory")) == []
    for persistent in (True, False):
        (refused,) = refusals(destination.send(producer, [1, 1], first=2, barred="no memory", persistent=persistent))
        assert refused == (0, 2, "memory_low", "no memory")
    assert destination.core.block_index.messages == 1
    assert destination.core.counters.refused == 4


@pytest.mark.parametrize("which", ["production", "insertion"])
def test_a_paused_destination_refuses_new_messages(which: str) -> None:  # W-123, W-124
    destination = DrivenDestination()
    producer = destination.producer()
    out = destination.do(cmd.Pause(which, 5))
    assert of(out, Gate) == [Gate(producer, "paused", 5)]
    assert not destination.core.admission.would_take([1])
    assert [r.code for r in refusals(destination.send(producer, [1]))] == ["destination_paused"]
    late = destination.number()
    assert of(destination.do(cmd.AttachProducer(late, 8)), Gate) == [Gate(late, "paused", 5)]
    destination.do(cmd.Resume(which))
    assert refusals(destination.send(producer, [1])) == []


def test_there_are_at_most_so_many_producers() -> None:  # D-14
    destination = DrivenDestination(maxNumProducers=1)
    first = destination.producer(7)
    with pytest.raises(ResourceAllocationError, match="maxNumProducers=1"):
        destination.producer(8)
    destination.do(cmd.DetachProducer(first, forget=True))
    destination.producer(8)


def test_the_host_itself_sends_without_an_attachment() -> None:
    destination = DrivenDestination()
    out = destination.send(0, [1, 1], producer=0, first=1, confirm=False)
    assert out.accepted == 1
    assert of(out, SendAnswered) == []
    assert destination.send(0, [1], producer=0, first=1).accepted == 2, "its numbers are not compared"


def test_would_take_says_what_a_send_would_do() -> None:
    destination, _ = filled("REJECT_NEWEST", [1], maxNumMsgs=3, maxBytesPerMsg=4)
    assert destination.core.admission.would_take([4, 1])
    assert not destination.core.admission.would_take([1, 1, 1])
    assert not destination.core.admission.would_take([5])


@settings(max_examples=60)
@given(
    st.sampled_from(["REJECT_NEWEST", "REMOVE_OLDEST", "REMOVE_LOW_PRIORITY", "FLOW_CONTROL"]),
    st.integers(-1, 6),
    st.integers(-1, 20),
    st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=4), max_size=12),
)
def test_limits_hold_for_what_waits(behavior: str, most: int, most_bytes: int, blocks: list[list[int]]) -> None:
    destination = DrivenDestination(limitBehavior=behavior, maxNumMsgs=most, maxTotalMsgBytes=most_bytes)
    producer = destination.producer()
    sent = refused = 0
    for sizes in blocks:
        was_full = (
            0 <= most <= destination.core.block_index.messages
            or 0 <= most_bytes <= destination.core.block_index.bytes_held
        )
        out = destination.send(producer, sizes)
        sent += len(sizes)
        for _, ordinal, mask in burials(out):
            destination.do(cmd.SettleDeadLetters(0, ordinal, mask))
        block_index = destination.core.block_index
        if behavior == "REJECT_NEWEST":
            refused += sum(r.end - r.start for r in refusals(out))
            assert not was_full or len(sizes) == sum(r.end - r.start for r in refusals(out))
        if behavior == "FLOW_CONTROL":
            assert block_index.messages == sent
            full = 0 <= most <= block_index.messages or 0 <= most_bytes <= block_index.bytes_held
            assert destination.core.admission.slow == full
        elif most >= 0:
            assert block_index.messages <= most
        if behavior.startswith("REMOVE") and most_bytes >= 0:
            assert block_index.bytes_held <= most_bytes
    if behavior == "REJECT_NEWEST":
        assert destination.core.block_index.messages == sent - refused
    _, out = destination.open()
    assert len(handed(out)) == destination.core.block_index.messages


# ---- the dying do not count (D-06, D-07) ---------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [{"maxNumMsgs": 2}, {"maxTotalMsgBytes": 8}])
def test_messages_that_are_dead_leave_room_by_count_and_by_bytes(limit: dict[str, int]) -> None:
    destination = DrivenDestination(redeliveryLimit=0, **limit)
    producer = destination.producer()
    consumer = destination.consumer(100, "prefetch")
    destination.send(producer, [4, 4])
    assert [row.code for row in refusals(destination.send(producer, [4]))] == ["quota_exceeded"]
    dead = destination.settle(consumer, "fail")
    assert destination.core.block_index.messages == 2, "they are held until it is settled where they go"
    assert refusals(destination.send(producer, [4])) == []
    assert [row.code for row in refusals(destination.send(producer, [4]))] == ["quota_exceeded"]
    for _, ordinal, mask in burials(dead):
        destination.do(cmd.SettleDeadLetters(0, ordinal, mask))
    assert (destination.core.block_index.messages, destination.core.block_index.bytes_held) == (2, 8)


def test_the_gate_opens_for_the_room_that_the_dying_leave() -> None:  # D-10
    destination = DrivenDestination(redeliveryLimit=0, maxTotalMsgBytes=8, limitBehavior="FLOW_CONTROL")
    producer = destination.producer()
    consumer = destination.consumer(100, "prefetch")
    assert gates(destination.send(producer, [4, 4])) == [(producer, "slow")]
    assert gates(destination.settle(consumer, "fail")) == [(producer, "open")]


def test_what_is_dead_for_one_subscription_and_not_for_another_counts() -> None:
    destination = DrivenDestination("topic", redeliveryLimit=0, maxTotalMsgBytes=4)
    producer = destination.producer()
    one, other = (destination.subscriber(100, "prefetch", client_id="c", name=name, durable=True) for name in "ab")
    destination.send(producer, [4])
    destination.settle(one, "fail")
    assert len(refusals(destination.send(producer, [4]))) == 1
    destination.settle(other, "fail")
    assert refusals(destination.send(producer, [4])) == []


def test_a_subscription_that_ends_takes_its_dying_along() -> None:
    destination = DrivenDestination("topic", redeliveryLimit=0)
    consumer = destination.subscriber(100, "prefetch")
    destination.send(destination.producer(), [4])
    destination.settle(consumer, "fail")
    assert (destination.core.block_index.dead, destination.core.block_index.dead_bytes) == (1, 4)
    destination.do(cmd.DetachConsumer(consumer))
    assert (destination.core.block_index.dead, destination.core.block_index.dead_bytes) == (0, 0)


# ---- what nobody wanted is remembered as taken ---------------------------------------------------------------------


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_message_that_nobody_wanted_was_taken_also_after_a_crash(checkpoint: bool) -> None:  # B-21
    destination = DrivenDestination("topic")
    wanting = Subscription("c", "n", True, selector="k = 1")
    destination.consumer(100, subscription=wanting)
    producer = destination.producer()
    for k in (0, 0, 1, 0):
        destination.send(producer, [1], properties=[{"k": k}])
    destination = destination.crash(checkpoint=checkpoint)
    producer = destination.producer()
    for seq, k in enumerate((0, 0, 1), start=1):
        out = destination.send(producer, [1], first=seq, properties=[{"k": k}])
        assert (refusals(out), out.accepted) == ([], None), f"message {seq} was taken before"


def test_what_only_a_plain_subscriber_wanted_was_taken_also_after_a_crash() -> None:
    destination = DrivenDestination("topic")
    destination.consumer(100, subscription=Subscription("c", "n", True, selector="k = 1"))
    destination.subscriber(100)
    producer = destination.producer()
    for k in (0, 1):
        destination.send(producer, [1], properties=[{"k": k}])
    destination = destination.crash()
    out = destination.send(destination.producer(), [1], first=1, properties=[{"k": 0}])
    assert (refusals(out), out.accepted) == ([], None)


def test_what_was_refused_before_what_was_stored_stays_refused_after_a_crash() -> None:  # B-21
    destination = DrivenDestination("topic", maxBytesPerMsg=5)
    destination.consumer(100, subscription=Subscription("c", "n", True))
    producer = destination.producer()
    assert len(refusals(destination.send(producer, [9]))) == 1
    destination.send(producer, [1])
    destination = destination.crash()
    assert len(refusals(destination.send(destination.producer(), [9], first=1))) == 1


def test_a_producer_that_says_goodbye_leaves_nothing_to_remember() -> None:
    destination = DrivenDestination("topic")
    producer = destination.producer()
    destination.send(producer, [1])
    assert destination.core.producers.unwritten == {7: [(1, 2)]}
    destination.do(cmd.DetachProducer(producer, forget=True))
    assert destination.core.producers.unwritten == {}
