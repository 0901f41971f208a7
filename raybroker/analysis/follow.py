"""Alerts from a lake as it grows: Structured Streaming over ``raybroker_lake``, state in Spark.

A batch reads only the metrics that alerts need, from the files that came since the one before.  Brokers are evaluated
in Spark's workers, each with its own state (``alerting``); only alerts that changed come to the driver.  With a
checkpoint the stream goes on where it stopped, with the alerts that were up then; a batch that was shown is not shown
again, unless the end came between showing and noting it.  An alert is later than its scrape by the writer's rotation
and at most two intervals of batches.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from raybroker.analysis import alerting, alerts
from raybroker.analysis.alerts import Alert
from raybroker.analysis.lake.lake import LakeFault
from raybroker.model.errors import ConfigError

INTERVAL_S: Final = 5.0
PARTITIONS: Final = 4
"""Tasks that evaluate brokers; a checkpoint keeps its number."""
FORMAT: Final = 2
"""Version of what a checkpoint holds."""
END_S: Final = 10.0
"""How long a stream that ends waits for the batch under way."""
_NOTE: Final = "raybroker-follow.json"
_SHOWN: Final = "raybroker-shown.json"


@dataclass(frozen=True, slots=True)
class ScrapeBatch:
    """What one batch gave: alerts that changed, what was wrong with the input, samples, and the newest scrape."""

    number: int
    changed: list[Alert]
    faults: list[LakeFault]
    samples: int
    newest_ms: int


class LakeFollower:
    """A running stream. ``seen`` is called after every batch, in a thread of Spark.

    ``since_ms``: from when on, for a stream that does not go on at its ``checkpoint``.  ``once``: read what is there
    and end.  ``now_ms``: a fixed present, for tests and for lakes of the past; else the clock's.

    Raises ConfigError when the checkpoint is that of another lake or version.
    """

    def __init__(
        self,
        spark: Any,
        lake: Path,
        seen: Callable[[ScrapeBatch], None],
        *,
        since_ms: int = 0,
        interval_s: float = INTERVAL_S,
        checkpoint: Path | None = None,
        once: bool = False,
        now_ms: int | None = None,
    ) -> None:
        self._seen = seen
        self._busy = threading.Lock()
        self._shown = None if checkpoint is None else checkpoint / _SHOWN
        if checkpoint is not None:
            claim(checkpoint, lake)
        source = spark.readStream.format("raybroker_lake")
        options: dict[str, object] = {
            "path": lake.absolute(),
            "since_ms": since_ms,
            "metrics": ",".join(alerts.WANTED),
            "faults": "true",
            "clock": "true",
        }
        if now_ms is not None:
            options["now_ms"] = now_ms
        if once:
            options["batch_bytes"] = 1 << 62
        for key, value in options.items():
            source = source.option(key, str(value))
        evaluated = (
            source.load()
            .selectExpr(*alerting.COLUMNS)
            .groupBy("broker")
            .applyInPandasWithState(alerting.evaluate, alerting.RESULT, alerting.STATE, "append", "NoTimeout")
        )
        writer = evaluated.writeStream.outputMode("append").foreachBatch(self._batch)
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{interval_s} seconds")
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", checkpoint.absolute().as_uri())
        with _partitions(spark):
            self._query = writer.start()

    def _batch(self, frame: Any, number: int) -> None:
        with self._busy:
            changed: list[Alert] = []
            faults: list[LakeFault] = []
            samples = newest_ms = 0
            for row in frame.collect():
                body = json.loads(row.body)
                if row.kind == "alert":
                    changed.append(Alert(*body))
                elif row.kind == "fault":
                    faults.append(LakeFault(*body))
                else:
                    samples, newest_ms = samples + body[0], max(newest_ms, body[1])
            if self._is_new(number):
                changed.sort(key=lambda one: one.at_ms)
                self._seen(ScrapeBatch(number, changed, alerting.summed(faults), samples, newest_ms))
                if changed and self._shown is not None:
                    _write(self._shown, {"batch": number})

    def _is_new(self, number: int) -> bool:
        """Whether a batch was not shown before the stream was started again."""
        if self._shown is None or not self._shown.exists():
            return True
        return number > int(json.loads(self._shown.read_text(encoding="utf-8"))["batch"])

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the stream ends; return False when it still runs after ``timeout_s``. Raises what ended it
        wrongly."""
        return bool(self._query.awaitTermination(timeout_s) if timeout_s is not None else self._until_end())

    def _until_end(self) -> bool:
        self._query.awaitTermination()
        return True

    @property
    def running(self) -> bool:
        """Whether the stream goes on."""
        return bool(self._query.isActive)

    def process_all(self) -> None:
        """Wait until everything that is in the lake now has been looked at."""
        self._query.processAllAvailable()

    def stop(self) -> None:
        """End the stream, after the batch under way."""
        idle = self._busy.acquire(timeout=END_S)
        try:
            self._query.stop()
        finally:
            if idle:
                self._busy.release()


@contextmanager
def _partitions(spark: Any) -> Iterator[None]:
    """A stream takes the settings of its session when it starts."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, str(PARTITIONS))
    try:
        yield
    finally:
        spark.conf.set(name, before)


def claim(checkpoint: Path, lake: Path) -> None:
    """Note in a checkpoint whose it is. Raises ConfigError when it is that of another lake or version."""
    note = checkpoint / _NOTE
    mine = {"format": FORMAT, "lake": str(lake.absolute())}
    if note.exists():
        found = json.loads(note.read_text(encoding="utf-8"))
        if found != mine:
            raise ConfigError(f"the checkpoint {checkpoint} is that of {found['lake']}: give this lake another folder")
    elif checkpoint.is_dir() and any(checkpoint.iterdir()):
        raise ConfigError(f"the checkpoint {checkpoint} was not written by this version: give an empty folder")
    else:
        checkpoint.mkdir(parents=True, exist_ok=True)
        _write(note, mine)


def _write(path: Path, content: object) -> None:
    hidden = path.with_name(f".{path.name}")
    hidden.write_text(json.dumps(content) + "\n", encoding="utf-8")
    hidden.replace(path)


def follow(follower: LakeFollower, stop: threading.Event, poll_s: float = 0.5) -> None:
    """Run until ``stop`` is set or the stream ends by itself. Raises what ended it wrongly."""
    try:
        while not stop.wait(poll_s) and follower.running:
            pass
        if not stop.is_set():
            follower.wait()
    finally:
        follower.stop()
