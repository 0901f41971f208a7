"""What becomes of a delivery: the four outcomes (B9), redelivery delay, back-off and limit, leases, expiry."""

from __future__ import annotations

import pytest

from raybroker.core import command as cmd
from raybroker.core.outcome import Released, Withdrawn
from tests.unit.core.driven_destination import (
    NOW,
    DrivenDestination,
    acked,
    burials,
    columns,
    delivered,
    first_indexes,
    handed,
    of,
)

# ---- the outcomes --------------------------------------------------------------------------------------------------


def test_released_messages_come_again_at_once_and_uncounted() -> None:
    destination, consumer = delivered(redeliveryLimit=0)
    for attempt in range(2, 30):
        assert handed(destination.settle(consumer, "release", tag=attempt - 1)) == [(1, 0, attempt)]


def test_a_rejected_message_is_dead() -> None:
    destination, consumer = delivered(2)
    out = destination.settle(consumer, "reject", reason="bad input")
    assert burials(out) == [("ERROR", 1, 0b01)]
    assert out.immediate[0].comment == "bad input"
    assert destination.core.block_index.dead == 1
    out = destination.do(cmd.SettleDeadLetters(0, 1, 0b01))
    assert destination.core.block_index.messages == 1
    assert destination.core.counters.dead == 1


def test_a_rejected_message_is_still_rejected_after_a_restart() -> None:
    for checkpoint in (False, True):
        destination, consumer = delivered()
        destination.settle(consumer, "reject", reason="bad input")
        again = destination.crash(checkpoint=checkpoint)
        _, out = again.open()
        assert [row[0] for row in burials(out)] == ["ERROR"]
        assert handed(out) == []


def test_a_message_that_expired_at_the_consumer_is_dead() -> None:
    destination, consumer = delivered()
    assert burials(destination.settle(consumer, "expired")) == [("EXPIRED", 1, 1)]


def test_an_outcome_is_confirmed_and_says_what_is_unknown() -> None:
    destination, consumer = delivered(2)
    out = destination.do(cmd.Settle(consumer, [(1, 3)], 9, "release"))
    assert acked(out) == [1]
    assert acked(destination.do(cmd.Settle(9999, [(1, 3)], 9, "fail"))) == [3]
    assert acked(destination.do(cmd.Settle(consumer, [(3, 4)], 0, "fail"))) == []


# ---- failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_limit_of_n_allows_n_plus_one_deliveries(limit: int) -> None:  # W-69
    destination, consumer = delivered(redeliveryLimit=limit)
    for attempt in range(1, limit + 1):
        assert handed(destination.settle(consumer, "fail", tag=attempt)) == [(1, 0, attempt + 1)]
    out = destination.settle(consumer, "fail", tag=limit + 1)
    assert handed(out) == []
    assert burials(out) == [("UNDELIVERABLE", 1, 1)]
    assert of(out, type(out.immediate[0]))[0].attempts == limit + 1


def test_a_limit_of_20_is_on_without_being_asked_for() -> None:  # B10
    destination, consumer = delivered()
    for attempt in range(1, 21):
        assert handed(destination.settle(consumer, "fail", tag=attempt)) == [(1, 0, attempt + 1)]
    assert [row[0] for row in burials(destination.settle(consumer, "fail", tag=21))] == ["UNDELIVERABLE"]


def test_without_a_limit_a_message_fails_for_ever() -> None:
    destination, consumer = delivered(redeliveryLimit=-1)
    for attempt in range(1, 60):
        assert handed(destination.settle(consumer, "fail", tag=attempt)) == [(1, 0, attempt + 1)]


@pytest.mark.parametrize(
    ("limit", "rollbacks", "expected"), [(-1, 0, -1), (-1, 3, 2), (1, 3, 1), (20, 3, 2), (20, 0, 20), (2, 3, 2)]
)
def test_the_smaller_of_the_two_limits_holds(limit: int, rollbacks: int, expected: int) -> None:  # T-09, W-69
    destination = DrivenDestination(redeliveryLimit=limit)
    destination.core.policy.set_host_limits(message_bytes_max=-1, rollbacks_max=rollbacks)
    assert destination.core.policy.failures_max == expected


def test_failures_are_counted_across_a_restart() -> None:
    destination, consumer = delivered(redeliveryLimit=1)
    destination.settle(consumer, "fail")
    again = destination.crash()
    consumer, out = again.open()
    assert handed(out) == [(1, 0, 3)], "the delivery before the crash counts as an attempt, not as a failure"
    assert [row[0] for row in burials(again.settle(consumer, "fail"))] == ["UNDELIVERABLE"]


def test_a_failed_message_rests_for_the_delay_of_its_consumer() -> None:  # W-67, B8
    destination, consumer = delivered(3)
    out = destination.settle(consumer, "fail", tag=2, delay_ms=100)
    assert handed(out) == []
    assert out.wake_at == NOW + 100
    assert handed(destination.tick(99)) == []
    assert handed(destination.tick(1)) == [(1, 1, 2)]


