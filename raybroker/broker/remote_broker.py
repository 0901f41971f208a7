"""Another broker of the cluster, as a broker sees it."""

from __future__ import annotations

from typing import Any, Protocol

from raybroker.hosting.host_port import Row


class RemotePeers(Protocol):
    """How the brokers of one cluster reach each other: actor calls in Ray, objects in tests."""

    async def ask(self, broker: str, method: str, args: Row, *, timeout_s: float) -> Any:
        """Call one of the methods that broker.cluster_broker offers to peers.

        Raises BrokerGoneError when the broker does not answer in time, and whatever it raises.
        """
        ...
