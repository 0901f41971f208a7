"""Counts of observations by size, as Prometheus has them: made where things happen, shown where they are scraped."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

SECONDS: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    60.0,
    600.0,
    3600.0,
)
"""Upper edges for how long something took: from a quick sync to a message that waits for an hour."""
SERVICE_SECONDS: Final = (
    0.000001,
    0.0000025,
    0.000005,
    0.00001,
    0.000025,
    0.00005,
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
    60.0,
)
"""Upper edges for the time that a consumer spends on one message."""
BATCH: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)
"""Upper edges for messages in one batch."""
BATCH_BYTES: Final = (1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0)
"""Upper edges for bytes in one batch."""
RATIO: Final = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
"""Upper edges for a part of a whole."""

PARTS: Final = 1_000_000_000
"""A sum that only grows is counted in billionths, nanoseconds if it is a time: whole numbers, which add up to the same
in whatever order. A sum of fractions falls by its last digit now and then, which looks like a restart."""
Row = tuple[list[int], int]
"""Observations by bucket, the last one without an upper edge, and the sum of what was observed, in PARTS."""


class Histogram:
    """``edges``: upper edges of the buckets, ascending. An observation may stand for many messages at once."""

    __slots__ = ("counts", "edges", "total")

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.total = 0
        """In PARTS."""

    def observe(self, value: float, count: int = 1) -> None:
        """``count`` times ``value``."""
        self.counts[bisect_left(self.edges, value)] += count
        self.total += round(value * PARTS) * count

    def observe_all(self, values: Iterable[float]) -> None:
        """Each of these once: for many at a time, which costs much less than one at a time."""
        ascending = sorted(values)
        below = 0
        for bucket, edge in enumerate(self.edges):
            upto = bisect_right(ascending, edge, below)
            self.counts[bucket] += upto - below
            below = upto
        self.counts[-1] += len(ascending) - below
        self.total += round(sum(ascending) * PARTS)

    @property
    def count(self) -> int:
        return sum(self.counts)

    def as_row(self) -> Row:
        return (list(self.counts), self.total)


def merge(rows: Sequence[Row]) -> Row:
    """The observations of several histograms with the same edges; there is at least one."""
    return ([sum(column) for column in zip(*(counts for counts, _ in rows), strict=True)], sum(t for _, t in rows))