def test_the_delay_of_the_destination_beats_that_of_the_consumer() -> None:  # W-68
    destination, consumer = delivered(2, redeliveryDelayOverride=50)
    assert destination.settle(consumer, "fail", delay_ms=100).wake_at == NOW + 50
    destination, consumer = delivered(redeliveryDelayOverride=0)
    assert handed(destination.settle(consumer, "fail", delay_ms=100)) == [(1, 0, 2)]


def test_the_delay_grows_with_every_failure_up_to_its_cap() -> None:  # B11
    destination, consumer = delivered(
        redeliveryDelayOverride=100, redeliveryBackoffPercent=300, redeliveryDelayMax=1000, redeliveryLimit=-1
    )
    waits = []
    for tag in range(1, 6):
        out = destination.settle(consumer, "fail", tag=tag)
        assert out.wake_at is not None
        waits.append(out.wake_at - destination.now_ms)
        assert handed(destination.tick(waits[-1])) == [(1, 0, tag + 1)]
    assert waits == [100, 300, 900, 1000, 1000]


def test_a_delay_beyond_the_cap_stays_what_it_is() -> None:
    destination, consumer = delivered(
        redeliveryDelayOverride=5000, redeliveryDelayMax=1000, redeliveryBackoffPercent=200
    )
    assert destination.settle(consumer, "fail").wake_at == NOW + 5000


# ---- recover and lost consumers ------------------------------------------------------------------------------------


def test_recover_counts_what_the_application_had_got() -> None:  # R-11, W-67
    destination, consumer = delivered(3, redeliveryLimit=0)
    out = destination.do(cmd.Release(consumer, 0, 7, consumed=2))
    assert burials(out) == [("UNDELIVERABLE", 1, 0b011)]
    assert handed(out) == [(1, 2, 2)]
    assert of(out, Released) == [Released(consumer, 7, 4)]
    assert isinstance(out.immediate[0], Released), "before anything that is delivered after it"


def test_recover_may_ask_for_a_delay() -> None:
    destination, consumer = delivered(2)
    out = destination.do(cmd.Release(consumer, 0, 7, consumed=1, delay_ms=30))
    assert handed(out) == [(1, 1, 2)]
    assert handed(destination.tick(30)) == [(1, 0, 2)]


def test_a_consumer_that_is_lost_fails_what_it_had_begun_without_delay() -> None:  # B10, W-67
    destination, consumer = delivered(3, redeliveryLimit=0, redeliveryDelayOverride=500)
    destination.do(cmd.Begun(consumer, 1))
    out = destination.do(cmd.DetachConsumer(consumer, lost=True))
    assert burials(out) == [("UNDELIVERABLE", 1, 0b001)]
    _, out = destination.open()
    assert handed(out) == [(1, 1, 2), (1, 2, 2)], "at once: its consumer is gone"


def test_a_consumer_that_closes_fails_nothing() -> None:
    destination, consumer = delivered(2, redeliveryLimit=0)
    destination.do(cmd.Begun(consumer, 2))
    assert burials(destination.do(cmd.DetachConsumer(consumer))) == []
    assert first_indexes(destination.open()[1]) == [(1, 0), (1, 1)]


def test_what_begins_never_goes_back() -> None:
    destination, consumer = delivered(3)
    destination.do(cmd.Begun(consumer, 2))
    destination.do(cmd.Begun(consumer, 1))
    assert destination.queue.consumers.by_attachment[consumer].begun == 2


# ---- leases --------------------------------------------------------------------------------------------------------


def test_what_is_not_acknowledged_in_time_comes_again_uncounted() -> None:  # B6
    destination = DrivenDestination(redeliveryLimit=0)
    consumer = destination.consumer(2, "prefetch", lease_ms=100)
    out = destination.send(destination.producer(), [1, 1])
    assert out.wake_at == NOW + 100
    destination.ack(consumer, 2)
    assert handed(destination.tick(99)) == []
    out = destination.tick(1)
    assert handed(out) == [], "who lets a deadline pass gets nothing before it is heard of again"
    assert of(out, Withdrawn) == [Withdrawn(consumer, ((1, 1),))], "it is told what is not its any more"
    other, out = destination.open(1, "prefetch")
    assert handed(out, other) == [(1, 0, 2)]
    assert acked(destination.ack(consumer, 1)) == [1], "its acknowledgement comes too late"


