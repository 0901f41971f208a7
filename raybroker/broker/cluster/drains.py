"""Drains: the brokers and nodes that are about to go for a while, or for good, kept in the configuration change record.

A drained broker takes clients and follows as before, and leads no log that a broker which stays can lead: it hands over
what it leads, and whatever it comes to lead later (raybroker.broker.copies).  What has no copy stays with it.
Consumers on a drained node get nothing more (raybroker.engine.sessions.drained_nodes).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from raybroker.broker.cluster.broker_calls import BrokerCalls
from raybroker.broker.cluster.record_application import NODE
from raybroker.broker.copies.copied_logs import COPIES_OF
from raybroker.broker.definitions.drained_nodes import drained_row, listed, too_many
from raybroker.cluster.change_record import Change, RecordState
from raybroker.hosting.host_port import Row
from raybroker.model.definitions.kinds.table import DRAIN
from raybroker.model.errors import BrokerError
from raybroker.system.clock import SystemClock

ASK_S: Final = 2.0
"""How long a drained broker may take to say what it leads."""
LIST_S: Final = 10.0
"""How long it may take to list its destinations."""
STAYING_MAX: Final = 100
"""Destinations that stay with a drained broker and are named; all are counted."""
BROKER: Final = "broker"


class Drains:
    """``agreed``: what the record says; ``propose`` changes it."""

    def __init__(
        self,
        brokers: BrokerCalls,
        agreed: Callable[[], RecordState],
        propose: Callable[[Change], Awaitable[None]],
    ) -> None:
        self._brokers = brokers
        self._agreed = agreed
        self._propose = propose

    async def begin_broker(self, broker: str, node: str = "") -> Row:
        """Have a broker that is up hand over what it leads; what it leads now, and what stays with it. ``node``: it is
        over with the drain of that node."""
        key = (BROKER, broker)
        if key not in self._agreed().drains:
            row = {"since_ms": SystemClock().now_ms(), **({"node": node} if node else {})}
            await self._propose(Change(DRAIN.make, key, row))
        staying = await self._staying(broker)
        rows = await self.drain_rows()
        return {"broker": broker, **rows.get(broker, {}), "stays": len(staying), "staying": staying[:STAYING_MAX]}

    async def end_broker(self, broker: str) -> Row:
        """A broker may lead again; ``was_drained``: whether it was not to."""
        key = (BROKER, broker)
        was_drained = key in self._agreed().drains
        if was_drained:
            await self._propose(Change(DRAIN.end, key))
        return {"broker": broker, "was_drained": was_drained}

    async def begin_node(self, node: str, deadline_s: int) -> Row:
        """Have consumers on a node get nothing more; ``since_ms`` and ``until_ms``."""
        row = drained_row(node, deadline_s, SystemClock().now_ms())
        for other in too_many(self._nodes(), node):
            await self._propose(Change(DRAIN.end, (NODE, other)))
        await self._propose(Change(DRAIN.make, (NODE, node), row))
        return row

    async def end_node(self, node: str) -> bool:
        """Consumers on a node get messages again, and its brokers may lead; whether it was drained."""
        was_drained = node in self._nodes()
        if was_drained:
            await self._propose(Change(DRAIN.end, (NODE, node)))
        for key, row in list(self._agreed().drains.items()):
            if key[0] == BROKER and row.get("node") == node:
                await self._propose(Change(DRAIN.end, key))
        return was_drained

    def node_rows(self) -> list[Row]:
        """The nodes that are drained: node, since_ms, until_ms."""
        return listed(self._nodes())

    def _nodes(self) -> dict[str, Row]:
        return {key[1]: dict(row) for key, row in self._agreed().drains.items() if key[0] == NODE}

    async def drain_rows(self) -> dict[str, Row]:
        """Drained broker → ``drain``, ``drained_since_ms``, ``leads``: how many logs, ``unled``: how many of which it
        keeps a copy and hears no leader, and ``stuck``: names of those that it leads and nobody else can lead now.

        drain  DRAINING while it leads what another one can lead, or hears no leader; then DRAINED; UNKNOWN while it
               cannot be asked
        """
        drained = {key[1]: row for key, row in self._agreed().drains.items() if key[0] == BROKER}
        led = await asyncio.gather(*(self._led_by(name) for name in drained))
        return {
            name: {"drained_since_ms": row["since_ms"], **found}
            for (name, row), found in zip(drained.items(), led, strict=True)
        }

    async def _led_by(self, broker: str) -> Row:
        try:
            rows: dict[str, Row] = await asyncio.wait_for(self._brokers.ask_at(broker, COPIES_OF, {}, ASK_S), ASK_S)
        except (BrokerError, TimeoutError):
            return {"drain": "UNKNOWN", "leads": 0, "unled": 0, "stuck": []}
        logs = {str(row["log"]) for row in self._agreed().copies.values() if broker in row["brokers"]}  # type: ignore[operator]  # A list, as COPIES has it.
        led = [row for row in rows.values() if row["role"] == "LEADER"]
        unled = len(logs - {log for log, row in rows.items() if row["led"]})
        stuck = sorted(str(row["name"]) for row in led if not row["heir"])
        drain = "DRAINING" if unled or len(led) > len(stuck) else "DRAINED"
        return {"drain": drain, "leads": len(led), "unled": unled, "stuck": stuck}

    async def _staying(self, broker: str) -> list[Row]:
        """What a broker holds of destinations without copies: type, name, messages; those with most first."""
        copied, args = self._agreed().copies, {"type": None, "temporary": False}
        found: list[dict[str, Any]] = await self._brokers.verb_at(broker, "list_destinations", args, LIST_S)
        rows = [
            {key: row[key] for key in ("type", "name", "messages")}
            for row in found
            if row["messages"] and (row["type"], row["name"]) not in copied
        ]
        return sorted(rows, key=lambda row: (-row["messages"], row["type"], row["name"]))
