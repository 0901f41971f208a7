"""Consumers that ask for an exact number of messages, and drains: what is asked for, and when a drain is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raybroker.client.consumer.prefetch.credit_pool import CreditPool
from raybroker.client.consumer.prefetch.flow_control import PrefetchFlow


def test_a_flow_asks_for_what_is_wished_and_neither_here_nor_under_way() -> None:
    flow = PrefetchFlow(0)
    flow.wish = 5
    assert (flow.wanted(), flow.wanted()) == (5, 0)
    flow.arrived(2)
    assert flow.wanted() == 0
    flow.consumed(2)
    assert flow.wanted() == 2
    flow.wish = 3
    flow.arrived(5)
    flow.consumed(5)
    assert flow.wanted() == 3


def test_nothing_is_asked_for_during_a_drain_and_what_was_is_void_after_it() -> None:
    async def run() -> None:
        flow, drained = PrefetchFlow(0), asyncio.get_running_loop().create_future()
        flow.wish = 4
        flow.wanted()
        flow.drains.append(drained)
        flow.wish = 9
        assert flow.wanted() == 0
        flow.drained()
        assert drained.done()
        assert flow.wanted() == 9

    asyncio.run(run())


def test_a_lost_connection_ends_a_drain() -> None:
    async def run() -> None:
        flow, drained = PrefetchFlow(0), asyncio.get_running_loop().create_future()
        flow.drains.append(drained)
        flow.restart()
        assert drained.done()

    asyncio.run(run())


class Members:
    """A pool with a limit of 0, and its members."""

    def __init__(self, count: int) -> None:
        self.due = 0
        self.pool = CreditPool("prefetch", 50, by_acks=False, due=self._note)
        self.shares = [self.pool.join() for _ in range(count)]
        for share in self.shares:
            self.pool.opened(share, 0, drained=count > 1)

    def _note(self) -> None:
        self.due += 1

    def grants(self) -> list[tuple[int, int, bool]]:
        """(member, credit, it stands) of each that is due."""
        return [(self.shares.index(one.share), one.credit, one.stands) for one in self.pool.grants()]


def in_loop(work: Callable[[asyncio.AbstractEventLoop], None]) -> None:
    async def run() -> None:
        work(asyncio.get_running_loop())

    asyncio.run(run())


def test_one_member_gets_all_that_is_wished() -> None:
    members = Members(1)
    members.pool.wish.count = 5
    members.pool.poll()
    assert members.grants() == [(0, 5, True)]
    members.shares[0].arrived(3)
    members.shares[0].consumed(3)
    members.pool.poll()
    assert members.grants() == [(0, 3, True)]


def test_several_members_share_what_is_wished_and_a_drain_is_over_when_none_has_more() -> None:
    def work(loop: asyncio.AbstractEventLoop) -> None:
        members, drained = Members(2), loop.create_future()
        pool, (one, other) = members.pool, members.shares
        pool.wish.count = 4
        pool.start_drain(drained)
        assert sorted(members.grants()) == [(0, 0, False), (1, 0, False)], "both are asked"
        pool.drained(one)
        assert not drained.done()
        pool.drained(other)
        assert sum(credit for _, credit, _ in members.grants()) == 4
        one.arrived(2)
        assert not drained.done(), "the other has not said yet that it has nothing"
        pool.drained(other)
        assert members.grants() == [(0, 2, False)], "what it does not need goes to the one that may have more"
        pool.drained(one)
        assert drained.done()

    in_loop(work)


def test_a_member_that_leaves_keeps_no_drain_waiting() -> None:
    def work(loop: asyncio.AbstractEventLoop) -> None:
        members, drained = Members(2), loop.create_future()
        members.pool.start_drain(drained)
        members.grants()
        members.pool.drained(members.shares[0])
        members.grants()
        members.pool.drained(members.shares[0])
        members.pool.leave(members.shares[1])
        assert drained.done()

    in_loop(work)


def test_a_drain_waits_for_the_answer_to_what_was_asked_before_it() -> None:
    """The answer to that is none to the drain: what is still to come would have nobody who wants it."""

    def work(loop: asyncio.AbstractEventLoop) -> None:
        members, drained = Members(2), loop.create_future()
        pool, (one, other) = members.pool, members.shares
        pool.wish.count = 2
        pool.ready(one)
        pool.poll()
        assert members.grants() == [(0, 2, False)]
        pool.start_drain(drained)
        assert members.grants() == [(1, 0, False)], "the first has been asked, and has not answered"
        pool.drained(other)
        pool.drained(one)
        assert not drained.done()
        asked = members.grants()
        assert (0, 0, False) in asked, "it is asked for the drain now"
        for _ in range(5):
            for index, _, _ in asked:
                pool.drained(members.shares[index])
            asked = members.grants()
        assert drained.done()
        assert not pool.granted

    in_loop(work)


def test_a_drain_asks_no_more_of_a_member_that_has_not_answered() -> None:
    """What it was granted beside the drain would come, and the answer to the drain would say that it does not."""

    def work(loop: asyncio.AbstractEventLoop) -> None:
        members, drained = Members(2), loop.create_future()
        pool, (one, other) = members.pool, members.shares
        pool.leave(other)
        pool.wish.count = 2
        pool.ready(one)
        pool.start_drain(drained)
        assert members.grants() == [(0, 0, False)]
        pool.drained(one)
        assert members.grants() == [(0, 2, False)], "its answer says nothing of what it is granted now"
        one.arrived(2)
        assert drained.done()
        assert (pool.granted, members.grants()) == (0, [])

    in_loop(work)
