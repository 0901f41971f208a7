"""A host's share of a pool: what fits its lease, who waits, in which order, and when waiting is over."""

from __future__ import annotations

import pytest

from raybroker.core.admission import limits
from raybroker.core.admission.pool_share import (
    ANSWER_MS,
    OWED_MS,
    RETRY_MS,
    WAITING_MAX,
    Account,
    PoolLimits,
    PoolRoom,
    PoolShare,
    PoolWaiter,
)

NOW = 10_000


def share_of(messages: int = -1, nbytes: int = -1, policy: str = "FIFO", *, alone: bool = True) -> PoolShare:
    return PoolShare("p", PoolLimits(messages, nbytes, policy), alone=alone)


def wait(share: PoolShare, messages: int, nbytes: int = 0, *, key: int = 1, timeout_ms: int = 10) -> PoolWaiter:
    waiter = PoolWaiter(messages, nbytes, NOW, NOW + timeout_ms, key, None)
    share.wait(waiter)
    return waiter


def test_exactly_the_limit_fits_and_one_more_does_not() -> None:
    share = share_of(3, 10)
    assert share.fits(3, 10)
    assert not share.fits(4, 1)
    assert not share.fits(1, 11)
    share.charge(2, 10)
    assert not share.fits(1, 1)
    assert share.fits(1, 0)


def test_zero_takes_nothing_and_no_limit_takes_anything() -> None:
    assert not share_of(0).fits(1, 0)
    assert share_of().fits(10**9, 10**12)


def test_of_a_block_that_fits_in_part_that_part_is_taken() -> None:
    share = share_of(2, 100)
    taken, refused = limits.admit("q", limits.DestinationLimits(-1, -1, -1), 0, 0, [10, 200, 10, 10], [(0, 4)], share)
    assert taken == [(0, 1), (2, 3)]
    assert [(row.start, row.end, row.code) for row in refused] == [(1, 2, "quota_exceeded"), (3, 4, "quota_exceeded")]
    assert "imq.system.max_size=100" in refused[0].text
    assert "imq.system.max_count=2" in refused[1].text
    assert share.refused == 2


def test_what_was_admitted_of_a_block_before_counts() -> None:
    assert (
        limits.admit("q", limits.DestinationLimits(-1, -1, -1), 0, 0, [1, 1, 1], [(2, 3)], share_of(2), (2, 2))[0] == []
    )


def test_what_the_pool_refuses_does_not_count_for_the_limits_of_the_destination() -> None:
    taken, _ = limits.admit("q", limits.DestinationLimits(1, -1, -1), 0, 0, [200, 10], [(0, 2)], share_of(-1, 100))
    assert taken == [(1, 2)]


def test_a_message_that_is_larger_than_the_pool_is_told_so() -> None:
    share = PoolShare("quota:x/", PoolLimits(5, 10, owner="quota 'x'", bytes_name="BytesMaximum"), alone=True)
    assert not share.fits(1, 11)
    assert "a message of 11 bytes is larger than quota 'x' allows" in share.refusal(1, 11)
    assert "BytesMaximum=10; send it smaller or raise the limit" in share.refusal(1, 11)
    share.charge(1, 1)
    assert "has no room for the message within its BytesMaximum=10 bytes; consume some" in share.refusal(1, 10)


def test_first_come_first_served_although_a_later_one_would_fit() -> None:
    share = share_of(5)
    share.charge(3, 0)
    large, small = wait(share, 4, key=1), wait(share, 1, key=2)
    assert share.must_wait(1, 0, 3)
    assert share.take_next(NOW) is None
    share.charge(-2, 0)
    assert share.take_next(NOW) == (large, True)
    share.charge(4, 0)
    assert share.take_next(NOW) is None
    share.charge(-1, 0)
    assert share.take_next(NOW) == (small, True)


def test_the_end_of_the_heads_patience_lets_the_next_one_in() -> None:
    share = share_of(5)
    share.charge(3, 0)
    large, small = wait(share, 4, timeout_ms=10), wait(share, 1, timeout_ms=1000)
    assert share.take_next(NOW + 9) is None
    assert share.take_next(NOW + 10) == (large, True)
    assert share.take_next(NOW + 10) == (small, True)


def test_who_waits_behind_the_head_gets_nothing_when_its_own_time_is_over() -> None:
    share = share_of(5)
    share.charge(3, 0)
    wait(share, 4, timeout_ms=1000)
    small = wait(share, 1, timeout_ms=10)
    assert share.take_next(NOW + 10) == (small, False)


def test_preemptive_lets_in_whoever_fits_but_keeps_a_producers_blocks_in_order() -> None:
    share = share_of(5, policy="Preemptive")
    share.charge(3, 0)
    wait(share, 4, key=1)
    wait(share, 1, key=1)
    assert share.must_wait(1, 0, 1)
    assert not share.must_wait(1, 0, 2)
    other = wait(share, 1, key=2)
    assert share.take_next(NOW) == (other, True)
    assert share.take_next(NOW) is None


def test_raising_a_limit_lets_those_in_that_wait_and_lowering_it_takes_nothing_away() -> None:
    share = share_of(3)
    share.charge(3, 30)
    waiter = wait(share, 1)
    share.configure(PoolLimits(2, -1))
    assert share.take_next(NOW) is None
    assert share.used_messages == 3
    share.configure(PoolLimits(4, -1))
    assert share.take_next(NOW) == (waiter, True)


def test_waiting_is_bounded() -> None:
    share = share_of(0)
    for _ in range(WAITING_MAX):
        assert share.has_room_to_wait(1)
        wait(share, 1, 1)
    assert not share.has_room_to_wait(1)
    share.leave(share.waiting[3])
    assert share.has_room_to_wait(1)
    assert not share.has_room_to_wait(1 << 40)


