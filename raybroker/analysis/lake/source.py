"""The Spark data source ``raybroker_lake``: every sample of a lake, in batch and as a stream.

Columns: ts, broker, metric, labels, value, type; one row a sample.  Options: ``path``;
``since_ms``, ``until_ms``, ``now_ms``; ``metrics``, a list with commas of the names to give; ``faults`` "true": also
rows of type ``fault`` with what was wrong (metric), where (a label) and how often (value).  Of a stream also ``clock``
"true": with each batch a row of type ``clock`` for each broker, whose time is the newest scrape of all of them, or
goes on without scrapes when none comes for minutes; and
``batch_bytes``, how much of the lake one batch reads.  A stream starts at ``since_ms``; see ``stream``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from raybroker.analysis.lake import lake as layout
from raybroker.analysis.lake import plan
from raybroker.analysis.lake.lake import LakeFault
from raybroker.analysis.lake.plan import LakePart, PlanWindow, Walk
from raybroker.analysis.lake.sample_batches import SAMPLE_SCHEMA, SampleBatches
from raybroker.analysis.lake.stream import LakeStream

LAKE: Final = "raybroker_lake"
FOREVER_MS: Final = 1 << 52


class PartOfLake(InputPartition):
    """A part of the lake as Spark passes it to a task."""

    def __init__(self, part: LakePart) -> None:
        super().__init__(part)
        self.part = part


def window_of(options: Mapping[str, str]) -> PlanWindow:
    """The window of a source's options."""
    return PlanWindow(
        int(options.get("since_ms", "0")),
        int(options.get("until_ms", str(FOREVER_MS))),
        int(options.get("now_ms", str(FOREVER_MS))),
    )


def parts_of(options: Mapping[str, str]) -> tuple[list[LakePart], list[LakeFault]]:
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
        return made or [PartOfLake(LakePart("", ()))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, PartOfLake)
        walk = Walk(partition.part, window_of(self._options))
        maker = SampleBatches(partition.part.broker, self._options)
        for piece in walk.pieces():
            if not piece.baseline:
                yield from maker.batches(piece.stamps_ms, piece.bodies)
        yield from maker.fault_batch(walk.faults)
