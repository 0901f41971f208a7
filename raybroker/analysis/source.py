"""Spark data sources over a lake: ``raybroker_lake`` gives every sample, ``raybroker_steps`` rows of equal time steps.

``raybroker_lake`` (batch and stream): ts, broker, metric, labels, value, type; one row a sample.  Options: ``path``;
``since_ms``, ``until_ms``, ``now_ms``; ``metrics``, a list with commas of the names to give; ``faults`` "true": also
rows of type ``fault`` with what was wrong (metric), where (a label) and how often (value).  A stream remembers for each
broker the key of its last scrape, so files may be compacted while it runs; it starts at ``since_ms``.

``raybroker_steps`` (batch): what ``steps`` makes, one pass over the lake without a shuffle; option ``step_ms``.  Rows
of kind ``fault`` and ``ingest`` tell what was wrong and how much was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from raybroker.analysis import lake as layout
from raybroker.analysis import plan, steps
from raybroker.analysis.columns import NO_STAMP, Reader, Samples
from raybroker.analysis.lake import Fault
from raybroker.analysis.plan import Part, Walk, Window

LAKE: Final = "raybroker_lake"
STEPS: Final = "raybroker_steps"
FOREVER_MS: Final = 1 << 52
SAMPLE_SCHEMA: Final = (
    "ts timestamp, broker string, metric string, labels map<string,string>, value double, type string"
)
STEP_SCHEMA: Final = (
    "date string, broker string, kind string, metric string, cluster string, destination string, type string, "
    "labels map<string,string>, ts timestamp, seconds double, increase double, resets bigint, samples bigint, "
    "last double, low double, high double, total double, rate double, p50 double, p95 double, p99 double, "
    "edges array<double>, counts array<double>"
)
_TS: Final = pa.timestamp("us", tz="UTC")
_MAP: Final = pa.map_(pa.string(), pa.string())
_SAMPLE_ARROW: Final = pa.schema([
    ("ts", _TS), ("broker", pa.string()), ("metric", pa.string()), ("labels", _MAP), ("value", pa.float64()),
    ("type", pa.string()),
])  # fmt: skip
_STEP_ARROW: Final = pa.schema([
    *((name, pa.string()) for name in ("date", "broker", "kind", "metric", "cluster", "destination", "type")),
    ("labels", _MAP), ("ts", _TS), ("seconds", pa.float64()), ("increase", pa.float64()), ("resets", pa.int64()),
    ("samples", pa.int64()),
    *((name, pa.float64()) for name in ("last", "low", "high", "total", "rate", "p50", "p95", "p99")),
    ("edges", pa.list_(pa.float64())), ("counts", pa.list_(pa.float64())),
])  # fmt: skip


class PartOfLake(InputPartition):
    """A part of the lake as Spark passes it to a task."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self.part = part


class Stretch(InputPartition):
    """Files of one broker, and the keys of theirs that are new to a stream: after, up to."""

    def __init__(self, broker: str, files: tuple[str, ...], after: int, upto: int) -> None:
        super().__init__((broker, files, after, upto))
        self.broker, self.files, self.after, self.upto = broker, files, after, upto


def window_of(options: Mapping[str, str]) -> Window:
    """The window of a source's options."""
    return Window(
        int(options.get("since_ms", "0")), int(options.get("until_ms", str(FOREVER_MS))),
        int(options.get("now_ms", str(FOREVER_MS))),
    )  # fmt: skip


def parts_of(options: Mapping[str, str]) -> tuple[list[Part], list[Fault]]:
    """The parts of the lake that the options ask for, and what is wrong with its folders."""
    files, strange = layout.files(Path(options["path"]))
    window = window_of(options)
    if window.now_ms < FOREVER_MS:
        files, impossible = plan.within(files, window)
        strange = [*strange, *impossible]
    return plan.parts(files, int(options.get("tasks", "8"))), strange


class LakeSource(DataSource):
    """Every sample of a lake."""

    @classmethod
    def name(cls) -> str:
        return LAKE

    def schema(self) -> str:
        return SAMPLE_SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        return LakeReader(dict(self.options))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return LakeStream(dict(self.options))


