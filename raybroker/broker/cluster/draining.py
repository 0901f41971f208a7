"""Draining: before maintenance others take over what a broker serves.

Where brokers share a store it is stopped in order, and started on another one's node at once; else it hands over the
logs that it leads, and goes on (drains).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from raybroker.broker.cluster.broker_calls import BrokerCalls
from raybroker.broker.cluster.drains import Drains
from raybroker.broker.cluster.takeovers import StoreWatch
from raybroker.broker.observing.alone import NotShared
from raybroker.hosting.host_port import Row
from raybroker.model.errors import BrokerError, BrokerGoneError, ConfigError, IllegalStateError

DRAIN: Final = "drain"
"""What brokers ask the one that is to take another one over."""
ASK_TIMEOUT_S: Final = 30.0
"""How long the broker that takes over may take to begin."""
log = logging.getLogger("raybroker.cluster")


class Draining:
    """``store``: see StoreWatch; ``shut_down`` shuts a broker down in order, and answers at once; ``drains``: of
    brokers that share no store, and of nodes; ``nodes``: broker → node, as far as it is known."""

    def __init__(
        self,
        brokers: BrokerCalls,
        store: StoreWatch | NotShared,
        shut_down: Callable[[str], Awaitable[object]],
        drains: Drains,
        nodes: Callable[[], dict[str, str]],
    ) -> None:
        self._brokers = brokers
        self._store = store
        self._shut_down = shut_down
        self.drains = drains
        self._nodes = nodes

    async def drain_node(self, node: str, deadline_s: int = 0, off: bool = False) -> Row:
        """See the verb."""
        if off:
            was_drained = await self.drains.end_node(node)
            return {"node": node, "was_drained": was_drained, "brokers": [], "trouble": {}}
        was_drained = any(row["node"] == node for row in self.drains.node_rows())
        row = await self.drains.begin_node(node, deadline_s)
        log.warning("[B2210] node %s is drained%s", node, f", and goes in {deadline_s} s" if deadline_s else "")
        where = self._nodes()
        brokers = [name for name in self._brokers.live() if where.get(name) == node]
        trouble: dict[str, str] = {}
        for broker in brokers:
            try:
                await self._drain_with_node(broker, node, where)
            except BrokerError as error:  # The others are drained nevertheless.
                trouble[broker] = str(error)
        return {"node": node, "was_drained": was_drained, "brokers": brokers, "trouble": trouble, **row}

    async def _drain_with_node(self, broker: str, node: str, where: dict[str, str]) -> None:
        elsewhere = [name for name in self._brokers.live() if where.get(name, node) != node]
        if not elsewhere:
            raise IllegalStateError(f"no broker is up on another node: nobody could serve what broker {broker} serves")
        if isinstance(self._store, NotShared):
            await self.drains.begin_broker(broker, node)
        else:
            await self.drain_broker(broker, elsewhere[0])

    async def list_drained_nodes(self) -> list[Row]:
        return self.drains.node_rows()

    async def drain_broker(self, broker: str, to: str | None = None, off: bool = False) -> Row:
        """See the verb."""
        shared = not isinstance(self._store, NotShared)
        if off:
            if shared:
                raise ConfigError(
                    f"broker {broker} was moved, and there is nothing to end: drain it to a broker of the node where it"
                    " is to be"
                )
            return await self.drains.end_broker(broker)
        up = self._brokers.live()
        if broker not in up:
            raise BrokerGoneError(
                f"broker {broker} is not up, and cannot be drained; up are {', '.join(sorted(up))}. What a lost one has"
                f" stored: raybroker takeover bkr -n {broker}"
            )
        others = [name for name in up if name != broker]
        if not others:
            raise IllegalStateError(f"broker {broker} is the only one that is up: nobody could serve what it stores")
        if not shared:
            if to is not None:
                raise ConfigError(
                    f"broker {broker} is not drained to one broker: each of its logs goes to one that has a copy of it;"
                    " leave out to="
                )
            return await self.drains.begin_broker(broker)
        if to is not None and to not in others:
            raise ConfigError(f"broker {broker} cannot be drained to {to!r}; others that are up: {', '.join(others)}")
        taker = to or others[0]
        answer: Row = await self._brokers.ask_at(taker, DRAIN, {"broker": broker}, ASK_TIMEOUT_S)
        return answer

    async def take_drained(self, broker: str) -> Row:
        """Drain a broker to this one."""
        return await self._store.take_drained(broker, partial(self._shut_down, broker))
