"""Drained nodes of Ray, which hosts have to know: consumers there get nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from raybroker.broker.definitions.named import TELL_TIMEOUT_S, NamedAtHosts, Saved, keep_nothing
from raybroker.hosting.host_port import HostPort, Row
from raybroker.model.errors import ConfigError
from raybroker.system.clock import SystemClock

NODE_CHARS_MAX: Final = 255
NODES_MAX: Final = 256
"""Drained nodes that are known: the one that was drained first is forgotten for another. Ray gives a node that comes
back another id, so that nothing but the list is lost with an old one."""


def drained_row(node: str, deadline_s: int, now_ms: int) -> Row:
    """What is kept of a node that is drained now; raises ConfigError for what is no id of one."""
    if not 0 < len(node) <= NODE_CHARS_MAX:
        raise ConfigError(f"node {node!r:.80} is no id of a Ray node, as ray.nodes() and raybroker list bkr show them")
    return {"since_ms": now_ms, "until_ms": now_ms + deadline_s * 1000 if deadline_s else 0}


def too_many(rows: Saved, node: str) -> list[str]:
    """The drained nodes to be forgotten when ``node`` is one as well."""
    others = sorted((row["since_ms"], name) for name, row in rows.items() if name != node)
    return [name for _, name in others[: max(len(others) - NODES_MAX + 1, 0)]]


class DrainedNodes(NamedAtHosts):
    """Those that one broker knows; they end with it where no record has them."""

    word = "drained node"
    words = "drained nodes"
    most = NODES_MAX

    def __init__(self, hosts: Callable[[], Iterable[HostPort]]) -> None:
        super().__init__(None, keep_nothing, hosts, _define)

    async def drain_node(self, node: str, deadline_s: int = 0, off: bool = False) -> Row:
        """See the verb; of a broker without a cluster."""
        was_drained = node in self.saved()
        if off:
            await self.drop(node)
            return {"node": node, "was_drained": was_drained, "brokers": [], "trouble": {}}
        row = drained_row(node, deadline_s, SystemClock().now_ms())
        for other in too_many(self.saved(), node):
            await self.drop(other)
        await self.put(node, row)
        return {"node": node, "was_drained": was_drained, "brokers": [], "trouble": {}, **row}

    async def list_drained_nodes(self) -> list[Row]:
        return listed(self.saved())


def listed(rows: Saved) -> list[Row]:
    """Return the rows that the verb shows."""
    return [{"node": node, **{key: row[key] for key in ("since_ms", "until_ms")}} for node, row in sorted(rows.items())]


async def _define(host: HostPort, rows: Saved) -> None:
    until_ms = {node: int(row["until_ms"]) for node, row in rows.items()}
    await asyncio.wait_for(host.process.drain_nodes(until_ms), TELL_TIMEOUT_S)