class LakeReader(DataSourceReader):
    """Reads parts of a lake into samples."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        found, _ = parts_of(self._options)
        made: list[InputPartition] = [PartOfLake(part) for part in found]
        return made or [PartOfLake(Part("", (), None))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, PartOfLake)
        walk = Walk(partition.part, window_of(self._options))
        maker = SampleBatches(partition.part.broker, self._options)
        for piece in walk.pieces():
            if not piece.baseline:
                yield from maker.batches(piece.stamps_ms, piece.bodies)
        yield from maker.fault_batch(walk.faults)


class LakeStream(DataSourceStreamReader):
    """Follows a lake; an offset is the last key of each broker."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._since = int(options.get("since_ms", "0"))

    def initialOffset(self) -> dict:  # noqa: N802 - Spark's name
        return {"keys": {}}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict:  # noqa: N802
        keys = dict((start or {}).get("keys", {}))
        for file in self._files(keys):
            keys[file.broker] = max(file.last, keys.get(file.broker, 0))
        return {"keys": keys}

    def _files(self, keys: Mapping[str, int]) -> list[layout.File]:
        """Files that can be new: of the last day and of what came since."""
        newest = max(keys.values(), default=0)
        oldest = layout.date_of(max(self._since, newest - layout.DAY_MS, 0))
        lake = Path(self._options["path"])
        found = []
        for folder in lake.glob("date=*"):
            if folder.name >= f"date={oldest}":
                described = (layout.describe(path) for path in folder.glob("broker=*/[0-9]*.prom*"))
                found += [file for file in described if file is not None]
        return found

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        after, upto = start["keys"], end["keys"]
        by_broker: dict[str, list[layout.File]] = {}
        for file in self._files(after):
            if file.last > after.get(file.broker, 0) and file.first <= upto.get(file.broker, 0):
                by_broker.setdefault(file.broker, []).append(file)
        return [
            Stretch(broker, tuple(one.path for one in sorted(files, key=lambda file: file.first)),
                    after.get(broker, 0), upto[broker])
            for broker, files in sorted(by_broker.items())
        ]  # fmt: skip

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Stretch)
        maker = SampleBatches(partition.broker, self._options)
        faults: list[Fault] = []
        seen: set[int] = set()
        for path in partition.files:
            stamps: list[int] = []
            bodies: list[bytes] = []
            for one in layout.read(path):
                if isinstance(one, Fault):
                    faults.append(one)
                elif partition.after < one.key <= partition.upto and one.ts >= self._since:
                    if one.key in seen:
                        faults.append(Fault("duplicate", partition.broker))
                        continue
                    seen.add(one.key)
                    stamps.append(one.ts)
                    bodies.append(one.body)
            yield from maker.batches(stamps, bodies)
        yield from maker.fault_batch(faults)


class SampleBatches:
    """Makes Arrow batches of scrapes."""

    def __init__(self, broker: str, options: Mapping[str, str]) -> None:
        self._broker = broker
        self._faults = options.get("faults", "") == "true"
        wanted = options.get("metrics", "")
        self._wanted = frozenset(wanted.split(",")) if wanted else None
        self._reader = Reader()
        self._names: Any = pa.array([], pa.string())
        self._labels: Any = pa.array([], _MAP)
        self._chosen = np.empty(0, bool)
        self._bad: list[Fault] = []

    def batches(self, stamps_ms: Sequence[int], bodies: Sequence[bytes]) -> Iterator[Any]:
        """The samples of some scrapes."""
        if not bodies:
            return
        samples, bad = self._reader.read(bodies)
        self._bad += [Fault("bad line", f"{self._broker}: {one.line[:80]}") for one in bad]
        self._grow()
        if self._wanted is not None:
            kept = self._chosen[samples.series]
            samples = Samples(*(column[kept] for column in samples))
        if len(samples.value):
            yield self._batch(np.array(stamps_ms, np.int64), samples)

    def _batch(self, stamps: Any, samples: Samples) -> Any:
        own = samples.stamp_ms
        ts = np.where(own == NO_STAMP, stamps[samples.scrape], own) * 1000
        series = pa.array(samples.series)
        return pa.RecordBatch.from_arrays(
            [pa.array(ts).cast(_TS), pa.repeat(self._broker, len(ts)), self._names.take(series),
             self._labels.take(series), pa.array(samples.value),
             pa.array(self._reader.types).take(pa.array(samples.type))],
            schema=_SAMPLE_ARROW,
        )  # fmt: skip

    def _grow(self) -> None:
        fresh = self._reader.series[len(self._names) :]
        if fresh:
            more = pa.array([one.name for one in fresh], pa.string())
            self._names = pa.concat_arrays([self._names, more])
            self._labels = pa.concat_arrays([self._labels, pa.array([one.labels for one in fresh], _MAP)])
            wanted = self._wanted or frozenset()
            self._chosen = np.append(self._chosen, np.array([one.name in wanted for one in fresh], bool))

    def fault_batch(self, faults: Sequence[Fault]) -> Iterator[Any]:
        """What was wrong, as rows, when they are asked for."""
        rows = [*faults, *self._bad]
        if self._faults and rows:
            yield pa.RecordBatch.from_arrays(
                [pa.array([0] * len(rows), pa.int64()).cast(_TS), pa.repeat(self._broker, len(rows)),
                 pa.array([one.what for one in rows]), pa.array([[("where", one.where)] for one in rows], _MAP),
                 pa.array([float(one.times) for one in rows]), pa.repeat("fault", len(rows))],
                schema=_SAMPLE_ARROW,
            )  # fmt: skip


class StepSource(DataSource):
    """A lake reduced to steps."""

    @classmethod
    def name(cls) -> str:
        return STEPS

    def schema(self) -> str:
        return STEP_SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        return StepReader(dict(self.options))


