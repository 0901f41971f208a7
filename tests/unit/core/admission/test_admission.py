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
from tests.unit.core.homes import Home, burials, columns, gates, handed, of, refusals


def filled(behavior: str, sizes: list[int], **limits: Any) -> tuple[Home, int]:
    """A queue that holds single-message blocks of these sizes."""
    home = Home(limitBehavior=behavior, **limits)
    producer = home.producer()
    for size in sizes:
        home.send(producer, [size])
    return home, producer


# ---- REJECT_NEWEST (D-13) ------------------------------------------------------------------------------------------


def test_the_nth_message_is_taken_and_the_next_refused() -> None:  # D-06
    home, producer = filled("REJECT_NEWEST", [1, 1], maxNumMsgs=3)
    assert refusals(home.send(producer, [1])) == []
    assert [(r.start, r.code) for r in refusals(home.send(producer, [1]))] == [(0, "quota_exceeded")]
    assert home.core.counters.refused == 1


def test_below_the_byte_limit_one_message_may_overshoot() -> None:  # D-07
    home, producer = filled("REJECT_NEWEST", [9], maxTotalMsgBytes=10)
    assert refusals(home.send(producer, [100])) == []
    assert [r.code for r in refusals(home.send(producer, [0]))] == ["quota_exceeded"]


def test_a_message_of_exactly_the_size_limit_is_taken() -> None:  # D-08
    home, producer = filled("FLOW_CONTROL", [], maxBytesPerMsg=5)
    out = home.send(producer, [5, 6, 5])
    assert [(r.start, r.end, r.code) for r in refusals(out)] == [(1, 2, "message_too_large")]
    assert home.core.block_index.messages == 2


def test_headers_count_where_they_are_given_and_a_retry_of_what_was_taken_is_none() -> None:  # W-54
    home, producer = filled("FLOW_CONTROL", [], maximumMessageSize=5)
    out = home.send(producer, [5, 5, 4], heads=[0, 1, 1], first=1)
    assert [(r.start, r.end, r.code) for r in refusals(out)] == [(1, 2, "message_too_large")]
    home.do(cmd.Update(replace(home.core.policy.attributes, maximumMessageSize=1)))
    assert refusals(home.send(producer, [5], heads=[0], first=1)) == [], "it is held already"
    assert refusals(home.send(producer, [5], first=9)) == [], "one that is moved has no heads"
    assert [r.code for r in refusals(home.send(producer, [5], heads=[0], first=10))] == ["message_too_large"]
    assert home.core.block_index.messages == 3


def test_who_sends_volatile_messages_is_told_of_refusals_alone() -> None:  # D-13
    home, producer = filled("REJECT_NEWEST", [1], maxNumMsgs=2)
    assert of(home.send(producer, [1], persistent=False), SendAnswered) == []
    out = home.send(producer, [1], persistent=False)
    assert [(r.start, r.end, r.code) for r in refusals(out)] == [(0, 1, "quota_exceeded")]
    assert of(out, SendAnswered)[0] in out.immediate, "nothing of it waits for the disk"
    assert home.core.block_index.messages == 2


def test_whoever_wants_to_be_told_is_told() -> None:  # W-74: the mode may be forced, the producer still waits
    home = Home()
    producer = home.producer()
    assert len(of(home.send(producer, [1], persistent=False, confirm=True), SendAnswered)) == 1
    assert of(home.send(producer, [1], confirm=False), SendAnswered) == []


# ---- FLOW_CONTROL (D-10) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{"maxNumMsgs": 3}, {"maxTotalMsgBytes": 12}])
def test_a_full_destination_confirms_what_it_stores_and_tells_producers_to_wait(limits: dict[str, int]) -> None:
    home, producer = filled("FLOW_CONTROL", [4, 4], **limits)
    other = home.producer(8)
    out = home.send(producer, [4])
    assert gates(out) == [(producer, "slow"), (other, "slow")]
    assert [sent.first_seq for sent in of(out, SendAnswered)] == [3]
    late = home.send(producer, [4])
    assert [sent.first_seq for sent in of(late, SendAnswered)] == [4]
    assert of(late, Gate) == []
    assert home.core.block_index.messages == 4, "the limit is a hint"
    volatile = home.send(producer, [4], persistent=False)
    assert len(of(volatile, SendAnswered)) == 1, "it gives credit back"
    consumer, out = home.open(3)
    assert gates(home.ack(consumer, 1, 2)) == []
    assert gates(home.ack(consumer, 3)) == [(producer, "open"), (other, "open")]


def test_one_below_the_limit_is_not_full() -> None:
    home, producer = filled("FLOW_CONTROL", [1], maxNumMsgs=3)
    out = home.send(producer, [1])
    assert len(of(out, SendAnswered)) == 1
    assert gates(out) == []


