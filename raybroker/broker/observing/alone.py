"""Verbs of a cluster, answered by a broker that has none: it is the only one, and needs no master."""

from __future__ import annotations

from collections.abc import Callable

from raybroker.admin import checks
from raybroker.hosting.host_port import Row
from raybroker.model.errors import NotSupportedError


class NotShared:
    """A broker whose messages nobody takes over."""

    async def takeover_broker(self, broker: str) -> Row:
        raise NotSupportedError(
            f"broker {broker} cannot be taken over: what it stores is its own, and comes back with it. Brokers take"
            " over from each other in a database that they share (imq.cluster.ha = true)"
        )

    async def drain_broker(self, broker: str, to: str | None = None, off: bool = False) -> Row:
        return await self.take_drained(broker, broker)

    async def take_drained(self, broker: str, stop: object) -> Row:
        """See StoreWatch."""
        raise NotSupportedError(
            f"broker {broker} cannot be drained: what it stores is its own, and no other one can serve it. Another one"
            " could where queues have copies (replicas = 3), or brokers share a database (imq.cluster.ha = true); else"
            " shut it down: raybroker shutdown bkr"
        )

    def row(self, name: str) -> Row:
        """What a shared store has of a broker: there is none."""
        return {}

    def standing_by(self) -> Row:
        return {}


class OnlyBroker:
    """``shown``: the broker's own row, with its name and state."""

    def __init__(self, shown: Callable[[], Row]) -> None:
        self._shown = shown

    async def list_brokers(self) -> list[Row]:
        own = self._shown()
        return [
            {
                "broker": own["broker"],
                "state": own["state"],
                "seat": True,
                "master": False,
                "node": "",
                "record": 0,
                "reason": "",
                "alone": True,
            }
        ]

    async def query_cluster(self) -> Row:
        own = self._shown()
        return {
            "broker": own["broker"],
            "state": "OPERATING",
            "master": "",
            "term": 0,
            "is_master": False,
            "refusal": "",
            "contradiction": "",
            "faults": [],
            "operating": True,
            "seat": own["broker"],
            "brokers": await self.list_brokers(),
            "record": None,
            "alone": True,
        }

    async def replace_replica(self, type: str, name: str, old: str, to: str | None = None) -> Row:
        raise NotSupportedError(
            f"{type} {name!r} has one copy: several are for a cluster of brokers on as many Ray nodes"
        )

    async def check_cluster(self) -> list[Row]:
        return checks.of_cluster(await self.query_cluster())
