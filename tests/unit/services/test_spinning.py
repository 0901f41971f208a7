"""The spin of a host's event loop."""

from __future__ import annotations

import asyncio

from raybroker.services.native.spinning import LoopSpin
from raybroker.transport.spin import Spin

MOST_NS = 1_000


class Clock:
    """Goes on when it is told to."""

    now_ns = 5

    def __call__(self) -> int:
        return self.now_ns


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_the_loop_is_kept_awake_until_frames_come_or_the_time_is_over() -> None:
    async def run() -> None:
        clock, spin = Clock(), Spin(MOST_NS)
        loop_spin = LoopSpin(spin, clock)
        loop_spin.frames_handled(alone=True)
        for _ in range(20):
            await turns(1)
            assert loop_spin._looking, "something is always due"
        clock.now_ns += MOST_NS // 2
        loop_spin.frames_handled(alone=True)
        assert (spin.count, spin.paid, spin.spent_ns) == (1, 1, MOST_NS // 2)
        clock.now_ns += MOST_NS
        await turns(3)
        assert (spin.count, spin.paid, spin.spent_ns) == (2, 1, MOST_NS // 2 + MOST_NS)
        assert not loop_spin._looking, "it sleeps"
        loop_spin.frames_handled(alone=True)
        assert not loop_spin._looking, "the last one did not pay"
        loop_spin.frames_handled(alone=True)
        assert loop_spin._looking

    asyncio.run(run())


def test_among_other_senders_it_does_not_spin() -> None:
    async def run() -> None:
        clock, spin = Clock(), Spin(MOST_NS)
        loop_spin = LoopSpin(spin, clock)
        loop_spin.frames_handled(alone=False)
        assert not loop_spin._looking
        loop_spin.frames_handled(alone=True)
        loop_spin.frames_handled(alone=False)
        assert (spin.count, spin.paid) == (1, 1), "what came is what was waited for"
        await turns(3)
        assert not loop_spin._looking
        assert spin.count == 1

    asyncio.run(run())