def test_a_producer_that_comes_to_a_full_destination_is_told_at_once() -> None:
    home, _ = filled("FLOW_CONTROL", [1], maxNumMsgs=1)
    number = home.number()
    out = home.do(cmd.AttachProducer(number, 9))
    assert gates(out) == [(number, "slow")]


def test_raising_the_limit_opens_the_gate() -> None:
    home, producer = filled("FLOW_CONTROL", [1], maxNumMsgs=1)
    from dataclasses import replace

    out = home.do(cmd.Update(replace(home.core.attributes, maxNumMsgs=2)))
    assert gates(out) == [(producer, "open")]


# ---- REMOVE_OLDEST and REMOVE_LOW_PRIORITY (D-11, D-12) ------------------------------------------------------------


@pytest.mark.parametrize("behavior", ["REMOVE_OLDEST", "REMOVE_LOW_PRIORITY"])
def test_exactly_as_many_go_as_have_to_by_count(behavior: str) -> None:
    home, producer = filled(behavior, [1, 1, 1], maxNumMsgs=3)
    reason = behavior.removeprefix("REMOVE_")
    out = home.send(producer, [1, 1])
    assert refusals(out) == []
    assert burials(out) == [(reason, 1, 1), (reason, 2, 1)]
    assert home.core.block_index.messages - home.core.block_index.dead == 3
    for _, ordinal, mask in burials(out):
        home.do(cmd.SettleDeadLetters(0, ordinal, mask))
    assert home.core.block_index.messages == 3


@pytest.mark.parametrize("behavior", ["REMOVE_OLDEST", "REMOVE_LOW_PRIORITY"])
def test_exactly_as_many_go_as_have_to_by_bytes(behavior: str) -> None:
    home, producer = filled(behavior, [4, 4], maxTotalMsgBytes=12)
    assert burials(home.send(producer, [4])) == [], "exactly the limit is within it"
    out = home.send(producer, [5])
    assert [row[1] for row in burials(out)] == [1, 2]


def test_the_oldest_go_whatever_their_priority() -> None:
    home = Home(limitBehavior="REMOVE_OLDEST", maxNumMsgs=2)
    producer = home.producer()
    home.send(producer, [1, 1], columns=columns(2, priorities=[9, 0]))
    assert burials(home.send(producer, [1])) == [("OLDEST", 1, 0b01)]


def test_the_lowest_priority_goes_and_of_it_the_oldest() -> None:  # D-12
    home = Home(limitBehavior="REMOVE_LOW_PRIORITY", maxNumMsgs=3)
    producer = home.producer()
    home.send(producer, [1] * 3, columns=columns(3, priorities=[9, 1, 1]))
    assert burials(home.send(producer, [1])) == [("LOW_PRIORITY", 1, 0b010)]
    assert burials(home.send(producer, [1], columns=columns(1, priority=0))) == [("LOW_PRIORITY", 3, 0b1)]


def test_what_an_application_has_begun_is_not_discarded() -> None:
    home, producer = filled("REMOVE_OLDEST", [1, 1], maxNumMsgs=2)
    consumer = home.consumer(2)
    out = home.send(producer, [1])
    assert (burials(out), of(out, Recall)) == ([], [Recall(consumer, ((1, 1),))])
    out = home.do(cmd.Recalled(consumer, ()))
    assert (burials(out), of(out, Recall)) == ([], [Recall(consumer, ((2, 2),))]), "it has begun the oldest"
    out = home.do(cmd.Recalled(consumer, ()))
    assert burials(out) == [("OLDEST", 3, 1)], "of what is with nobody the newest is the oldest too"
    home.do(cmd.SettleDeadLetters(0, 3, 1))
    assert home.core.block_index.messages == 2


@pytest.mark.parametrize(("consumers", "each"), [(1, 5), (2, 2)])
def test_who_cannot_give_anything_back_leaves_the_newest_half(consumers: int, each: int) -> None:
    home, producer = filled("REMOVE_OLDEST", [1] * 8, maxNumMsgs=10)
    for _ in range(consumers):
        home.consumer(100, recalls=False)
    out = home.send(producer, [1] * 8)
    assert sum(mask.bit_count() for _, _, mask in burials(out)) == 6
    held = [queue.have for queue in home.core.queues[0].consumers.by_attachment.values()]
    assert max(held[1:], default=each) <= each, "the first was there before the others"
    assert home.core.block_index.messages - home.core.block_index.dead == 10


# ---- order, retries, pauses ----------------------------------------------------------------------------------------


def test_a_retry_is_stored_once_and_confirmed_again() -> None:
    home, producer = filled("REJECT_NEWEST", [1])
    out = home.send(producer, [1], first=1)
    assert of(out, SendAnswered) == [SendAnswered(producer, 1, 1, ())]
    assert out.accepted is None
    assert home.core.block_index.messages == 1


