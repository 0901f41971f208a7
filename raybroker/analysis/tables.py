"""The tables that jobs ask: steps of counters, gauges and histograms as Parquet, partitioned by date and broker.

Counters, gauges and histograms are in one table, whose files are sorted by metric.
Steps are as long as the time asked for makes sensible, so that a month of a cluster and an hour of it give tables of
about the same size.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from raybroker.analysis import names
from raybroker.analysis.frames import query
from raybroker.analysis.lake import lake as layout
from raybroker.analysis.lake import parquet, plan
from raybroker.analysis.lake.lake import File, LakeFault, ScrapeFrame
from raybroker.analysis.lake.plan import PlanWindow
from raybroker.model.errors import ConfigError

STEPS_MS: Final = (1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000)
"""Lengths of a step; each divides a day."""
POINTS_MAX: Final = 750
"""The shortest step that needs no more points than this is taken (a month is 720 hours) …"""
STEP_INTERVALS: Final = 2.5
"""… and is at least so many intervals between scrapes."""
ROWS_MAX: Final = 100_000
"""More rows than this never come to the driver: a job that would need them is wrong."""

_SERIES: Final = ("broker", "destination", "type", "metric", "labels", "ts")
_COLUMNS: Final = {
    "counter": (*_SERIES, "increase", "resets", "rate"),
    "gauge": (*_SERIES, "last", "low", "high", "try_divide(total, samples) as mean"),
    "histogram": (*_SERIES, "increase", "total", "edges", "counts"),
}
_NOTES: Final = """
    select kind, metric what, if(kind = 'fault', broker, '') broker, destination place, sum(increase) number,
           min(increase) least, max(increase) most
    from {steps} where kind in ('fault', 'ingest', 'cluster') group by 1, 2, 3, 4
    order by kind = 'fault', kind, what, number desc, broker, place limit 10000
