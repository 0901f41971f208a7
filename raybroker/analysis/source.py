"""The Spark data source ``raybroker_lake``: every sample of a lake, in batch and as a stream.

Columns: ts, broker, metric, labels, value, type; one row a sample.  Options: ``path``;
``since_ms``, ``until_ms``, ``now_ms``; ``metrics``, a list with commas of the names to give; ``faults`` "true": also
rows of type ``fault`` with what was wrong (metric), where (a label) and how often (value).  A stream remembers for each
broker the key of its last scrape, so files may be compacted while it runs; it starts at ``since_ms``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from raybroker.analysis import lake as layout
from raybroker.analysis import plan
from raybroker.analysis.columns import NO_STAMP, Reader, Samples
from raybroker.analysis.lake import Fault
from raybroker.analysis.plan import Part, Walk, Window

LAKE: Final = "raybroker_lake"
FOREVER_MS: Final = 1 << 52
SAMPLE_SCHEMA: Final = (
    "ts timestamp, broker string, metric string, labels map<string,string>, value double, type string"
)
_TS: Final = pa.timestamp("us", tz="UTC")
_MAP: Final = pa.map_(pa.string(), pa.string())
_SAMPLE_ARROW: Final = pa.schema([
    ("ts", _TS), ("broker", pa.string()), ("metric", pa.string()), ("labels", _MAP), ("value", pa.float64()),
    ("type", pa.string()),
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
