"""What administrators see counted of a destination, since the host started or since they set it to zero.

Metrics go on from the start of the host: what is set to zero is only where administrators count from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from raybroker.core.destination import Destination
    from raybroker.engine.host import Host

COUNTERS: Final = (
    "messages_in", "messages_out", "bytes_in", "bytes_out", "redelivered", "refused", "expired", "dead", "duplicates",
    "moved_in",
)  # fmt: skip


class Base(NamedTuple):
    """As it stood when it was set to zero, milliseconds since 1970; ``peaks``: of messages and bytes before that."""

    at_ms: int
    counters: dict[str, int]
    over_ms: dict[str, int]
    consumers: int
    peaks: tuple[int, int]


def consumers_now(home: Destination) -> int:
    return sum(len(queue.consumers.by_attachment) for queue in home.queues.values())


def reset(host: Host, home: Destination) -> None:
    """Count from zero; peaks begin with what there is."""
    meter, block_index = host.meters.of(home), home.block_index
    host.meters.bases[home.number] = Base(
        host.clock.now_ms(), {name: getattr(home.counters, name) for name in COUNTERS},
        host.meters.thresholds.total_ms(home), meter.consumers_total, peaks(host, home),
    )  # fmt: skip
    block_index.forget_peak()
    meter.consumers_peak = consumers_now(home)


def peaks(host: Host, home: Destination) -> tuple[int, int]:
    """Most messages and most bytes since the host started, whatever was set to zero."""
    base, block_index = host.meters.bases.get(home.number), home.block_index
    messages, nbytes = base.peaks if base is not None else (0, 0)
    return max(messages, block_index.peak_messages), max(nbytes, block_index.peak_bytes)


def row(host: Host, home: Destination) -> dict[str, Any]:
    """For ``query_destination``; times in milliseconds, ``counted_since_ms`` since 1970."""
    meters = host.meters
    base, meter, over_ms = meters.bases.get(home.number), meters.destinations.get(home.number), {}
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
        "messages_threshold_ms": over_ms["messages"],
        "bytes_threshold_ms": over_ms["bytes"],
        "counted_since_ms": base.at_ms if base is not None else meters.start_ms,
    }
