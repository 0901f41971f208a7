"""Counts of latencies: cheap to record, mergeable, three significant digits.

Values are kept as counts of numbers cut to 11 significant bits (an error below 0.1 %, as an HdrHistogram of three
digits has), because recording must not cost the consumer more than the message does.  ``write_hgrm`` hands the counts
to the HdrHistogram library for the text format that its plotters read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

KEPT_BITS: Final = 11
VALUE_MAX_US: Final = 3_600_000_000
"""Largest value, an hour; longer times are counted as an hour."""
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9, 99.99, 100.0)


class LatencyCounts:
    """A histogram of latencies in microseconds."""

    __slots__ = ("_counts", "_highest_us")

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self._counts: dict[int, int] = dict(counts or {})
        self._highest_us = max(self._counts, default=0)

    def record(self, value_us: int, times: int = 1) -> None:
        """Count one value; a negative one, which the clocks of two processes may give, counts as 0."""
        value = min(max(value_us, 0), VALUE_MAX_US)
        if value > self._highest_us:
            self._highest_us = value
        shift = value.bit_length() - KEPT_BITS
        if shift > 0:
            value = value >> shift << shift
        self._counts[value] = self._counts.get(value, 0) + times

    def merge(self, other: LatencyCounts) -> None:
        """Add the counts of another histogram."""
        for value, times in other._counts.items():
            self._counts[value] = self._counts.get(value, 0) + times
        self._highest_us = max(self._highest_us, other._highest_us)

    @property
    def total(self) -> int:
        """Number of recorded values."""
        return sum(self._counts.values())

    def percentile_us(self, percent: float) -> int:
        """The smallest recorded value that at least ``percent`` of the values do not exceed; 0 when there is none."""
        total = self.total
        if percent >= 100.0:
            return self._highest_us
        rank, seen = max(1, math.ceil(total * percent / 100.0)), 0
        for value in sorted(self._counts):
            seen += self._counts[value]
            if seen >= rank:
                return value
        return 0

    def mean_us(self) -> float:
        """Arithmetic mean; 0 when there is no value."""
        total = self.total
        return sum(value * times for value, times in self._counts.items()) / total if total else 0.0

    def to_json(self) -> dict[str, float]:
        """Count, mean and percentiles, in microseconds."""
        named = {f"p{percent:g}_us": float(self.percentile_us(percent)) for percent in PERCENTILES[:-1]}
        return {"count": self.total, "mean_us": round(self.mean_us(), 1), **named, "max_us": float(self._highest_us)}

    def to_hdr(self) -> Any:
        """An HdrHistogram of the same values; needs the package ``hdrhistogram``."""
        from hdrh.histogram import HdrHistogram

        histogram = HdrHistogram(1, VALUE_MAX_US, 3)
        for value, times in self._counts.items():
            histogram.record_value(max(value, 1), times)
        return histogram

    def write_hgrm(self, path: Path) -> None:
        """The percentile distribution in microseconds, in the text format of HdrHistogram's plotters.

        Milliseconds would be wrong in it: the library scales every column but the standard deviation.
        """
        with path.open("wb") as out:
            self.to_hdr().output_percentile_distribution(out, 1.0)

    def __getstate__(self) -> tuple[dict[int, int], int]:
        return self._counts, self._highest_us

    def __setstate__(self, state: tuple[dict[int, int], int]) -> None:
        self._counts, self._highest_us = state
