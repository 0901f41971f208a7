"""Another broker of the cluster, as a broker sees it, and its hosts, as transactions over brokers need them."""

from __future__ import annotations

from typing import Any, Protocol

from raybroker.hosting.host_port import Row


class RemotePeers(Protocol):
    """How the brokers of one cluster reach each other: actor calls in Ray, objects in tests."""

    async def call_broker(self, broker: str, method: str, args: Row, *, timeout_s: float) -> Any:
        """Call one of the methods that broker.cluster_broker offers to peers.

        Raises BrokerGoneError when the broker does not answer in time, and whatever it raises.
        """
        ...


class HostElsewhere:
    """The coordinator that decided, on a host of another broker. It is asked through its broker; raises BrokerGoneError
    while that cannot be asked."""

    def __init__(self, peers: RemotePeers, broker: str, key: str, timeout_s: float) -> None:
        self._peers = peers
        self._broker = broker
        self._key = key
        self._timeout_s = timeout_s

    async def outcome(self, key: str) -> str:
        """Do what TransactionsPort.outcome does."""
        args = {"host": self._key, "method": "outcome", "key": key}
        return str(await self._peers.call_broker(self._broker, "host", args, timeout_s=self._timeout_s))

    async def decide(self, key: str, commit: bool) -> None:
        """Do what TransactionsPort.decide does."""
        args = {"host": self._key, "method": "decide", "key": key, "commit": commit}
        await self._peers.call_broker(self._broker, "host", args, timeout_s=self._timeout_s)
