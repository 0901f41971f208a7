"""Metrics as lines for the log, at imq.metrics.interval."""

from __future__ import annotations

from typing import Any, NamedTuple

from raybroker.metrics.messages import broker_body, runtime_body
from raybroker.metrics.snapshot import Snapshot


class Look(NamedTuple):
    """Counts and threads of a broker at one moment; ``at_s``: seconds on any clock."""

    at_s: float
    counts: dict[str, Any]
    threads: int


def look(snapshot: Snapshot, at_s: float) -> Look:
    threads = int(sum(snapshot.own.get("process_threads", {}).values()))
    return Look(at_s, {**broker_body(snapshot), **runtime_body(snapshot)}, threads)


class Blocks:
    """Samples for the log; keeps the sample before, for rates, and the range of threads since the start."""

    def __init__(self) -> None:
        self._before: Look | None = None
        self._threads: tuple[int, int] | None = None

    def text(self, now: Look) -> str:
        """The lines of one sample; its rates are since the sample before, and zero in the first."""
        before = self._before or now
        self._before = now
        low, high = self._threads or (now.threads, now.threads)
        self._threads = low, high = min(low, now.threads), max(high, now.threads)
        counts, seconds = now.counts, now.at_s - before.at_s

        def rate(name: str) -> int:
            return round(max(counts[name] - before.counts[name], 0) / seconds) if seconds > 0 else 0

        def flow(way: str) -> str:
            return (
                f"{counts[f'numMsgs{way}']} msgs ({counts[f'msgBytes{way}']} bytes)  "
                f"{counts[f'numPkts{way}']} pkts ({counts[f'pktBytes{way}']} bytes)"
            )

        def rates(way: str) -> str:
            return (
                f"{rate(f'numMsgs{way}')} msgs/s ({rate(f'msgBytes{way}')} bytes/s)  "
                f"{rate(f'numPkts{way}')} pkts/s ({rate(f'pktBytes{way}')} bytes/s)"
            )

        memory = f"{counts['totalMemory']} used, {counts['freeMemory']} free"
        return "\n".join(
            (
                f"Connections: {counts['numConnections']}    Memory: {memory}    Threads: {now.threads} ({low}-{high})",
                f"      In: {flow('In')}",
                f"     Out: {flow('Out')}",
                f" Rate In: {rates('In')}",
                f"Rate Out: {rates('Out')}",
            )
        )
