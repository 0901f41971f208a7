"""The stream: alerts of a growing lake, files compacted meanwhile, a restart at a checkpoint, and how late it is."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from raybroker.analysis import names
from raybroker.analysis.follow import LakeFollower, ScrapeBatch, claim
from raybroker.analysis.lake.export import LakeWriter, compact
from raybroker.model.errors import ConfigError
from tests.analysis.samples import START_MS

INTERVAL_S = 1.0
NOW_MS = START_MS + 3_600_000


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
        self.batches: list[ScrapeBatch] = []
        self.at: dict[int, float] = {}
        self._came = threading.Condition()

    def __call__(self, batch: ScrapeBatch) -> None:
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
    follower = LakeFollower(spark, lake, seen, interval_s=INTERVAL_S, now_ms=NOW_MS)
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
        ("raised", "dead messages"),
        ("raised", "flow control"),
        ("cleared", "dead messages"),
        ("cleared", "flow control"),
    ]
    assert sum(batch.samples for batch in seen.batches) == 10
    assert {fault.what for batch in seen.batches for fault in batch.faults} == {"corrupt"}


def test_a_restart_goes_on_with_the_alerts_that_were_up_and_misses_nothing(spark: Any, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    writer = LakeWriter(lake, "b1", rotate_ms=0)

    def run() -> tuple[list[tuple[str, str, int]], list[tuple[str, int]], int]:
        seen = Seen()
        follower = LakeFollower(spark, lake, seen, checkpoint=tmp_path / "checkpoint", once=True, now_ms=NOW_MS)
        assert follower.wait(120)
        changed = [
            (one.state, one.name, (one.at_ms - START_MS) // 1000) for batch in seen.batches for one in batch.changed
        ]
        faults = [(one.what, one.times) for batch in seen.batches for one in batch.faults]
        return changed, faults, sum(batch.samples for batch in seen.batches)

    for at, dead in enumerate((0, 5, 5)):
        writer.write(START_MS + 1000 * at, scrape(dead, held_back=1))
    assert run() == (
        [("raised", "flow control", 0), ("raised", "dead messages", 1), ("cleared", "dead messages", 2)],
        [],
        6,
    )
    assert run() == ([], [], 0)
    # While nobody follows: messages die, producers go on, a clock is wrong, a second writer was late.
    for at, dead in ((3, 5), (4, 9), (5, 9)):
        writer.write(START_MS + 1000 * at, scrape(dead, held_back=int(at == 3)))
    writer.write(4_102_444_800_000, scrape(99))
    writer.write(START_MS + 1500, scrape(9))
    writer.write(START_MS + 6000, scrape(9))
    assert run() == (
        [("raised", "dead messages", 4), ("cleared", "flow control", 4), ("cleared", "dead messages", 5)],
        [("future", 1), ("late", 1)],
        10,
    )


def test_a_checkpoint_is_that_of_one_lake(tmp_path: Path) -> None:
    claim(tmp_path / "checkpoint", tmp_path / "lake")
    claim(tmp_path / "checkpoint", tmp_path / "lake")
    with pytest.raises(ConfigError, match="give this lake another folder"):
        claim(tmp_path / "checkpoint", tmp_path / "other")
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "offsets").mkdir()
    with pytest.raises(ConfigError, match="not written by this version"):
        claim(tmp_path / "strange", tmp_path / "lake")


def test_a_stream_is_at_most_two_intervals_behind(spark: Any, tmp_path: Path) -> None:
    lake, seen, written = tmp_path / "lake", Seen(), {}
    interval_s = 3.0
    writer = LakeWriter(lake, "b1", rotate_ms=0)
    writer.write(START_MS, scrape(0))
    follower = LakeFollower(spark, lake, seen, interval_s=interval_s, now_ms=NOW_MS)
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
