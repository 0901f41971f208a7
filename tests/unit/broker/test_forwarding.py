"""What a broker keeps of the queues that it forwards from."""

from __future__ import annotations

import asyncio
from typing import Any

from raybroker.broker.destinations.destination_registry import Key, Registry
from raybroker.broker.destinations.forwarding import MemberForwarding


class Host:
    """Has one message in each queue, and no consumer."""

    key = "h1"

    def __init__(self) -> None:
        self.destinations = self

    async def query(self, kind: str, name: str) -> dict[str, Any]:
        return {"active_consumers": 0, "backup_consumers": 0, "waiting": 1, "state": "RUNNING", "paused": {}}


class Nobody:
    async def call_broker(self, broker: str, method: str, args: dict[str, Any], *, timeout_s: float) -> Any:
        raise AssertionError("there is no other broker")


def test_queues_that_are_gone_leave_nothing() -> None:
    registry, host = Registry("b1"), Host()
    forwarding = MemberForwarding("b1", registry, Nobody(), lambda: ["b1"])
    stays: Key = ("queue", "stays")
    attributes = {"distributed": True, "forwardDelay": 0}

    async def story() -> None:
        registry.put(stays, host, attributes=attributes)  # type: ignore[arg-type]
        for number in range(20):
            comes: Key = ("queue", f"q{number}")
            registry.put(comes, host, attributes=attributes)  # type: ignore[arg-type]
            await forwarding.forward_overdue()
            assert set(forwarding._choosers) == {stays, comes}
            registry.drop(comes)
            await forwarding.forward_overdue()
            assert set(forwarding._choosers) == {stays}

    asyncio.run(story())
