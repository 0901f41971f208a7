"""Baselines of counters: administrators see lasting totals since the destination was made, or since a reset.

Both go on over restarts of the host, see ``core.counters``; peaks, consumers and times over thresholds begin with it.
Metrics count from the start of the host; a reset only changes the baseline of what administrators see.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from raybroker.core.destination import Destination
from raybroker.core.durable.snapshot import counted
from raybroker.engine.measuring.meters import Meters, consumers_now
from raybroker.engine.ports import Clock


class Baseline(NamedTuple):
    """The state when it was set to zero; ``peaks``: of messages and bytes before that."""

    over_ms: dict[str, int]
    consumers: int
    peaks: tuple[int, int]


class CounterBaselines:
    """The baselines of counters; ``by_number``: of destinations whose counts were set to zero."""

    def __init__(self, meters: Meters, clock: Clock) -> None:
        self._meters = meters
        self._clock = clock
        self.by_number: dict[int, Baseline] = {}

    def reset(self, destination: Destination) -> bytes:
        """Count from zero; peaks begin with what there is. Returns the journal record that says so."""
        meter = self._meters.meter_of(destination)
        self.by_number[destination.number] = Baseline(
            self._meters.thresholds.total_ms(destination), meter.consumers_total, self.peaks(destination)
        )
        destination.counters.base, destination.counters.since_ms = destination.counters.lasting(), self._clock.now_ms()
        destination.block_index.forget_peak()
        meter.consumers_peak = consumers_now(destination)
        return counted(destination)

    def forget_destination(self, destination: Destination) -> None:
        """It is destroyed."""
        self.by_number.pop(destination.number, None)

    def peaks(self, destination: Destination) -> tuple[int, int]:
        """Most messages and most bytes since the host started, whatever was set to zero."""
        base, block_index = self.by_number.get(destination.number), destination.block_index
        messages, nbytes = base.peaks if base is not None else (0, 0)
        return max(messages, block_index.peak_messages), max(nbytes, block_index.peak_bytes)

    def counter_row(self, destination: Destination) -> dict[str, Any]:
        """Return the counters for ``query_destination``; times in milliseconds, ``counted_since_ms`` since 1970."""
        meters = self._meters
        base, meter = self.by_number.get(destination.number), meters.destinations.get(destination.number)
        zero = destination.counters.base
        counters = {name: value - zero.get(name, 0) for name, value in destination.counters.lasting().items()}
        total, over_ms = meter.consumers_total if meter is not None else 0, meters.thresholds.total_ms(destination)
        if base is not None:
            over_ms = {of: value - base.over_ms[of] for of, value in over_ms.items()}
            total -= base.consumers
        return {
            "peak_messages": destination.block_index.peak_messages,
            "peak_bytes": destination.block_index.peak_bytes,
            **counters,
            "total_consumers": total,
            "peak_consumers": meter.consumers_peak if meter is not None else 0,
            "over_threshold": [of for of, over in meters.thresholds.over(destination).items() if over],
            "slowed_producers": meters.thresholds.slowed(destination),
            "messages_threshold_ms": over_ms["messages"],
            "bytes_threshold_ms": over_ms["bytes"],
            "counted_since_ms": destination.counters.since_ms or meters.start_ms,
        }
