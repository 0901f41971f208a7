"""The stream: alerts of a growing lake, files compacted meanwhile, a restart at a checkpoint, and how late it is."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from raybroker.analysis import names
from raybroker.analysis.export import LakeWriter, compact
from raybroker.analysis.follow import Batch, Follower
from tests.analysis.samples import START_MS

INTERVAL_S = 1.0


def scrape(dead: int, held_back: int = 0) -> bytes:
    at = '{cluster="c",broker="b1",destination="orders",type="queue"}'
    return (
        f"# TYPE {names.DEAD} counter\n{names.DEAD}{at} {dead}\n"
        f"# TYPE {names.HELD_BACK} gauge\n{names.HELD_BACK}{at} {held_back}\n"
        f"# TYPE other gauge\nother 1\n"
    ).encode()


class Seen:
    """What batches gave, and when; ``until`` waits for it."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.at: dict[int, float] = {}
        self._came = threading.Condition()

    def __call__(self, batch: Batch) -> None:
        with self._came:
            self.batches.append(batch)
            if batch.newest_ms:
                self.at[batch.newest_ms] = time.monotonic()
            self._came.notify_all()

    def changed(self) -> list[tuple[str, str]]:
        return [(one.state, one.name) for batch in self.batches for one in batch.changed]

    def until_read(self, ts_ms: int, timeout_s: float = 60.0) -> None:
        with self._came:
            assert self._came.wait_for(lambda: max(self.at, default=0) >= ts_ms, timeout_s), self.batches


def test_alerts_come_from_a_growing_lake_also_when_its_files_are_compacted(spark: Any, tmp_path: Path) -> None:
    lake, seen = tmp_path / "lake", Seen()
    writer = LakeWriter(lake, "b1", rotate_ms=0)
    writer.write(START_MS, scrape(0))
    writer.write(START_MS + 5000, scrape(0))
    follower = Follower(spark, lake, seen, interval_s=INTERVAL_S)
    try:
        seen.until_read(START_MS + 5000)
        writer.write(START_MS + 10_000, scrape(3))
        seen.until_read(START_MS + 10_000)
        compact(lake)
        writer.write(START_MS + 15_000, scrape(3, held_back=1))
        seen.until_read(START_MS + 15_000)
        path = next(lake.glob("date=*/broker=*/*.prom.gz"))
        path.with_name(f"{START_MS + 16_000}-{START_MS + 16_000}.prom").write_bytes(b"# scrape key=12 torn")
        writer.write(START_MS + 20_000, scrape(3))
        seen.until_read(START_MS + 20_000)
        follower.process_all()
    finally:
        follower.stop()
    assert seen.changed() == [
        ("raised", "dead messages"), ("raised", "flow control"), ("cleared", "dead messages"),
        ("cleared", "flow control"),
    ]  # fmt: skip
    assert sum(batch.samples for batch in seen.batches) == 10
    assert {fault.what for batch in seen.batches for fault in batch.faults} == {"corrupt"}


def test_a_stream_goes_on_at_its_checkpoint(spark: Any, tmp_path: Path) -> None:
    lake, counts = tmp_path / "lake", []
    writer = LakeWriter(lake, "b1", rotate_ms=0)
    for at in range(6):
        writer.write(START_MS + 1000 * at, scrape(at))
        if at % 2:
            seen = Seen()
            follower = Follower(spark, lake, seen, checkpoint=tmp_path / "checkpoint", once=True)
            assert follower.wait(60)
            counts.append(sum(batch.samples for batch in seen.batches))
    assert counts == [4, 4, 4]


def test_a_stream_is_at_most_two_intervals_behind(spark: Any, tmp_path: Path) -> None:
    lake, seen, written = tmp_path / "lake", Seen(), {}
    interval_s = 3.0
    writer = LakeWriter(lake, "b1", rotate_ms=0)
    writer.write(START_MS, scrape(0))
    follower = Follower(spark, lake, seen, interval_s=interval_s)
    try:
        seen.until_read(START_MS)
        for at in range(1, 4):
            ts = START_MS + 1000 * at
            writer.write(ts, scrape(at))
            written[ts] = time.monotonic()
            seen.until_read(ts)
    finally:
        follower.stop()
    late = sorted(seen.at[ts] - moment for ts, moment in written.items())
    assert late[len(late) // 2] <= 2 * interval_s, late
