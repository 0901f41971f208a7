"""Scrapes as Arrow batches of samples: the rows that the Spark source ``raybroker_lake`` gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from raybroker.analysis.lake.columns import NO_STAMP, ColumnReader, Samples
from raybroker.analysis.lake.lake import LakeFault

SAMPLE_SCHEMA: Final = (
    "ts timestamp, broker string, metric string, labels map<string,string>, value double, type string"
)
_TS: Final = pa.timestamp("us", tz="UTC")
_MAP: Final = pa.map_(pa.string(), pa.string())
_SAMPLE_ARROW: Final = pa.schema(
    [
        ("ts", _TS),
        ("broker", pa.string()),
        ("metric", pa.string()),
        ("labels", _MAP),
        ("value", pa.float64()),
        ("type", pa.string()),
    ]
)


class SampleBatches:
    """Makes Arrow batches of scrapes."""

    def __init__(self, broker: str, options: Mapping[str, str]) -> None:
        self._broker = broker
        self._faults = options.get("faults", "") == "true"
        wanted = options.get("metrics", "")
        self._wanted = frozenset(wanted.split(",")) if wanted else None
        self._reader = ColumnReader()
        self._names: Any = pa.array([], pa.string())
        self._labels: Any = pa.array([], _MAP)
        self._chosen = np.empty(0, bool)
        self._own_stamps = options.get("clock", "") != "true"
        """Samples may have times of their own; who evaluates scrapes wants those of the scrapes."""
        self._bad: list[LakeFault] = []

    def batches(self, stamps_ms: Sequence[int], bodies: Sequence[bytes]) -> Iterator[Any]:
        """The samples of some scrapes."""
        if not bodies:
            return
        samples, bad = self._reader.read(bodies)
        self._bad += [LakeFault("bad line", f"{self._broker}: {one.line[:80]}") for one in bad]
        self._grow()
        if self._wanted is not None:
            kept = self._chosen[samples.series]
            samples = Samples(*(column[kept] for column in samples))
        if len(samples.value):
            yield self._batch(np.array(stamps_ms, np.int64), samples)

    def _batch(self, stamps: Any, samples: Samples) -> Any:
        own = samples.stamp_ms
        mine = stamps[samples.scrape]
        ts = (np.where(own == NO_STAMP, mine, own) if self._own_stamps else mine) * 1000
        series = pa.array(samples.series)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(ts).cast(_TS),
                pa.repeat(self._broker, len(ts)),
                self._names.take(series),
                self._labels.take(series),
                pa.array(samples.value),
                pa.array(self._reader.types).take(pa.array(samples.type)),
            ],
            schema=_SAMPLE_ARROW,
        )

    def _grow(self) -> None:
        fresh = self._reader.series[len(self._names) :]
        if fresh:
            more = pa.array([one.name for one in fresh], pa.string())
            self._names = pa.concat_arrays([self._names, more])
            self._labels = pa.concat_arrays([self._labels, pa.array([one.labels for one in fresh], _MAP)])
            wanted = self._wanted or frozenset()
            self._chosen = np.append(self._chosen, np.array([one.name in wanted for one in fresh], bool))

    def fault_batch(self, faults: Sequence[LakeFault]) -> Iterator[Any]:
        """What was wrong, as rows, when they are asked for."""
        rows = [*faults, *self._bad]
        if self._faults and rows:
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([0] * len(rows), pa.int64()).cast(_TS),
                    pa.repeat(self._broker, len(rows)),
                    pa.array([one.what for one in rows]),
                    pa.array([[("where", one.where)] for one in rows], _MAP),
                    pa.array([float(one.times) for one in rows]),
                    pa.repeat("fault", len(rows)),
                ],
                schema=_SAMPLE_ARROW,
            )

    def clock(self, now_ms: int) -> Iterator[Any]:
        """A row that says what time it is."""
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([now_ms * 1000]).cast(_TS),
                pa.array([self._broker]),
                pa.array([""]),
                pa.array([[]], _MAP),
                pa.array([0.0]),
                pa.array(["clock"]),
            ],
            schema=_SAMPLE_ARROW,
        )
