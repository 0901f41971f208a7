"""Units of order are held as long as they are leased, however the machine's clock is set."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from raybroker.broker.cluster import path_service
from raybroker.broker.cluster.path_service import PathService
from tests.unit.engine.rig import Clock

LEASE_MS = 60_000
HOUR_MS = 3_600_000


class NoFile:
    def append(self, frames: Sequence[bytes]) -> None: ...
    def replace(self, frames: Sequence[bytes]) -> None: ...
    def close(self) -> None: ...


async def no_units(broker: str, kind: str, name: str, units: list[str]) -> list[str]:
    return []


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_producer_keeps_its_units_as_long_when_the_clock_is_set(hours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_service, "SWEEP_S", 0)
    clock = Clock()

    async def known() -> list[bool]:
        """Before and after the end of its lease."""
        failed: Any = pytest.fail
        service = PathService([], NoFile(), clock, lease_ms=LEASE_MS, live=no_units, failed=failed)
        service.start()
        await service.routes("queue", "q", ["u"], "owner", ["b1"])
        clock.stepped_ms = hours * HOUR_MS
        clock.ms += LEASE_MS - 1
        found = []
        for _ in range(2):
            for _ in range(20):  # The sweep.
                await asyncio.sleep(0)
            found.append("owner" in service._map._owners)
            clock.ms += 1
        await service.close()
        return found

    assert asyncio.run(known()) == [True, False]