"""
_INGEST: Final = {"scrapes": "number", "samples": "number", "first": "least", "last": "most"}


@dataclass(slots=True)
class LakeTables:
    """What jobs ask. Times in milliseconds; ``brokers`` are those of the lake."""

    spark: Any
    path: Path
    window: PlanWindow
    step_ms: int
    brokers: Sequence[str]
    faults: Sequence[LakeFault] = ()
    steps: Any = None
    """All that is in the files, as a DataFrame.  Spark does not keep it: to read what a job asks, of files that are
    sorted by metric, takes less time than to put everything into Spark's memory."""
    ingest: Mapping[str, float] = field(default_factory=dict)
    """How many samples and scrapes were read, and the times of the first and the last one."""
    notes: Sequence[Mapping[str, Any]] = ()
    """What was wrong in files: what, broker, place, number."""
    clusters: Sequence[str] = ()
    """The names that the metrics bear."""

    @property
    def step_s(self) -> float:
        return self.step_ms / 1000

    def counters(self, *metrics: str) -> Any:
        """The steps of some counters as a DataFrame; of gauges and histograms likewise."""
        return self._metric_rows("counter", metrics)

    def gauges(self, *metrics: str) -> Any:
        return self._metric_rows("gauge", metrics)

    def histograms(self, *metrics: str) -> Any:
        return self._metric_rows("histogram", metrics)

    def _metric_rows(self, kind: str, metrics: Sequence[str]) -> Any:
        unknown = set(metrics) - names.ASKED
        assert not unknown, f"add {unknown} to names.py, so that jobs may ask about it"
        chosen = ", ".join(f"'{metric}'" for metric in metrics)
        return self.steps.where(f"kind = '{kind}' and metric in ({chosen})").selectExpr(*_COLUMNS[kind])

    def plain_rows(self, frame: Any) -> list[dict[str, Any]]:
        """A DataFrame as plain values; times are milliseconds."""
        found = frame.limit(ROWS_MAX + 1).toArrow()
        if len(found) > ROWS_MAX:
            raise ConfigError(f"a job gave more than {ROWS_MAX} rows: {found.column_names}")
        return [{key: _plain(value) for key, value in row.items()} for row in found.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    return None if value != value else value


def step_for(span_ms: int, interval_ms: int = 0) -> int:
    """The length of a step for so much time and an interval between scrapes."""
    fits = (step for step in STEPS_MS if span_ms / step <= POINTS_MAX and step >= STEP_INTERVALS * interval_ms)
    return next(fits, STEPS_MS[-1])


def interval_of(files: Sequence[File]) -> int:
    """The usual time between scrapes in milliseconds, by one file of average size; 0 when it does not tell."""
    ordered = sorted(files, key=lambda file: file.size)
    stamps = sorted(one.ts for one in layout.read(ordered[len(ordered) // 2].path) if isinstance(one, ScrapeFrame))
    if len(stamps) >= 3:
        return round(statistics.median(later - earlier for earlier, later in itertools.pairwise(stamps)))
    mine = sorted(file.first for file in files if file.broker == ordered[len(ordered) // 2].broker)
    return round(statistics.median(b - a for a, b in itertools.pairwise(mine))) if len(mine) >= 3 else 0


def files_of(lake: Path, window: PlanWindow) -> tuple[list[File], list[LakeFault]]:
    """The files of a lake in a window. Raises ConfigError when there is no lake, or nothing in it."""
    try:
        files, faults = layout.files(lake.absolute())
    except NotADirectoryError:
        raise ConfigError(f"{lake} is no lake: there is no such folder") from None
    chosen, impossible = plan.within(files, window)
    if not chosen:
        span = f"; it has {files[0].date} to {files[-1].date}" if files else ""
        raise ConfigError(f"{lake} has no scrapes in the time asked for{span}")
    return chosen, [*faults, *impossible]


class Draft(NamedTuple):
    """Tables before their files are written: what to do, and what is known beforehand."""

    path: Path
    works: list[parquet.ParquetWork]
    window: PlanWindow
    brokers: list[str]
    faults: list[LakeFault]
    lake_bytes: int

    @property
    def step_ms(self) -> int:
        return self.works[0].step_ms


def draft(
    lake: Path, out: Path, window: PlanWindow, *, step_ms: int | None = None, tasks: int = 8, kept: bool = True
) -> Draft:
    """Plan the tables of a lake below ``out``, for ``tasks`` that run at once; what was there before is removed.

    ``kept`` false: only what jobs ask, not the table by date and broker.  Raises ConfigError when there is nothing to
    read, OSError when ``out`` cannot be written here.
    """
    files, faults = files_of(lake, window)
    first = max(window.since_ms, min(file.first for file in files))
    last = min(window.until_ms, max(file.last for file in files), window.now_ms + plan.FUTURE_MS)
    step = step_ms or step_for(max(1, last - first), interval_of(files))
    for old in [out / parquet.JOBS, *out.glob("date=*")]:
        shutil.rmtree(old, ignore_errors=True)
    (out / parquet.JOBS).mkdir(parents=True, exist_ok=True)
    works = [
        parquet.ParquetWork(number, part, window, step, str(out.absolute()), kept)
        for number, part in enumerate(plan.parts(files, tasks, step))
    ]
    brokers = sorted({file.broker for file in files})
    return Draft(
        out, works, PlanWindow(first, last + 1, window.now_ms), brokers, faults, sum(file.size for file in files)
    )


def through_spark(spark: Any, drafted: Draft) -> int:
    """Write the files of a draft on the workers of Spark; how many rows."""
    works = drafted.works
    return int(spark.sparkContext.parallelize(works, len(works)).map(parquet.write).sum())


def opened(spark: Any, drafted: Draft) -> LakeTables:
    """The tables of a draft whose files are written."""
    made = LakeTables(spark, drafted.path, drafted.window, drafted.step_ms, drafted.brokers, drafted.faults)
    attach(made)
    return made


def build(
    spark: Any,
    lake: Path,
    out: Path,
    window: PlanWindow,
    *,
    step_ms: int | None = None,
    tasks: int = 8,
    kept: bool = True,
) -> LakeTables:
    """Draft the tables of a lake, write their files on the workers of Spark, and open them."""
    drafted = draft(lake, out, window, step_ms=step_ms, tasks=tasks, kept=kept)
    through_spark(spark, drafted)
    return opened(spark, drafted)


def attach(tables: LakeTables) -> None:
    """Open a table that was built, and take the time that its scrapes span for its window."""
    files = (tables.path.absolute() / parquet.JOBS).as_uri()
    tables.steps = tables.spark.read.schema(parquet.SCHEMA).parquet(files)
    said = tables.plain_rows(query(_NOTES, steps=tables.steps))
    tables.notes = [row for row in said if row["kind"] == "fault"]
    tables.ingest = {row["what"]: row[_INGEST[row["what"]]] for row in said if row["kind"] == "ingest"}
    tables.clusters = sorted(row["what"] for row in said if row["kind"] == "cluster" and row["what"])
    if not tables.ingest:
        raise ConfigError(f"the lake has no scrape that can be used in the time asked for{_wrong(tables)}")
    first, last = round(tables.ingest["first"]), round(tables.ingest["last"])
    tables.window = PlanWindow(first, last, tables.window.now_ms)


def _wrong(tables: LakeTables) -> str:
    """What was wrong with the input and how often, in words."""
    sums: dict[str, int] = {}
    places = [one["place"] for one in sorted(tables.notes, key=lambda one: (one["what"], one["place"]))]
    for what, times in (
        *((one["what"], round(one["number"])) for one in tables.notes),
        *((one.what, one.times) for one in tables.faults),
    ):
        sums[what] = sums.get(what, 0) + times
    places += [one.where for one in tables.faults]
    told = ", ".join(f"{times:,} {what}" for what, times in sorted(sums.items(), key=lambda pair: -pair[1]))
    return f": {told}; first: {places[0]}" if told else ""


def quantile(edges: Sequence[float], counts: Sequence[float], q: float) -> float | None:
    """The q-quantile of a histogram, by linear interpolation inside its bucket, as PromQL's histogram_quantile.

    ``counts`` are cumulative, ``edges`` upper ones and end with infinity.  None for an empty histogram.
    """
    total = counts[-1] if counts else 0.0
    if not total or len(counts) < 2:
        return None
    rank = q * total
    at = next(index for index, count in enumerate(counts) if count >= rank)
    if at == len(counts) - 1:
        return edges[-2]
    low = edges[at - 1] if at else min(0.0, edges[0])
    below = counts[at - 1] if at else 0.0
    if at == 0 and edges[0] <= 0:
        return edges[0]
    inside = counts[at] - below
    return edges[at] if inside <= 0 else low + (edges[at] - low) * (rank - below) / inside


def split(buckets: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Edges and counts of the ``buckets`` that ``merged`` gives."""
    return [float(one["le"]) for one in buckets], [float(one["n"]) for one in buckets]