class StepReader(LakeReader):
    """Reduces parts of a lake."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, PartOfLake)
        step_ms = int(self._options["step_ms"])
        reducer = steps.Reducer(step_ms)
        walk = Walk(partition.part, window_of(self._options))
        batches = StepBatches(partition.part.broker, reducer)
        span = [0, 0]
        for piece in walk.pieces():
            if not piece.baseline:
                span = [span[0] or piece.stamps_ms[0], piece.stamps_ms[-1]]
            rows = reducer.add(piece.stamps_ms, piece.bodies, baseline=piece.baseline)
            if rows is not None:
                yield from batches.of(rows)
        last = reducer.finish()
        if last is not None:
            yield from batches.of(last)
        yield from batches.notes([*walk.faults, *reducer.found()], span)


def _rate(increase: Any, millis: Any) -> Any:
    """A second; nothing for a first value, before which nobody looked."""
    return np.divide(increase * 1000, millis, out=np.full(len(increase), np.nan), where=millis > 0)


class StepBatches:
    """Makes Arrow batches of reduced rows."""

    def __init__(self, broker: str, reducer: steps.Reducer) -> None:
        self._broker = broker
        self._reducer = reducer
        self._columns: list[Any] = []
        self._size = 0

    def of(self, rows: steps.Rows) -> Iterator[Any]:
        """Counters and gauges, then histograms."""
        kinds = self._reducer.kinds
        part = kinds.part[rows.series]
        plain = np.flatnonzero((part == steps.COUNTER) | (part == steps.GAUGE))
        if len(plain):
            one = steps.Rows(*(column[plain] for column in rows))
            gauge = part[plain] == steps.GAUGE
            missing, nothing = pa.nulls(len(plain), pa.list_(pa.float64())), np.full(len(plain), np.nan)
            yield self._batch(kinds.group[one.series], one.step, [
                one.millis / 1000, np.where(gauge, np.nan, one.increase), one.resets, one.samples,
                *(np.where(gauge, column, np.nan) for column in (one.last, one.low, one.high, one.total)),
                np.where(gauge, np.nan, _rate(one.increase, one.millis)), nothing, nothing, nothing,
            ], missing, missing)  # fmt: skip
        made = steps.histograms(rows, kinds)
        if len(made.group):
            count = len(made.group)
            nothing = np.full(count, np.nan)
            yield self._batch(made.group, made.step, [
                made.millis / 1000, made.increase, made.resets.astype(np.int64), np.ones(count, np.int64), nothing,
                nothing, nothing, made.total, _rate(made.increase, made.millis), *made.quantiles,
            ], pa.array(made.edges, pa.list_(pa.float64())), pa.array(made.counts, pa.list_(pa.float64())))  # fmt: skip

    def _batch(self, group: Any, step: Any, numbers: list[Any], edges: Any, counts: Any) -> Any:
        self._grow()
        picked = pa.array(group)
        ts = step * self._reducer.step_ms
        dates = {day: layout.date_of(day * layout.DAY_MS) for day in np.unique(ts // layout.DAY_MS).tolist()}
        date = pa.array([dates[day] for day in (ts // layout.DAY_MS).tolist()], pa.string())
        values = [pa.array(column, from_pandas=True) for column in numbers]
        described = [column.take(picked) for column in self._columns]
        columns = [
            date, pa.repeat(self._broker, len(ts)), *described, pa.array(ts * 1000).cast(_TS), *values, edges, counts
        ]  # fmt: skip
        return pa.RecordBatch.from_arrays(columns, schema=_STEP_ARROW)

    def _grow(self) -> None:
        groups = self._reducer.kinds.groups
        if len(groups) != self._size:
            columns = zip(*groups, strict=True)
            self._columns = [
                pa.array(column, kind)
                for column, kind in zip(columns, [*[pa.string()] * 5, _MAP], strict=True)
            ]  # fmt: skip
            self._size = len(groups)

    def notes(self, faults: Sequence[Fault], span: Sequence[int]) -> Iterator[Any]:
        """What was wrong and how much there was, from when to when."""
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
            ]
        if not rows:
            return
        size = len(rows)
        text, none = pa.repeat("", size), pa.nulls(size, pa.float64())
        lists = pa.nulls(size, pa.list_(pa.float64()))
        yield pa.RecordBatch.from_arrays(
            [pa.repeat(layout.date_of(ts_ms), size), pa.repeat(self._broker, size), pa.array([row[0] for row in rows]),
             pa.array([row[1] for row in rows]), text, pa.array([row[2] for row in rows]), text,
             pa.array([[]] * size, _MAP), pa.array([ts_ms * 1000] * size).cast(_TS), none,
             pa.array([row[3] for row in rows]), pa.array([0] * size, pa.int64()), pa.array([0] * size, pa.int64()),
             *[none] * 8, lists, lists],
            schema=_STEP_ARROW,
        )  # fmt: skip
