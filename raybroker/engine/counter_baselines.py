"""Baselines of counters: administrators see what was counted since the host's start, or since a reset.

Metrics count from the start of the host; a reset only changes the baseline of what administrators see.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from raybroker.core.destination import Destination
from raybroker.engine.meters import Meters, consumers_now
from raybroker.engine.ports import Clock

COUNTERS: Final = (
    "messages_in", "messages_out", "bytes_in", "bytes_out", "redelivered", "refused", "expired", "dead", "duplicates",
    "moved_in",
)  # fmt: skip


class Baseline(NamedTuple):
    """As it stood when it was set to zero, milliseconds since 1970; ``peaks``: of messages and bytes before that."""

    at_ms: int
    counters: dict[str, int]
    over_ms: dict[str, int]
    consumers: int
    peaks: tuple[int, int]


class CounterBaselines:
    """``by_number``: of destinations whose counts were set to zero."""

    def __init__(self, meters: Meters, clock: Clock) -> None:
        self._meters = meters
        self._clock = clock
        self.by_number: dict[int, Baseline] = {}

    def reset(self, home: Destination) -> None:
        """Count from zero; peaks begin with what there is."""
        meter = self._meters.of(home)
        self.by_number[home.number] = Baseline(
            self._clock.now_ms(), {name: getattr(home.counters, name) for name in COUNTERS},
            self._meters.thresholds.total_ms(home), meter.consumers_total, self.peaks(home),
        )  # fmt: skip
        home.block_index.forget_peak()
        meter.consumers_peak = consumers_now(home)

    def forget(self, home: Destination) -> None:
        """It is destroyed."""
        self.by_number.pop(home.number, None)

    def peaks(self, home: Destination) -> tuple[int, int]:
        """Most messages and most bytes since the host started, whatever was set to zero."""
        base, block_index = self.by_number.get(home.number), home.block_index
        messages, nbytes = base.peaks if base is not None else (0, 0)
        return max(messages, block_index.peak_messages), max(nbytes, block_index.peak_bytes)

    def row(self, home: Destination) -> dict[str, Any]:
        """For ``query_destination``; times in milliseconds, ``counted_since_ms`` since 1970."""
        meters = self._meters
        base, meter = self.by_number.get(home.number), meters.destinations.get(home.number)
        counters = {name: getattr(home.counters, name) for name in COUNTERS}
        total, over_ms = meter.consumers_total if meter is not None else 0, meters.thresholds.total_ms(home)
        if base is not None:
            counters = {name: value - base.counters[name] for name, value in counters.items()}
            over_ms = {of: value - base.over_ms[of] for of, value in over_ms.items()}
            total -= base.consumers
        return {
            "peak_messages": home.block_index.peak_messages,
            "peak_bytes": home.block_index.peak_bytes,
            **counters,
            "total_consumers": total,
            "peak_consumers": meter.consumers_peak if meter is not None else 0,
            "over_threshold": [of for of, over in meters.thresholds.over(home).items() if over],
            "slowed_producers": meters.thresholds.slowed(home),
            "messages_threshold_ms": over_ms["messages"],
            "bytes_threshold_ms": over_ms["bytes"],
            "counted_since_ms": base.at_ms if base is not None else meters.start_ms,
        }
