"""The secrets of clients that are expected at a host."""

from __future__ import annotations

import asyncio
from typing import Any

from raybroker.config import Config
from raybroker.services.native import guests
from raybroker.services.native.guests import EXPECTED_S, Guests
from raybroker.services.native.native import NativeService
from raybroker.system.clock import SystemClock
from tests.unit.services.test_native_service import TOKEN


class Now:
    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


def made(now: Now) -> Guests:
    def none(*_: Any) -> Any:
        raise AssertionError("nobody comes in")

    return Guests(NativeService(none, SystemClock(), Config.from_values({}), token=TOKEN), now, none)


def test_a_secret_stands_for_its_client_once_and_for_a_time() -> None:
    async def story() -> None:
        now = Now()
        expecting = made(now)
        await expecting.expect(b"one", {"user": "ann"})
        await expecting.expect(b"two", {"user": "bob"})
        now.s += EXPECTED_S - 1
        assert expecting.redeem(b"one") == {"user": "ann"}
        assert expecting.redeem(b"one") is None
        now.s += 1
        assert expecting.redeem(b"two") is None

    asyncio.run(story())


def test_secrets_that_nobody_has_used_are_forgotten_when_they_are_over() -> None:
    """A client that is connected to the host already uses none of those that it gets."""

    async def story() -> None:
        now = Now()
        expecting = made(now)
        for number in range(1000):
            await expecting.expect(b"%d" % number, {})
            now.s += EXPECTED_S / 10
            assert len(expecting._expected) <= 11
        assert guests.EXPECTED_MAX > 11

    asyncio.run(story())
