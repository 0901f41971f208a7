"""Makes the tables that jobs ask: steps of counters, gauges and histograms as Parquet, partitioned by date and broker.

The views ``counters``, ``gauges``, ``histograms`` and ``notes`` are over one table, whose files are sorted by metric.
Steps are as long as the time asked for makes sensible, so that a month of a cluster and an hour of it give tables of
about the same size.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from raybroker.analysis import lake as layout
from raybroker.analysis import parquet, plan
from raybroker.analysis.lake import Fault, File, Frame
from raybroker.analysis.plan import Window
from raybroker.model.errors import ConfigError

STEPS_MS: Final = (1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000)
"""Lengths of a step; each divides a day."""
POINTS_MAX: Final = 750
"""The shortest step that needs no more points than this is taken (a month is 720 hours) …"""
STEP_INTERVALS: Final = 2.5
"""… and is at least so many intervals between scrapes."""
ROWS_MAX: Final = 100_000
"""More rows than this never come to the driver: a job that would need them is wrong."""

_VIEWS: Final = {
    "counters": "date, broker, cluster, destination, type, metric, labels, ts, seconds, increase, resets, samples, "
                "rate",
    "gauges": "date, broker, cluster, destination, type, metric, labels, ts, samples, last, low, high, "
              "total / samples as mean",
    "histograms": "date, broker, cluster, destination, type, metric, labels, ts, seconds, increase, total, edges, "
                  "counts, resets, rate, p50, p95, p99",
}  # fmt: skip


@dataclass(slots=True)
class Tables:
    """What jobs ask. Times in milliseconds; ``brokers`` are those of the lake."""

    spark: Any
    path: Path
    window: Window
    step_ms: int
    brokers: Sequence[str]
    faults: Sequence[Fault] = ()
    cache: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def step_s(self) -> float:
        return self.step_ms / 1000

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The result of a query as plain values; times are milliseconds."""
        if sql not in self.cache:
            found = self.spark.sql(sql).limit(ROWS_MAX + 1).toPandas()
            if len(found) > ROWS_MAX:
                raise ConfigError(f"a query gave more than {ROWS_MAX} rows: {sql.strip()[:200]}")
            self.cache[sql] = [{key: _plain(value) for key, value in row.items()} for row in found.to_dict("records")]
        return self.cache[sql]

    def one(self, sql: str) -> dict[str, Any]:
        """The only row of a query."""
        return self.rows(sql)[0]


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist") and getattr(value, "ndim", None):
        return value.tolist()
    if value is None or value != value:
        return None
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1000)
    return value.item() if hasattr(value, "item") else value


def step_for(span_ms: int, interval_ms: int = 0) -> int:
    """The length of a step for so much time and an interval between scrapes."""
    fits = (step for step in STEPS_MS if span_ms / step <= POINTS_MAX and step >= STEP_INTERVALS * interval_ms)
    return next(fits, STEPS_MS[-1])


def interval_of(files: Sequence[File]) -> int:
    """The usual time between scrapes in milliseconds, by one file of average size; 0 when it does not tell."""
    ordered = sorted(files, key=lambda file: file.size)
    stamps = sorted(one.ts for one in layout.read(ordered[len(ordered) // 2].path) if isinstance(one, Frame))
    if len(stamps) >= 3:
        return round(statistics.median(later - earlier for earlier, later in itertools.pairwise(stamps)))
    mine = sorted(file.first for file in files if file.broker == ordered[len(ordered) // 2].broker)
    return round(statistics.median(b - a for a, b in itertools.pairwise(mine))) if len(mine) >= 3 else 0


def files_of(lake: Path, window: Window) -> tuple[list[File], list[Fault]]:
    """The files of a lake in a window. Raises ConfigError when there is no lake, or nothing in it."""
    try:
        files, faults = layout.files(lake)
    except NotADirectoryError:
        raise ConfigError(f"{lake} is no lake: there is no such folder") from None
    chosen, impossible = plan.within(files, window)
    if not chosen:
        span = f"; it has {files[0].date} to {files[-1].date}" if files else ""
        raise ConfigError(f"{lake} has no scrapes in the time asked for{span}")
    return chosen, [*faults, *impossible]


def build(
    spark: Any, lake: Path, out: Path, window: Window, *, step_ms: int | None = None, tasks: int = 8, kept: bool = True
) -> Tables:
    """Read the lake once and write the table below ``out``; what was there before is replaced.

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
        parquet.Work(number, part, window, step, str(out.absolute()), kept)
        for number, part in enumerate(plan.parts(files, tasks))
    ]  # fmt: skip
    spark.sparkContext.parallelize(works, len(works)).map(parquet.write).sum()
    made = Tables(
        spark, out, Window(first, last + 1, window.now_ms), step, sorted({file.broker for file in files}), faults
    )
    attach(made)
    return made


def attach(tables: Tables) -> None:
    """Put the views over a table that was built, and take the time that its scrapes span for its window."""
    spark = tables.spark
    table = spark.read.schema(parquet.SCHEMA).parquet(str(tables.path.absolute() / parquet.JOBS))
    table.createOrReplaceTempView("steps")
    for name, columns in _VIEWS.items():
        spark.sql(f"select {columns} from steps where kind = '{name[:-1]}'").createOrReplaceTempView(name)
    spark.sql(
        "select broker, kind, metric as what, destination as place, increase as number from steps "
        "where kind in ('fault', 'ingest')"
    ).createOrReplaceTempView("notes")
    span = tables.one(
        "select min(if(what = 'first', number, null)) first, max(if(what = 'last', number, null)) last from notes"
    )
    if span["first"] is None:
        raise ConfigError("the lake has no scrape that can be used in the time asked for")
    tables.window = Window(round(span["first"]), round(span["last"]), tables.window.now_ms)


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


def merged(metrics: str | Sequence[str], by: str = "") -> str:
    """SQL: the histograms of metrics put together by columns: those, ``number``, ``total``, ``buckets``.

    Buckets are added edge by edge; series with different edges (of different versions) come apart correctly, because
    counts are cumulative, only at the edges that all have.
    """
    columns = f"{by}, " if by else ""
    wanted = ", ".join(f"'{metric}'" for metric in ([metrics] if isinstance(metrics, str) else metrics))
    return f"""
        select {columns} max(number) number, max(total) total, array_sort(collect_list(struct(le, n))) buckets from (
            select {columns} le, sum(n) n, sum(increase) number, sum(total) total
            from (select * from histograms where metric in ({wanted}))
            lateral view inline(arrays_zip(edges, counts)) b as le, n
            group by {columns} le)
        {f"group by {by}" if by else ""}
    """


def split(buckets: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Edges and counts of the ``buckets`` that ``merged`` gives."""
    return [float(one["le"]) for one in buckets], [float(one["n"]) for one in buckets]
