"""Writer of steps as Parquet, in the processes that read the lake: no row has to go through Spark to become a table.

::

    OUT/date=2026-11-21/broker=b1/<number>-<piece>.parquet       when tables are kept
    OUT/_jobs/<number>-<piece>.parquet                           what jobs ask, sorted by metric

Each part of the lake makes its own files, named by its number: a task that runs twice makes the same ones again.  A
name that Spark takes for hidden keeps the second folder out of the first table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raybroker.analysis import names
from raybroker.analysis.lake import lake as layout
from raybroker.analysis.lake import steps
from raybroker.analysis.lake.lake import LakeFault
from raybroker.analysis.lake.plan import LakePart, PlanWindow, Walk

JOBS: Final = "_jobs"
"""The folder of what jobs ask."""
ROWS_MAX: Final = 1 << 18
"""So many rows are held before they become a file: some 100 bytes each."""
GROUP_ROWS: Final = 1 << 15
"""Rows of a row group: readers skip those that have none of the metrics they ask for …"""
PAGE_BYTES: Final = 1 << 14
"""… and within them pages, by the page index."""
SCHEMA: Final = (
    "date string, broker string, kind string, metric string, cluster string, destination string, type string, "
    "labels map<string,string>, ts timestamp, seconds double, increase double, resets bigint, samples bigint, "
    "last double, low double, high double, total double, rate double, p50 double, p95 double, p99 double, "
    "edges array<double>, counts array<double>"
)
_TEXT: Final = pa.dictionary(pa.int32(), pa.string())
_MAP: Final = pa.map_(pa.string(), pa.string())
_TS: Final = pa.timestamp("us", tz="UTC")
_LIST: Final = pa.list_(pa.float64())
_TEXTS: Final = ("date", "broker", "kind", "metric", "cluster", "destination", "type")
_ARROW: Final = pa.schema(
    [
        *((name, _TEXT) for name in _TEXTS),
        ("labels", _MAP),
        ("ts", _TS),
        ("seconds", pa.float64()),
        ("increase", pa.float64()),
        ("resets", pa.int64()),
        ("samples", pa.int64()),
        *((name, pa.float64()) for name in ("last", "low", "high", "total", "rate", "p50", "p95", "p99")),
        ("edges", _LIST),
        ("counts", _LIST),
    ]
)
_ESCAPED: Final = frozenset("\"#%'*/:=?\\\x7f{[]^")


class ParquetWork(NamedTuple):
    """What one task does. ``kept``: every metric, and also the table by date and broker."""

    number: int
    part: LakePart
    window: PlanWindow
    step_ms: int
    out: str
    kept: bool


def write(work: ParquetWork) -> int:
    """Reduce a part of the lake to steps and write them; how many rows. Raises OSError when they cannot be written."""
    reducer = steps.Reducer(work.step_ms, None if work.kept else names.ASKED)
    walk = Walk(work.part, work.window)
    batches = Batches(work.part.broker, reducer)
    files = _Files(work)
    span = [0, 0]
    for piece in walk.pieces():
        if not piece.baseline:
            span = [span[0] or piece.stamps_ms[0], piece.stamps_ms[-1]]
        rows = reducer.add(piece.stamps_ms, piece.bodies, baseline=piece.baseline)
        if rows is not None:
            files.add(batches.make_batches(rows))
    last = reducer.finish()
    if last is not None:
        files.add(batches.make_batches(last))
    files.add(batches.notes([*walk.faults, *reducer.found()], span))
    return files.close()


def folder_name(column: str, value: str) -> str:
    """The folder of a partition as Spark reads it back, which is neither URL quoting nor UTF-8."""
    escaped = "".join(f"%{ord(one):02X}" if one in _ESCAPED or one < " " else one for one in value)
    return f"{column}={escaped}"


class _Files:
    """Gathers batches and writes them."""

    def __init__(self, work: ParquetWork) -> None:
        self._work = work
        self._held: list[Any] = []
        self._rows = self._written = self._pieces = 0

    def add(self, batches: Iterator[Any]) -> None:
        for batch in batches:
            self._held.append(batch)
            self._rows += batch.num_rows
            if self._rows >= ROWS_MAX:
                self._flush()

    def close(self) -> int:
        if self._held:
            self._flush()
        return self._written

    def _flush(self) -> None:
        table = pa.Table.from_batches(self._held, _ARROW).unify_dictionaries().combine_chunks()
        self._written += table.num_rows
        self._held, self._rows = [], 0
        table = table.take(pa.array(_by_text(table, "metric")))
        out, name = Path(self._work.out), f"{self._work.number:05d}-{self._pieces}.parquet"
        self._pieces += 1
        _write(table, out / JOBS / name)
        if self._work.kept:
            codes, days = _codes(table, "date")
            plain = table.drop_columns(["date", "broker"])
            for code, day in enumerate(days):
                mine = np.flatnonzero(codes == code)
                if len(mine):
                    folder = out / folder_name("date", day) / folder_name("broker", self._work.part.broker)
                    _write(plain.take(pa.array(mine)), folder / name)


def _codes(table: Any, name: str) -> tuple[Any, list[str]]:
    column = table.column(name).chunk(0)
    return column.indices.to_numpy(), column.dictionary.to_pylist()


def _by_text(table: Any, name: str) -> Any:
    """Positions of rows sorted by a text, those of equal ones as they were."""
    codes, texts = _codes(table, name)
    rank = np.empty(len(texts), np.int32)
    rank[np.argsort(np.array(texts, object))] = np.arange(len(texts))
    return np.argsort(rank[codes], kind="stable")


def _write(table: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    texts = [name for name in _TEXTS if name in table.column_names]
    pq.write_table(
        table,
        hidden,
        row_group_size=GROUP_ROWS,
        compression="zstd",
        use_dictionary=[*texts, "labels"],
        write_statistics=["kind", "metric"],
        write_page_index=True,
        data_page_size=PAGE_BYTES,
        store_schema=False,
    )
    hidden.replace(path)


def _rate(increase: Any, millis: Any) -> Any:
    """A second; nothing for a first value, before which nobody looked."""
    return np.divide(increase * 1000, millis, out=np.full(len(increase), np.nan), where=millis > 0)


def _text(codes: Any, texts: Any) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), texts)


def _same(text: str, size: int) -> Any:
    return _text(np.zeros(size, np.int32), pa.array([text]))


class Batches:
    """Makes Arrow batches of reduced rows."""

    def __init__(self, broker: str, reducer: steps.Reducer) -> None:
        self._broker = broker
        self._reducer = reducer
        self._texts: list[Any] = []
        self._labels: Any = None
        self._size = -1

    def make_batches(self, rows: steps.StepRows) -> Iterator[Any]:
        """Counters and gauges, then histograms."""
        kinds = self._reducer.kinds
        part = kinds.part[rows.series]
        plain = np.flatnonzero((part == steps.COUNTER) | (part == steps.GAUGE))
        if len(plain):
            one = steps.StepRows(*(column[plain] for column in rows))
            gauge = part[plain] == steps.GAUGE
            missing, nothing = pa.nulls(len(plain), _LIST), pa.nulls(len(plain), pa.float64())
            yield self._batch(
                kinds.group[one.series],
                one.step,
                [
                    one.millis / 1000,
                    np.where(gauge, np.nan, one.increase),
                    one.resets,
                    one.samples,
                    *(np.where(gauge, column, np.nan) for column in (one.last, one.low, one.high, one.total)),
                    np.where(gauge, np.nan, _rate(one.increase, one.millis)),
                    nothing,
                    nothing,
                    nothing,
                    missing,
                    missing,
                ],
            )
        made = steps.histograms(rows, kinds)
        if len(made.group):
            count = len(made.group)
            nothing = pa.nulls(count, pa.float64())
            yield self._batch(
                made.group,
                made.step,
                [
                    made.millis / 1000,
                    made.increase,
                    made.resets.astype(np.int64),
                    np.ones(count, np.int64),
                    nothing,
                    nothing,
                    nothing,
                    made.total,
                    _rate(made.increase, made.millis),
                    *made.quantiles,
                    *(pa.ListArray.from_arrays(made.borders, values) for values in (made.edges, made.counts)),
                ],
            )

    def _batch(self, group: Any, step: Any, columns: list[Any]) -> Any:
        self._grow()
        ts = step * self._reducer.step_ms
        days, codes = np.unique(ts // layout.DAY_MS, return_inverse=True)
        dates = pa.array([layout.date_of(day * layout.DAY_MS) for day in days.tolist()], pa.string())
        described = [_text(at[group], texts) for at, texts in self._texts]
        made = [
            _text(codes.astype(np.int32), dates),
            _same(self._broker, len(ts)),
            *described,
            self._labels.take(pa.array(group)),
            pa.array(ts * 1000).cast(_TS),
            *(pa.array(one, from_pandas=True) if isinstance(one, np.ndarray) else one for one in columns),
        ]
        return pa.RecordBatch.from_arrays(made, schema=_ARROW)

    def _grow(self) -> None:
        groups = self._reducer.kinds.groups
        if len(groups) != self._size:
            *texts, labels = zip(*groups, strict=True)
            encoded = [pa.array(column, pa.string()).dictionary_encode() for column in texts]
            self._texts = [(one.indices.to_numpy(), one.dictionary) for one in encoded]
            self._labels = pa.array(labels, _MAP)
            self._size = len(groups)

    def notes(self, faults: Sequence[LakeFault], span: Sequence[int]) -> Iterator[Any]:
        """What was wrong, how much there was, from when to when, and of which clusters."""
        ts_ms = span[0]
        sums: dict[tuple[str, str], int] = {}
        for one in faults:
            sums[one.what, one.where] = sums.get((one.what, one.where), 0) + one.times
        rows = [("fault", what, where, float(count)) for (what, where), count in sorted(sums.items())]
        if self._reducer.scrapes:
            rows += [
                ("ingest", "scrapes", "", float(self._reducer.scrapes)),
                ("ingest", "samples", "", float(self._reducer.samples)),
                ("ingest", "first", "", float(span[0])),
                ("ingest", "last", "", float(span[1])),
                *(("cluster", name, "", 1.0) for name in sorted({one.cluster for one in self._reducer.kinds.groups})),
            ]
        if not rows:
            return
        size = len(rows)
        none, zero, lists = pa.nulls(size, pa.float64()), pa.array([0] * size, pa.int64()), pa.nulls(size, _LIST)
        kind, what, where = (pa.array([row[at] for row in rows], pa.string()).dictionary_encode() for at in range(3))
        yield pa.RecordBatch.from_arrays(
            [
                _same(layout.date_of(ts_ms), size),
                _same(self._broker, size),
                kind,
                what,
                _same("", size),
                where,
                _same("", size),
                pa.array([[]] * size, _MAP),
                pa.array([ts_ms * 1000] * size).cast(_TS),
                none,
                pa.array([row[3] for row in rows]),
                zero,
                zero,
                *[none] * 8,
                lists,
                lists,
            ],
            schema=_ARROW,
        )
