"""Administration of one host's store: what takes room in it, and compaction.

The journal of a host has the messages of all its destinations in one log, so its segments cannot be told apart by
destination: what a destination takes is told by its live blocks, and what can be given back by the whole.  It reclaims
space by itself while it runs; compaction gives back at once what that leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.memory.block_compression import BlockCompression
from raybroker.engine.path.executor import Executor
from raybroker.engine.ports import Store
from raybroker.hosting.durable import Changes
from raybroker.model import refusals
from raybroker.model.blocks.record import StoreStats
from raybroker.model.listing import Row
from raybroker.model.refusals import refuse

COMPACT_WAIT_S: Final = 10.0
"""How long an administrator waits for a compaction; it goes on by itself after that."""
COMPACT_LOOK_S: Final = 0.02
LEAVE_PERCENT: Final = 75
COMPACT_PERCENT: Final = 50


class StorePort:
    """``executor`` writes checkpoints into ``store``, ``registry`` has the destinations whose messages are in it, and
    ``compression`` compresses them."""

    def __init__(
        self,
        store: Store,
        executor: Executor,
        registry: DestinationRegistry,
        compression: BlockCompression,
        changes: Changes,
    ) -> None:
        self._store = store
        self._compression = compression
        self._executor = executor
        self._registry = registry
        self._changes = changes

    async def store_rows(self) -> list[Row]:
        """One row: the store's sizes and how full it is (:func:`figures`), compressed_blocks, compression_saved_bytes,
        not_compressed_because, and ``destinations``: rows of type, name, blocks, bytes for their live blocks."""
        usage = await asyncio.to_thread(self._store.usage)
        destinations: list[Row] = []
        for destination in self._registry.destinations.values():
            blocks, nbytes = usage.get(destination.number, (0, 0))
            destinations.append({"type": destination.kind, "name": destination.name, "blocks": blocks, "bytes": nbytes})
        destinations.sort(key=lambda row: (-row["bytes"], row["name"], row["type"]))
        return [
            {
                **figures(self._store.stats()),
                "compressed_blocks": self._compression.blocks,
                "compression_saved_bytes": self._compression.saved_bytes,
                "not_compressed_because": self._compression.refused_because,
                "destinations": destinations,
            }
        ]

    async def compact(self, keys: Sequence[tuple[str, str]]) -> Row:
        """Give back what can be of the store of these destinations, which have to be paused; what came of it.

        ``done`` False: it takes longer than ``COMPACT_WAIT_S`` and goes on.
        """
        for type_, name in keys:
            destination = self._registry.named(type_, name)
            refuse(refusals.of_compacting(type_, name, destination.paused))
        store, executor = self._store, self._executor
        before = store.stats()
        store.compact()
        async with self._changes.change() as done:
            executor.checkpoint(done)
        for _ in range(round(COMPACT_WAIT_S / COMPACT_LOOK_S)):
            executor.require_running()
            if not store.compacting:
                break
            executor.tidy()
            await asyncio.sleep(COMPACT_LOOK_S)
        after = store.stats()
        return {
            "done": not store.compacting,
            "freed_bytes": before.reserved_bytes - after.reserved_bytes,
            "garbage_before": before.used_bytes - before.live_bytes,
            **figures(after),
        }


def figures(stats: StoreStats) -> Row:
    """Sizes of a store in bytes. ``ratio``: percent of what is written that is live; ``advice``: what MQ's manual says
    to that, and that a single segment has nothing to give back."""
    used, live = stats.used_bytes, stats.live_bytes
    ratio = 100 * live // used if used else 100
    if ratio > LEAVE_PERCENT or stats.segments <= 1:
        advice = "leave it"
    else:
        advice = "compact it" if ratio < COMPACT_PERCENT else "compact it if that stays"
    return {
        "reserved_bytes": stats.reserved_bytes,
        "used_bytes": used,
        "live_bytes": live,
        "garbage_bytes": used - live,
        "ratio": ratio,
        "advice": advice,
        "segments": stats.segments,
        "large_files": stats.own_files,
        "large_bytes": stats.own_bytes,
        "free_files": stats.free_files,
        "free_bytes": stats.free_bytes,
    }