# ---- with a broker that divides the pool ---------------------------------------------------------------------------


def test_a_host_that_has_recovered_messages_admits_none_before_it_was_granted_more() -> None:
    share = share_of(10, alone=False)
    account = Account(share)
    account.charge(4, 40)
    share.cover()
    assert share.wants_more(NOW)
    assert share.statement().lease == PoolRoom(4, -1)
    assert not share.fits(1, 1)
    share.granted(share.version, PoolRoom(6, -1), PoolRoom(2, 0), short=False, now_ms=NOW)
    assert share.fits(2, 1)
    assert not share.fits(3, 1)


def test_a_grant_of_an_older_version_is_void() -> None:
    share = share_of(10, alone=False)
    asked = share.begin_question(NOW).version
    share.surrender()
    share.granted(asked, PoolRoom(10, -1), PoolRoom(0, 0), short=False, now_ms=NOW)
    assert not share.fits(1, 1)


def test_it_asks_once_at_a_time_and_before_its_lease_is_used_up() -> None:
    share = share_of(100, alone=False)
    waiter = wait(share, 1)
    assert share.wants_more(NOW)
    assert share.begin_question(NOW).need == PoolRoom(1, 0)
    assert not share.wants_more(NOW)
    share.granted(share.version, PoolRoom(11, -1), PoolRoom(10, 0), short=False, now_ms=NOW)
    assert share.take_next(NOW) == (waiter, True)
    share.charge(6, 0)
    assert not share.wants_more(NOW)
    share.charge(1, 0)
    assert share.wants_more(NOW)
    share.granted(share.version, PoolRoom(100, -1), PoolRoom(10, 0), short=False, now_ms=NOW)
    share.charge(92, 0)
    assert share.whole
    assert not share.wants_more(NOW)


def test_nobody_is_refused_before_the_broker_has_said_that_there_is_no_more() -> None:
    share = share_of(10, alone=False)
    waiter = wait(share, 1, timeout_ms=0)
    share.begin_question(NOW)
    assert share.take_next(NOW + 500) is None
    share.granted(share.version, PoolRoom(0, -1), PoolRoom(0, 0), short=True, now_ms=NOW + 500)
    assert share.take_next(NOW + 500) == (waiter, True)
    assert not share.wants_more(NOW + 500 + RETRY_MS - 1)


def test_a_broker_that_does_not_answer_ends_the_wait_all_the_same() -> None:
    share = share_of(10, alone=False)
    waiter = wait(share, 1, timeout_ms=20)
    share.begin_question(NOW)
    assert share.due_ms(NOW) == NOW + 20
    assert share.take_next(NOW + 20) is None
    assert share.due_ms(NOW + 20) == NOW + ANSWER_MS
    share.unanswered(NOW + 200)
    assert share.due_ms(NOW + 200) == NOW + 200 + RETRY_MS
    assert share.take_next(NOW + ANSWER_MS) == (waiter, True)


def test_what_the_broker_was_asked_before_the_sender_came_does_not_end_its_wait() -> None:
    share = share_of(10, alone=False)
    share.begin_question(NOW - 5)
    waiter = wait(share, 1, timeout_ms=0)
    share.granted(share.version, PoolRoom(0, -1), PoolRoom(0, 0), short=True, now_ms=NOW + 1)
    assert share.take_next(NOW + 1) is None
    assert share.due_ms(NOW + 1) == NOW + 1 + RETRY_MS
    assert share.wants_more(NOW + 1 + RETRY_MS)
    share.begin_question(NOW + 1 + RETRY_MS)
    share.granted(share.version, PoolRoom(0, -1), PoolRoom(0, 0), short=True, now_ms=NOW + 30)
    assert share.take_next(NOW + 30) == (waiter, True)


def test_room_that_another_host_waits_for_is_set_aside_for_a_while() -> None:
    share = share_of(10, alone=False)
    share.granted(share.version, PoolRoom(4, -1), PoolRoom(0, 0), short=False, now_ms=NOW)
    share.set_aside(PoolRoom(3, 0), NOW)
    assert share.fits(1, 0)
    assert not share.fits(2, 0)
    waiter = wait(share, 2, timeout_ms=1000)
    assert share.take_next(NOW + OWED_MS - 1) is None
    assert share.take_next(NOW + OWED_MS) == (waiter, True)


@pytest.mark.parametrize(("messages", "nbytes", "lease"), [(5, -1, PoolRoom(2, -1)), (-1, 50, PoolRoom(-1, 20))])
def test_what_is_not_used_is_given_back(messages: int, nbytes: int, lease: PoolRoom) -> None:
    share = share_of(messages, nbytes, alone=False)
    share.charge(2, 20)
    share.granted(share.version, PoolRoom(messages, nbytes), PoolRoom(0, 0), short=False, now_ms=NOW)
    before = share.version
    share.surrender()
    assert (share.version, share.lease) == (before + 1, lease)


def test_what_the_host_itself_would_send_is_asked_for_although_nobody_waits() -> None:
    share = share_of(10, alone=False)
    share.want(3, 30)
    assert share.wants_more(NOW)
    assert share.begin_question(NOW).need == PoolRoom(3, 0)
    share.granted(share.version, PoolRoom(3, -1), PoolRoom(0, 0), short=False, now_ms=NOW)
    assert not share.wants_more(NOW)


def test_an_account_charges_the_difference_and_gives_all_back_when_it_is_closed() -> None:
    share = share_of(10)
    one, other = Account(share), Account(share)
    one.charge(3, 30)
    other.charge(2, 20)
    one.charge(1, 10)
    assert (share.used_messages, share.used_bytes) == (3, 30)
    one.close()
    assert (share.used_messages, share.used_bytes) == (2, 20)
