"""Follows a lake as it grows and raises alerts: Structured Streaming over ``raybroker_lake``, state in ``alerts``.

A batch reads only the metrics that alerts need, from the files that came since the one before.  With a checkpoint the
stream goes on where it stopped; the state of alerts is not kept, it comes back with the next scrapes.  An alert is
later than its scrape by the writer's rotation and at most two intervals of batches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from raybroker.analysis import alerts
from raybroker.analysis.alerts import Alert, Sample, Watch
from raybroker.analysis.lake import Fault

INTERVAL_S: Final = 5.0
ROWS_MAX: Final = 2_000_000
"""More samples than this in one batch are not looked at one by one; the stream is far behind then."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch gave: alerts that changed, what was wrong with the input, samples, and the newest scrape."""

    number: int
    changed: list[Alert]
    faults: list[Fault]
    samples: int
    newest_ms: int


class Follower:
    """A running stream. ``seen`` is called after every batch, in a thread of Spark."""

    def __init__(
        self, spark: Any, lake: Path, seen: Callable[[Batch], None], *, since_ms: int = 0,
        interval_s: float = INTERVAL_S, checkpoint: Path | None = None, once: bool = False,
    ) -> None:  # fmt: skip
        self.watch = Watch()
        self._seen = seen
        source = spark.readStream.format("raybroker_lake")
        options = {"path": lake, "since_ms": since_ms, "metrics": ",".join(alerts.WANTED), "faults": "true"}
        for key, value in options.items():
            source = source.option(key, str(value))
        writer = source.load().writeStream.foreachBatch(self._batch)
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{interval_s} seconds")
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", str(checkpoint))
        self._query = writer.start()

    def _batch(self, frame: Any, number: int) -> None:
        rows = frame.limit(ROWS_MAX).collect()
        samples: list[Sample] = []
        faults: dict[tuple[str, str], int] = {}
        for row in rows:
            if row.type == "fault":
                key = (row.metric, row.labels["where"])
                faults[key] = faults.get(key, 0) + int(row.value)
            else:
                ts = round(row.ts.timestamp() * 1000)
                labels = tuple(sorted(row.labels.items()))
                samples.append(Sample(ts, row.broker, row.metric, labels, row.value))
        found = [Fault(what, where, count) for (what, where), count in sorted(faults.items())]
        changed = self.watch.step(samples)
        self._seen(Batch(number, changed, found, len(samples), max((one.ts_ms for one in samples), default=0)))

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until the stream ends; False when it still runs after ``timeout_s``. Raises what ended it wrongly."""
        return bool(self._query.awaitTermination(timeout_s) if timeout_s is not None else self._until_end())

    def _until_end(self) -> bool:
        self._query.awaitTermination()
        return True

    def process_all(self) -> None:
        """Until everything that is in the lake now has been looked at."""
        self._query.processAllAvailable()

    def stop(self) -> None:
        """End the stream."""
        self._query.stop()


def follow(follower: Follower, stop: threading.Event, poll_s: float = 1.0) -> None:
    """Run until ``stop`` is set or the stream ends by itself."""
    try:
        while not stop.is_set() and not follower.wait(poll_s):
            pass
    finally:
        follower.stop()
