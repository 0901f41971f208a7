"""A broker divides its pools among hosts that are asked to give back what they do not use."""

from __future__ import annotations

import asyncio
from typing import Any

from raybroker.broker.destinations.pools import BrokerPools
from raybroker.core.admission.pool_share import PoolLimits, PoolRoom, PoolShare, PoolWaiter
from raybroker.model.errors import ConnectionLostError

CONFIG = {"imq.system.max_count": 10, "imq.system.max_size": -1, "raybroker.system.blockingSendPolicy": "FIFO"}


class Host:
    """A host with a share and no destinations; ``silent``: it cannot be asked."""

    def __init__(self, key: str, *, silent: bool = False) -> None:
        self.key = key
        self.pools = self
        self.silent = silent
        self.share = PoolShare("system", PoolLimits(10, -1), alone=False)
        self.recalled = 0

    async def recall(self, pool: str, owed: list[int]) -> dict[str, Any]:
        self.recalled += 1
        if self.silent:
            raise ConnectionLostError("gone")
        self.share.surrender()
        return {
            "version": self.share.version,
            "lease": tuple(self.share.lease),
            "known": True,
            "waiting": len(self.share.waiting),
        }

    async def ask(self, pools: BrokerPools, messages: int) -> bool:
        """Ask for room for a block, and hold it if there is; whether there is."""
        if not self.share.fits(messages, 0):
            self.share.wait(PoolWaiter(messages, 0, 0, 0, 1, None))
            said = self.share.begin_question(0)
            row = said._asdict() | {"pool": "system"}
            answer = await pools.lease(self.key, row)
            self.share.granted(
                answer["version"],
                PoolRoom(*answer["lease"]),
                PoolRoom(*answer["ahead"]),
                short=answer["short"],
                now_ms=0,
            )
            self.share.leave(self.share.waiting[0])
        if not self.share.fits(messages, 0):
            return False
        self.share.charge(messages, 0)
        return True


def pools_of(*hosts: Host, unasked: tuple[str, ...] = ()) -> BrokerPools:
    return BrokerPools(CONFIG, lambda: hosts, lambda: unasked, lambda: 0)


def test_all_of_a_pool_can_be_used_wherever_it_is_wanted() -> None:
    async def run() -> None:
        one, other = Host("a"), Host("b")
        pools = pools_of(one, other)
        assert await one.ask(pools, 1)
        assert await other.ask(pools, 1)
        assert await one.ask(pools, 8)
        assert not await other.ask(pools, 1)
        one.share.charge(-8, 0)
        assert await other.ask(pools, 8)
        assert one.share.used_messages + other.share.used_messages == 10

    asyncio.run(run())


def test_a_host_that_cannot_be_asked_keeps_what_it_has() -> None:
    async def run() -> None:
        one, other = Host("a"), Host("b")
        pools = pools_of(one, other)
        assert await one.ask(pools, 1)
        kept = one.share.lease.messages
        one.silent = True
        assert not await other.ask(pools, 10)
        assert await other.ask(pools, 10 - kept)

    asyncio.run(run())


def test_nothing_is_granted_before_every_host_of_the_catalogue_was_heard() -> None:
    async def run() -> None:
        one = Host("a")
        assert not await one.ask(pools_of(one, unasked=("b",)), 1)
        assert await one.ask(pools_of(one), 1)

    asyncio.run(run())


def test_a_host_whose_senders_have_given_up_holds_nobody_back() -> None:
    async def run() -> None:
        one, other, third = Host("a"), Host("b"), Host("c")
        pools = pools_of(one, other, third)
        assert await third.ask(pools, 10)
        assert not await one.ask(pools, 1)
        third.share.charge(-10, 0)
        assert await other.ask(pools, 1)

    asyncio.run(run())


def test_without_limits_a_host_may_use_any_number() -> None:
    async def run() -> None:
        one = Host("a")
        config = CONFIG | {"imq.system.max_count": -1}
        pools = BrokerPools(config, lambda: [one], list, lambda: 0)
        assert await one.ask(pools, 1_000)
        assert one.recalled == 0

    asyncio.run(run())


def test_a_host_whose_clock_was_set_back_asks_again_with_a_later_version() -> None:
    async def run() -> None:
        one = Host("a")
        pools = pools_of(one)
        row = one.share.begin_question(0)._asdict() | {"pool": "system"}
        assert (await pools.lease("a", row | {"version": 1 << 40}))["lease"] == (10, -1), "of a process before it"
        answer = await pools.lease("a", row)
        assert answer == {"newest": 1 << 40}
        one.share.surpass(answer["newest"])
        assert one.share.version > 1 << 40
        assert one.share.wants_more(0)
        assert await one.ask(pools, 10)

    asyncio.run(run())
