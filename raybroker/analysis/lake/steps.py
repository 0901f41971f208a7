"""Reduction of the scrapes of one broker to rows of equal time steps: increases of counters, gauges, histograms.

A counter that is lower than before has started anew (the broker did), so what it shows has been added since; the first
value of a series adds nothing, nobody knows since when it counts.  What is added between two scrapes belongs to the
step of the later one.  Scrapes go in by rising time, in chunks of any size: of a series only its last value is kept,
and of the last step what it has so far.  So the cost is linear in samples and memory does not grow with time.
A broker's clock becomes what it was ahead of the scrape that it is in.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, Final, NamedTuple

import numpy as np

from raybroker.analysis import names
from raybroker.analysis.lake.columns import NO_STAMP, ColumnReader
from raybroker.analysis.lake.lake import LakeFault

COUNTER, GAUGE, BUCKET, COUNT, SUM, OTHER = range(6)
"""What a series is here; OTHER ones make no rows."""
_BY_SUFFIX: Final = {"_bucket": BUCKET, "_count": COUNT, "_sum": SUM}
KINDS: Final = {COUNTER: "counter", GAUGE: "gauge", COUNT: "histogram"}
QUANTILES: Final = (0.5, 0.95, 0.99)
"""Those that a table has for each step; others follow from its buckets."""
DIMENSIONS: Final = ("cluster", "destination", "type")
"""Labels with a column of their own; ``broker`` is that of the lake."""


class Group(NamedTuple):
    """What rows are told apart by, beside broker and time; a histogram is one group with all its buckets."""

    kind: str
    metric: str
    cluster: str
    destination: str
    type: str
    labels: tuple[tuple[str, str], ...]


class StepRows(NamedTuple):
    """Reduced values by series and step, sorted by both. Gauges: last, low, high, total, samples."""

    series: Any
    step: Any
    increase: Any
    millis: Any
    resets: Any
    samples: Any
    last: Any
    low: Any
    high: Any
    total: Any


class Histograms(NamedTuple):
    """Rows of histograms: positions into the group table, step, what was counted, summed, buckets, quantiles.

    ``edges`` and ``counts`` are those of all rows; those of row n lie within borders[n] and borders[n + 1].
    """

    group: Any
    step: Any
    increase: Any
    millis: Any
    resets: Any
    total: Any
    borders: Any
    edges: Any
    counts: Any
    quantiles: list[Any]


class Kinds:
    """What each series of a Reader is: its part, group and bucket edge; wrong types and unknown names are counted.

    ``only``: the metrics that rows are made of, or None for all.
    """

    def __init__(self, reader: ColumnReader, only: Set[str] | None = None) -> None:
        self._reader = reader
        self._only = only
        self.part = np.empty(0, np.int8)
        self.group = np.empty(0, np.int32)
        self.edge = np.empty(0, np.float64)
        self.clock = np.empty(0, bool)
        self.wanted = np.empty(0, bool)
        self.groups: list[Group] = []
        self._groups: dict[Group, int] = {}

    def grow(self) -> None:
        """Take in the series that came since."""
        fresh = [self._describe(one.name, dict(one.labels)) for one in self._reader.series[len(self.part) :]]
        if fresh:
            self.part = np.append(self.part, np.array([one[0] for one in fresh], np.int8))
            self.group = np.append(self.group, np.array([one[1] for one in fresh], np.int32))
            self.edge = np.append(self.edge, np.array([one[2] for one in fresh], np.float64))
            metrics = [self.groups[one].metric if one >= 0 else "" for _, one, _ in fresh]
            self.clock = np.append(self.clock, np.array([one == names.CLOCK_OFFSET for one in metrics], bool))
            wanted = [self._only is None or one in self._only for one in metrics]
            self.wanted = np.append(self.wanted, np.array(wanted, bool))

    def _describe(self, name: str, labels: dict[str, str]) -> tuple[int, int, float]:
        metric, suffix = names.family(name)
        kind = names.KINDS.get(metric, "")
        part = {"counter": COUNTER, "gauge": GAUGE, "histogram": _BY_SUFFIX.get(suffix, OTHER)}.get(kind, OTHER)
        edge = 0.0
        if part == BUCKET:
            try:
                edge = float(labels.pop("le", ""))
            except ValueError:
                part = OTHER
        if part == OTHER:
            return OTHER, -1, 0.0
        own = [labels.pop(one, "") for one in DIMENSIONS]
        labels.pop("broker", None)
        shown = names.CLOCK_OFFSET if metric == names.CLOCK else metric
        group = Group(kind, shown, own[0], own[1], own[2], tuple(sorted(labels.items())))
        number = self._groups.setdefault(group, len(self.groups))
        if number == len(self.groups):
            self.groups.append(group)
        return part, number, edge


def type_fits(part: int, type_name: str) -> bool:
    """Whether a sample of this part may have that type in the text; text without TYPE lines is taken at its name."""
    want = {COUNTER: "counter", GAUGE: "gauge"}.get(part, "histogram")
    return type_name in (want, "untyped", "unknown")


class Reducer:
    """Reduces the scrapes of one broker. ``step_ms`` divides a day; ``only``: see Kinds, faults are those of all."""

    def __init__(self, step_ms: int, only: Set[str] | None = None) -> None:
        self.step_ms = step_ms
        self.reader = ColumnReader()
        self.kinds = Kinds(self.reader, only)
        self.faults: dict[tuple[str, str], int] = {}
        self.scrapes = self.samples = 0
        self._value = np.empty(0, np.float64)
        self._ts = np.empty(0, np.int64)
        self._open: StepRows | None = None

    def add(self, stamps_ms: Sequence[int], bodies: Sequence[bytes], *, baseline: bool = False) -> StepRows | None:
        """Scrapes by rising time; the rows of all steps before the last one. ``baseline``: only what was before."""
        samples, bad = self.reader.read(bodies)
        self.kinds.grow()
        if not baseline:
            self.scrapes += len(bodies)
            self.samples += len(samples.value)
            for one in bad:
                self._fault("bad line", one.line[:80])
        self._extend()
        kept = self._kept(samples, count=not baseline)
        stamps = np.array(stamps_ms, np.int64)[samples.scrape[kept]]
        own = samples.stamp_ms[kept]
        stamps = np.where(own == NO_STAMP, stamps, own)
        series, values = samples.series[kept], samples.value[kept]
        values = np.where(self.kinds.clock[series], values - stamps / 1000, values)
        rows = self._reduced(series, stamps, values)
        return None if baseline or rows is None else self._close(rows)

    def finish(self) -> StepRows | None:
        """The rows of the last step."""
        rows, self._open = self._open, None
        return rows

    def found(self) -> list[LakeFault]:
        """What was wrong with lines and metrics."""
        return [LakeFault(what, where, count) for (what, where), count in sorted(self.faults.items())]

    def _fault(self, what: str, where: str, count: int = 1) -> None:
        key = (what, where) if len(self.faults) < 1000 or (what, where) in self.faults else (what, "others")
        self.faults[key] = self.faults.get(key, 0) + count

    def _extend(self) -> None:
        more = len(self.kinds.part) - len(self._value)
        if more:
            self._value = np.append(self._value, np.full(more, np.nan))
            self._ts = np.append(self._ts, np.zeros(more, np.int64))

    def _kept(self, samples: Any, *, count: bool) -> Any:
        """Positions of the samples that make rows; the others are counted by their metric."""
        part = self.kinds.part[samples.series]
        pairs = samples.series.astype(np.int64) * 256 + samples.type
        good = part != OTHER
        for pair, times in zip(*np.unique(pairs, return_counts=True), strict=True) if len(pairs) else ():
            series, type_name = int(pair) // 256, self.reader.types[int(pair) % 256]
            name = self.reader.series[series].name
            if self.kinds.part[series] == OTHER:
                if count:
                    what = "unknown metric" if name.startswith("raybroker_") else "foreign metric"
                    self._fault(what, name, int(times))
            elif not type_fits(int(self.kinds.part[series]), type_name):
                good &= pairs != pair
                if count:
                    self._fault("wrong type", f"{name}: {type_name}", int(times))
        possible = (samples.value >= 0.0) & (samples.value <= names.VALUE_MAX)
        if count:
            wrong = np.flatnonzero(good & ~possible)
            found = np.unique(samples.series[wrong], return_index=True, return_counts=True)
            for series, at, times in zip(*(column.tolist() for column in found), strict=True):
                where = f"{self.reader.series[series].name} {samples.value[wrong[at]]:g}"
                self._fault("impossible value", where, times)
        return np.flatnonzero(good & possible & self.kinds.wanted[samples.series])

    def _reduced(self, series: Any, stamps: Any, values: Any) -> StepRows | None:
        if len(series) == 0:
            return None
        order = np.lexsort((stamps, series)) if np.any(np.diff(stamps) < 0) else np.argsort(series, kind="stable")
        series, stamps, values = series[order], stamps[order], values[order]
        first = np.empty(len(series), bool)
        first[0], first[1:] = True, series[1:] != series[:-1]
        before = np.where(first, self._value[series], np.roll(values, 1))
        since = np.where(first, self._ts[series], np.roll(stamps, 1))
        last = np.append(first[1:], True)
        self._value[series[last]], self._ts[series[last]] = values[last], stamps[last]
        known = ~np.isnan(before) & (stamps > since)
        counts = self.kinds.part[series] != GAUGE
        reset = known & counts & (values < before)
        increase = np.where(known & counts, np.where(reset, values, values - before), 0.0)
        millis = np.where(known, stamps - since, 0)
        one = np.ones(len(series), np.int64)
        step = stamps // self.step_ms
        return _grouped(
            StepRows(series, step, increase, millis, reset.astype(np.int64), one, values, values, values, values)
        )

    def _close(self, rows: StepRows) -> StepRows | None:
        """Rows of closed steps; the rows of the newest one stay open."""
        if self._open is not None:
            both = StepRows(*(np.concatenate(pair) for pair in zip(self._open, rows, strict=True)))
            order = np.lexsort((np.arange(len(both.series)), both.step, both.series))
            rows = _grouped(StepRows(*(column[order] for column in both)))
        newest = rows.step == rows.step.max()
        self._open = StepRows(*(column[newest] for column in rows))
        done = StepRows(*(column[~newest] for column in rows))
        return done if len(done.series) else None


def _grouped(rows: StepRows) -> StepRows:
    """Rows of equal series and step put together; they are next to each other, by rising time."""
    change = np.empty(len(rows.series), bool)
    change[0] = True
    change[1:] = (rows.series[1:] != rows.series[:-1]) | (rows.step[1:] != rows.step[:-1])
    starts = np.flatnonzero(change)
    ends = np.append(starts[1:], len(rows.series)) - 1
    added = [np.add.reduceat(column, starts) for column in rows[2:6]]
    low, high = np.minimum.reduceat(rows.low, starts), np.maximum.reduceat(rows.high, starts)
    return StepRows(
        rows.series[starts],
        rows.step[starts],
        added[0],
        added[1],
        added[2],
        added[3],
        rows.last[ends],
        low,
        high,
        np.add.reduceat(rows.total, starts),
    )


def histograms(rows: StepRows, kinds: Kinds) -> Histograms:
    """The rows of histograms with their buckets; one without a _count series counts by its last bucket."""
    part, group = kinds.part[rows.series], kinds.group[rows.series]
    picked = np.flatnonzero((part == BUCKET) | (part == COUNT) | (part == SUM))
    edge = np.where(part == BUCKET, kinds.edge[rows.series], np.nan)[picked]
    order = picked[np.lexsort((edge, part[picked], rows.step[picked], group[picked]))]
    group, step, part = group[order], rows.step[order], part[order]
    edge, increase, millis = kinds.edge[rows.series[order]], rows.increase[order], rows.millis[order]
    resets = rows.resets[order]
    if len(order) == 0:
        none = np.empty(0)
        return Histograms(none, none, none, none, none, none, none, none, none, [none] * 3)
    change = np.append(True, (group[1:] != group[:-1]) | (step[1:] != step[:-1]))
    starts = np.flatnonzero(change)
    row = np.cumsum(change) - 1

    def of(kind: int, values: Any) -> Any:
        found = np.full(len(starts), np.nan)
        found[row[part == kind]] = values[part == kind]
        return found

    buckets = part == BUCKET
    sizes = np.bincount(row[buckets], minlength=len(starts))
    borders = np.append(0, np.cumsum(sizes)).astype(np.int32)
    edges, counts = edge[buckets], increase[buckets]
    count = of(COUNT, increase)
    top = np.where(sizes > 0, np.append(0.0, counts)[borders[1:]], 0.0)
    most = np.maximum.reduceat(millis, starts)
    return Histograms(
        group[starts],
        step[starts],
        np.where(np.isnan(count), top, count),
        most,
        np.maximum.reduceat(resets, starts),
        np.nan_to_num(of(SUM, increase)),
        borders,
        edges,
        counts,
        quantiles(row[buckets], edges, counts, len(starts)),
    )


def quantiles(row: Any, edge: Any, count: Any, rows: int) -> list[Any]:
    """The QUANTILES of many histograms at once; NaN for empty ones.

    ``row`` says whose a bucket is; edges rise within a row and end with infinity, counts are cumulative.  Linear inside
    a bucket, as PromQL's histogram_quantile and ``tables.quantile``, which does the same for one.
    """
    found = [np.full(rows, np.nan) for _ in QUANTILES]
    if len(row) == 0:
        return found
    first = np.append(True, row[1:] != row[:-1])
    starts = np.flatnonzero(first)
    ends = np.append(starts[1:], len(row)) - 1
    owner = np.cumsum(first) - 1
    low = np.where(first, np.minimum(0.0, edge), np.append(0.0, edge[:-1]))
    below = np.where(first, 0.0, np.append(0.0, count[:-1]))
    for q, column in zip(QUANTILES, found, strict=True):
        rank = q * count[ends]
        hit = np.minimum.reduceat(np.where(count >= rank[owner], np.arange(len(row)), len(row)), starts)
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = count[hit] - below[hit]
            value = low[hit] + (edge[hit] - low[hit]) * (rank - below[hit]) / inside
        value = np.where((inside <= 0) | (first[hit] & (edge[hit] <= 0)), edge[hit], value)
        value = np.where(hit == ends, edge[hit - 1], value)
        column[row[starts]] = np.where((count[ends] > 0) & (ends > starts), value, np.nan)
    return found