def test_a_refused_message_may_not_come_after_later_ones() -> None:  # B-21
    home, producer = filled("REJECT_NEWEST", [1, 1], maxNumMsgs=2)
    home.send(producer, [1])
    consumer = home.consumer(1)
    home.ack(consumer, 1)
    home.send(producer, [1])
    assert "later ones" in refusals(home.send(producer, [1], first=3))[0].text


def test_a_producer_over_a_connection_that_it_has_left_is_not_heard() -> None:
    home = Home()
    old = home.producer(7)
    new = home.producer(7)
    assert home.send(old, [1]).accepted is None
    assert home.send(new, [1], first=1).accepted == 1


def test_a_full_store_refuses_persistent_messages_only() -> None:
    home = Home()
    producer = home.producer()
    assert [r.code for r in refusals(home.send(producer, [1], room=False))] == ["store_full"]
    home.send(producer, [1], room=False, persistent=False)
    assert home.core.block_index.messages == 1


def test_without_memory_everything_is_refused_but_what_is_held_already() -> None:  # B-17
    home = Home()
    producer = home.producer()
    home.send(producer, [1], first=1)
    assert refusals(home.send(producer, [1], first=1, barred="no memory")) == []
    for persistent in (True, False):
        (refused,) = refusals(home.send(producer, [1, 1], first=2, barred="no memory", persistent=persistent))
        assert refused == (0, 2, "memory_low", "no memory")
    assert home.core.block_index.messages == 1
    assert home.core.counters.refused == 4


@pytest.mark.parametrize("which", ["production", "insertion"])
def test_a_paused_destination_refuses_new_messages(which: str) -> None:  # W-123, W-124
    home = Home()
    producer = home.producer()
    out = home.do(cmd.Pause(which, 5))
    assert of(out, Gate) == [Gate(producer, "paused", 5)]
    assert not home.core.admission.would_take([1])
    assert [r.code for r in refusals(home.send(producer, [1]))] == ["destination_paused"]
    late = home.number()
    assert of(home.do(cmd.AttachProducer(late, 8)), Gate) == [Gate(late, "paused", 5)]
    home.do(cmd.Resume(which))
    assert refusals(home.send(producer, [1])) == []


def test_there_are_at_most_so_many_producers() -> None:  # D-14
    home = Home(maxNumProducers=1)
    first = home.producer(7)
    with pytest.raises(ResourceAllocationError, match="maxNumProducers=1"):
        home.producer(8)
    home.do(cmd.DetachProducer(first, forget=True))
    home.producer(8)


def test_the_host_itself_sends_without_an_attachment() -> None:
    home = Home()
    out = home.send(0, [1, 1], producer=0, first=1, confirm=False)
    assert out.accepted == 1
    assert of(out, SendAnswered) == []
    assert home.send(0, [1], producer=0, first=1).accepted == 2, "its numbers are not compared"


def test_would_take_says_what_a_send_would_do() -> None:
    home, _ = filled("REJECT_NEWEST", [1], maxNumMsgs=3, maxBytesPerMsg=4)
    assert home.core.admission.would_take([4, 1])
    assert not home.core.admission.would_take([1, 1, 1])
    assert not home.core.admission.would_take([5])


@settings(max_examples=60)
@given(
    st.sampled_from(["REJECT_NEWEST", "REMOVE_OLDEST", "REMOVE_LOW_PRIORITY", "FLOW_CONTROL"]),
    st.integers(-1, 6),
    st.integers(-1, 20),
    st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=4), max_size=12),
)
def test_limits_hold_for_what_waits(behavior: str, most: int, most_bytes: int, blocks: list[list[int]]) -> None:
    home = Home(limitBehavior=behavior, maxNumMsgs=most, maxTotalMsgBytes=most_bytes)
    producer = home.producer()
    sent = refused = 0
    for sizes in blocks:
        was_full = 0 <= most <= home.core.block_index.messages or 0 <= most_bytes <= home.core.block_index.bytes_held
        out = home.send(producer, sizes)
        sent += len(sizes)
        for _, ordinal, mask in burials(out):
            home.do(cmd.SettleDeadLetters(0, ordinal, mask))
        block_index = home.core.block_index
        if behavior == "REJECT_NEWEST":
            refused += sum(r.end - r.start for r in refusals(out))
            assert not was_full or len(sizes) == sum(r.end - r.start for r in refusals(out))
        if behavior == "FLOW_CONTROL":
            assert block_index.messages == sent
            full = 0 <= most <= block_index.messages or 0 <= most_bytes <= block_index.bytes_held
            assert home.core.admission.slow == full
        elif most >= 0:
            assert block_index.messages <= most
        if behavior.startswith("REMOVE") and most_bytes >= 0:
            assert block_index.bytes_held <= most_bytes
    if behavior == "REJECT_NEWEST":
        assert home.core.block_index.messages == sent - refused
    _, out = home.open()
    assert len(handed(out)) == home.core.block_index.messages


