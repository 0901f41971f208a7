"""The brokers of a cluster as one of them knows them: who is up, and calls to any of them, the own one too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from raybroker.broker.remote_broker import RemotePeers
from raybroker.cluster.member import Member
from raybroker.cluster.membership import BrokerState
from raybroker.hosting.host_port import Row

_ABSENT: Final = {
    BrokerState.LEFT: "it was stopped",
    BrokerState.JOINING: "it has started and takes no clients yet",
}

_SILENT: Final = frozenset({BrokerState.SUSPECT, BrokerState.DOWN, BrokerState.LEFT})

OwnCall = Callable[[str, Row], Awaitable[Any]]
"""Carries out a method with its arguments at the own broker."""


class BrokerCalls:
    """``admin``: verbs of the own broker; ``own``: what brokers ask each other, at the own one; ``peers``: the
    others."""

    def __init__(self, member: Member, admin: OwnCall, own: OwnCall, peers: RemotePeers) -> None:
        self.name = member.name
        self._membership = member.membership
        self._admin = admin
        self._own = own
        self._peers = peers

    @property
    def coordinator(self) -> str:
        return self._membership.coordinator()

    def live(self) -> list[str]:
        """The brokers that are up, this one first."""
        return [self.name, *(other for other in self._membership.live() if other != self.name)]

    def known(self) -> list[str]:
        """All brokers of the cluster, up or not."""
        return list(self._membership)

    def absent(self) -> dict[str, str]:
        """Brokers of the cluster that cannot be asked → why.  One that was stopped has what it stores, and is one of
        them until the list of brokers goes without it."""
        rows, up = self._membership.broker_rows(), self.live()
        return {row.name: _ABSENT.get(row.state, "it is down") for row in rows if row.name not in up}

    def awaited(self) -> list[str]:
        """Brokers that have not been heard since this one started, or take no clients yet: they may be about to."""
        new = BrokerState.JOINING
        return [
            row.name
            for row in self._membership.broker_rows()
            if row.name != self.name and (row.state is new or not (row.incarnation or row.state is BrokerState.LEFT))
        ]

    def silent_since_ms(self, broker: str) -> int:
        """Return when a broker that is not up was last heard, as milliseconds since 1970; 0: never, or it is up."""
        row = next((row for row in self._membership.broker_rows() if row.name == broker), None)
        return row.last_heard_ms if row is not None and row.state in _SILENT else 0

    async def verb_at(self, broker: str, verb: str, args: Row, timeout_s: float) -> Any:
        """A verb of one broker's own."""
        if broker == self.name:
            return await self._admin(verb, args)
        return await self._peers.call_broker(broker, "admin", {"verb": verb, "args": args}, timeout_s=timeout_s)

    async def ask_at(self, broker: str, method: str, args: Row, timeout_s: float) -> Any:
        """What brokers ask each other, of any of them."""
        if broker == self.name:
            return await self._own(method, args)
        return await self._peers.call_broker(broker, method, args, timeout_s=timeout_s)
