"""The ack deadline of what a consumer holds is kept from passing."""

from __future__ import annotations

import asyncio

from raybroker.client.consumer.acknowledging.ack_deadline import PARTS, AckDeadline
from tests.unit.client.fakes import run


def test_it_is_extended_again_and_again_until_it_is_stopped() -> None:
    async def work() -> None:
        extended = asyncio.Queue[None]()
        deadline = AckDeadline(15, lambda: extended.put_nowait(None))
        deadline.start()
        for _ in range(PARTS):
            await extended.get()
        deadline.stop()
        assert extended.empty()
        assert deadline._timer is None

    run(work)


def test_starting_it_twice_leaves_one_timer() -> None:
    async def work() -> None:
        deadline = AckDeadline(60_000, lambda: None)
        deadline.start()
        first = deadline._timer
        assert first is not None
        deadline.start()
        assert first.cancelled()
        deadline.stop()

    run(work)