# ---- the dying do not count (D-06, D-07) ---------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [{"maxNumMsgs": 2}, {"maxTotalMsgBytes": 8}])
def test_messages_that_are_dead_leave_room_by_count_and_by_bytes(limit: dict[str, int]) -> None:
    home = Home(redeliveryLimit=0, **limit)
    producer = home.producer()
    consumer = home.consumer(100, "prefetch")
    home.send(producer, [4, 4])
    assert [row.code for row in refusals(home.send(producer, [4]))] == ["quota_exceeded"]
    dead = home.settle(consumer, "fail")
    assert home.core.block_index.messages == 2, "they are held until it is settled where they go"
    assert refusals(home.send(producer, [4])) == []
    assert [row.code for row in refusals(home.send(producer, [4]))] == ["quota_exceeded"]
    for _, ordinal, mask in burials(dead):
        home.do(cmd.SettleDeadLetters(0, ordinal, mask))
    assert (home.core.block_index.messages, home.core.block_index.bytes_held) == (2, 8)


def test_the_gate_opens_for_the_room_that_the_dying_leave() -> None:  # D-10
    home = Home(redeliveryLimit=0, maxTotalMsgBytes=8, limitBehavior="FLOW_CONTROL")
    producer = home.producer()
    consumer = home.consumer(100, "prefetch")
    assert gates(home.send(producer, [4, 4])) == [(producer, "slow")]
    assert gates(home.settle(consumer, "fail")) == [(producer, "open")]


def test_what_is_dead_for_one_subscription_and_not_for_another_counts() -> None:
    home = Home("topic", redeliveryLimit=0, maxTotalMsgBytes=4)
    producer = home.producer()
    one, other = (home.subscriber(100, "prefetch", client_id="c", name=name, durable=True) for name in "ab")
    home.send(producer, [4])
    home.settle(one, "fail")
    assert len(refusals(home.send(producer, [4]))) == 1
    home.settle(other, "fail")
    assert refusals(home.send(producer, [4])) == []


def test_a_subscription_that_ends_takes_its_dying_along() -> None:
    home = Home("topic", redeliveryLimit=0)
    consumer = home.subscriber(100, "prefetch")
    home.send(home.producer(), [4])
    home.settle(consumer, "fail")
    assert (home.core.block_index.dead, home.core.block_index.dead_bytes) == (1, 4)
    home.do(cmd.DetachConsumer(consumer))
    assert (home.core.block_index.dead, home.core.block_index.dead_bytes) == (0, 0)


# ---- what nobody wanted is remembered as taken ---------------------------------------------------------------------


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_message_that_nobody_wanted_was_taken_also_after_a_crash(checkpoint: bool) -> None:  # B-21
    home = Home("topic")
    wanting = Subscription("c", "n", True, selector="k = 1")
    home.consumer(100, subscription=wanting)
    producer = home.producer()
    for k in (0, 0, 1, 0):
        home.send(producer, [1], properties=[{"k": k}])
    home = home.crash(checkpoint=checkpoint)
    producer = home.producer()
    for seq, k in enumerate((0, 0, 1), start=1):
        out = home.send(producer, [1], first=seq, properties=[{"k": k}])
        assert (refusals(out), out.accepted) == ([], None), f"message {seq} was taken before"


def test_what_only_a_plain_subscriber_wanted_was_taken_also_after_a_crash() -> None:
    home = Home("topic")
    home.consumer(100, subscription=Subscription("c", "n", True, selector="k = 1"))
    home.subscriber(100)
    producer = home.producer()
    for k in (0, 1):
        home.send(producer, [1], properties=[{"k": k}])
    home = home.crash()
    out = home.send(home.producer(), [1], first=1, properties=[{"k": 0}])
    assert (refusals(out), out.accepted) == ([], None)


def test_what_was_refused_before_what_was_stored_stays_refused_after_a_crash() -> None:  # B-21
    home = Home("topic", maxBytesPerMsg=5)
    home.consumer(100, subscription=Subscription("c", "n", True))
    producer = home.producer()
    assert len(refusals(home.send(producer, [9]))) == 1
    home.send(producer, [1])
    home = home.crash()
    assert len(refusals(home.send(home.producer(), [9], first=1))) == 1


def test_a_producer_that_says_goodbye_leaves_nothing_to_remember() -> None:
    home = Home("topic")
    producer = home.producer()
    home.send(producer, [1])
    assert home.core.producers.unwritten == {7: [(1, 2)]}
    home.do(cmd.DetachProducer(producer, forget=True))
    assert home.core.producers.unwritten == {}