def test_a_consumer_that_let_a_deadline_pass_goes_on_when_it_is_heard_of() -> None:  # B6
    for word in (lambda c: cmd.Acknowledge(c, [(1, 1)], 1), lambda c: cmd.Begun(c, 1), lambda c: cmd.Grant(c, 0)):
        destination = DrivenDestination()
        consumer = destination.consumer(2, "prefetch", lease_ms=100)
        destination.send(destination.producer(), [1])
        assert handed(destination.tick(100)) == []
        assert handed(destination.do(word(consumer))) == [(1, 0, 2)]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_the_application_never_got_is_as_it_was_before(checkpoint: bool) -> None:
    for word in (
        lambda c: cmd.DetachConsumer(c, seen=1),
        lambda c: cmd.Release(c, 0, 1, seen=1),
        lambda c: cmd.Settle(c, [(2, 3)], 1, "unseen"),
    ):
        destination = DrivenDestination()
        consumer = destination.consumer(3, "prefetch")
        destination.send(destination.producer(), [1, 1, 1])
        destination.do(cmd.Hold(consumer))
        destination.do(word(consumer))
        if destination.core.queue_of:
            destination.do(cmd.DetachConsumer(consumer))
        for state in (destination, destination.crash(checkpoint=checkpoint)):
            _, out = state.open(3, "prefetch")
            assert handed(out) == [(1, 0, 2), (1, 1, 1), (1, 2, 1)]


def test_what_a_transaction_received_goes_back_without_its_consumer() -> None:  # A-45, W-69
    destination = DrivenDestination(redeliveryLimit=0)
    consumer = destination.consumer(3, "prefetch")
    destination.send(destination.producer(), [1, 1, 1])
    out = destination.do(cmd.TakeBack(consumer, 1))
    assert of(out, Withdrawn) == [Withdrawn(consumer, ((1, 3),))]
    assert handed(out) == [], "it gets nothing before it is heard of again"
    assert burials(out) == [("UNDELIVERABLE", 1, 1)], "what had reached the application has failed"
    assert [row[:2] for row in handed(destination.do(cmd.Begun(consumer, 0)))] == [(1, 1), (1, 2)]


def test_progress_starts_the_time_again() -> None:  # B7
    destination = DrivenDestination()
    consumer = destination.consumer(2, "prefetch", lease_ms=100)
    destination.send(destination.producer(), [1, 1])
    other = destination.consumer()
    destination.now_ms += 60
    out = destination.do(cmd.Extend(consumer, [(1, 1)]))
    assert out.wake_at == NOW + 100, "the other one is due first"
    assert handed(destination.tick(40), other) == [(1, 1, 2)]
    assert handed(destination.tick(59)) == []
    assert handed(destination.tick(1), other) == [(1, 0, 2)]


def test_without_a_lease_there_is_nothing_to_extend() -> None:
    destination, consumer = delivered()
    assert destination.do(cmd.Extend(consumer, [(1, 1)])).wake_at is None


# ---- expiry --------------------------------------------------------------------------------------------------------


def test_an_expired_message_never_reaches_a_consumer() -> None:  # W-60
    destination = DrivenDestination()
    destination.send(destination.producer(), [1, 1, 1], columns=columns(3, ttl=[0, 10, 20]))
    destination.now_ms += 10
    _, out = destination.open()
    assert first_indexes(out) == [(1, 0), (1, 2)]
    assert burials(out) == [("EXPIRED", 1, 0b010)]


def test_a_message_lives_up_to_its_expiry() -> None:
    destination = DrivenDestination()
    destination.send(destination.producer(), [1], columns=columns(1, ttl=10))
    destination.now_ms += 9
    assert first_indexes(destination.open()[1]) == [(1, 0)]


def test_the_scan_takes_out_what_has_expired_and_nothing_before_its_time() -> None:  # B-09, W-59
    destination = DrivenDestination()
    destination.core.expiry.scan_ms = 1000
    out = destination.send(destination.producer(), [1, 1, 1], columns=columns(3, ttl=[0, 10, 1500]))
    assert out.wake_at == NOW + 1000
    assert burials(destination.tick(999)) == []
    out = destination.tick(1)
    assert burials(out) == [("EXPIRED", 1, 0b010)]
    assert out.wake_at == NOW + 2000
    assert burials(destination.tick(1000)) == [("EXPIRED", 1, 0b100)]
    destination.do(cmd.SettleDeadLetters(0, 1, 0b110))
    assert destination.tick(1000).wake_at is None, "nothing is left that expires"


def test_without_a_scan_nothing_is_looked_for() -> None:  # W-60
    destination = DrivenDestination()
    out = destination.send(destination.producer(), [1], columns=columns(1, ttl=10))
    assert out.wake_at is None
    assert burials(destination.tick(10_000)) == []


def test_a_message_that_expired_at_a_consumer_is_found_once_it_is_back() -> None:  # B-09
    destination = DrivenDestination()
    destination.core.expiry.scan_ms = 1000
    consumer = destination.consumer()
    destination.send(destination.producer(), [1], columns=columns(1, ttl=10))
    assert burials(destination.tick(1000)) == []
    destination.do(cmd.DetachConsumer(consumer))
    assert burials(destination.tick(1000)) == [("EXPIRED", 1, 1)]


def test_a_message_may_expire_before_it_is_born() -> None:  # W-66
    destination = DrivenDestination()
    destination.core.expiry.scan_ms = 1000
    consumer = destination.consumer()
    destination.send(destination.producer(), [1], columns=columns(1, ttl=100, delay=200))
    assert handed(destination.tick(200), consumer) == []
    assert destination.core.block_index.dead == 1
