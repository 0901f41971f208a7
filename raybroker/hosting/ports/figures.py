"""Figures of a host: its metrics, and what its destinations hold against the broker's thresholds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Final

from raybroker.engine.destinations.destination_registry import DestinationRegistry
from raybroker.engine.measuring import metrics
from raybroker.engine.measuring.meters import Meters
from raybroker.engine.measuring.thresholds import held_of
from raybroker.engine.ports import Clock, Store
from raybroker.model.listing import DestinationCount, Row
from raybroker.model.naming.names import is_metrics_topic

METRICS_STEP: Final = 50
"""Destinations that are looked at for metrics before messages get a turn."""


class FiguresPort:
    """``own``: the host's own row; ``incarnation``: of the host, which tells its counts from those of one before."""

    def __init__(
        self,
        rows: metrics.MetricRows,
        registry: DestinationRegistry,
        meters: Meters,
        store: Store,
        clock: Clock,
        own: Callable[[], Row],
        incarnation: int,
    ) -> None:
        self._rows = rows
        self._registry = registry
        self._meters = meters
        self._store = store
        self._clock = clock
        self._own = own
        self._incarnation = incarnation

    async def thresholds(self, over: bool) -> Row:
        """Whether the broker is over its thresholds, which slows producers here; the answer is what the destinations
        hold: messages, bytes."""
        destinations = list(self._registry.destinations.values())
        self._meters.thresholds.broker_is(over=over, destinations=destinations)
        return held_of(destinations)

    async def counts(self) -> list[DestinationCount]:
        """Count what each destination holds and has counted: little enough to be asked for all the time."""
        return [
            (
                destination.kind,
                destination.name,
                destination.block_index.messages,
                counters.messages_in,
                counters.messages_out,
            )
            for destination in self._registry.destinations.values()
            if destination.number in self._registry.definitions and not is_metrics_topic(destination.name)
            for counters in (destination.counters,)
        ]

    async def metrics(self, names: str | None) -> Row:
        """incarnation, age_s, ``host``: the host's own row, ``types``: type → sums; with ``names`` also
        ``destinations``: rows of those whose name matches (* for any text). See engine.measuring.metrics for the rows.
        ``recovered`` and ``lasting``: type → totals that are stored, when the host started and now; ``recovered`` is in
        each row too. Yields to the loop between parts, so that messages do not wait for it."""
        counted = []
        # Metrics messages are not counted: their traffic is the broker's own.
        destinations = [
            destination
            for destination in list(self._registry.destinations.values())
            if not is_metrics_topic(destination.name)
        ]
        rows: list[Row] = []
        lasting = self._rows.lasting(())
        stats = self._store.stats()
        disk = {"disk_reserved": stats.reserved_bytes, "disk_used": stats.used_bytes} if stats.segments else {}
        for start in range(0, len(destinations), METRICS_STEP):
            for destination in destinations[start : start + METRICS_STEP]:
                counted.append((destination, {**self._rows.totals(destination), **self._rows.gauges(destination)}))
                if (
                    names is not None
                    and fnmatchcase(destination.name, names)
                    and destination.number in self._registry.definitions
                ):
                    rows.append({**self._rows.destination_row(destination), **disk})
            await asyncio.sleep(0)
            lasting.add(destinations[start : start + METRICS_STEP])
        total, there = metrics.Sum(), {destination.number for destination in self._registry.destinations.values()}
        for kind, row in self._meters.gone.items():
            total.add(kind, row)
        for destination, row in counted:
            if destination.number in there:
                total.add(destination.kind, row)
        own = self._own()
        age_s = (self._clock.monotonic_ns() - self._meters.start_ns) / 1e9
        return {
            "incarnation": self._incarnation,
            "age_s": age_s,
            "host": own,
            "types": total.done(),
            "destinations": rows,
            "recovered": self._rows.recovered.rows,
            "lasting": lasting.rows,
        }
