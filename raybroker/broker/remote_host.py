"""A host of another broker, as far as transactions over brokers need it: the coordinator that decided."""

from __future__ import annotations

from raybroker.broker.remote_broker import RemotePeers


class HostElsewhere:
    """Asked through its broker; raises BrokerGoneError while that cannot be asked."""

    def __init__(self, peers: RemotePeers, broker: str, key: str, timeout_s: float) -> None:
        self._peers = peers
        self._broker = broker
        self._key = key
        self._timeout_s = timeout_s

    async def outcome(self, key: str) -> str:
        """Do what TransactionsPort.outcome does."""
        args = {"host": self._key, "method": "outcome", "key": key}
        return str(await self._peers.ask(self._broker, "host", args, timeout_s=self._timeout_s))

    async def decide(self, key: str, commit: bool) -> None:
        """Do what TransactionsPort.decide does."""
        args = {"host": self._key, "method": "decide", "key": key, "commit": commit}
        await self._peers.ask(self._broker, "host", args, timeout_s=self._timeout_s)
