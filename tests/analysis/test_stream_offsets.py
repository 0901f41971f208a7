"""Which files are new to a stream, which are late, and that no broker waits for another; without Spark running."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raybroker.analysis import names
from raybroker.analysis.alerts import AlertSample, Watch
from raybroker.analysis.lake import lake as layout
from raybroker.analysis.lake.export import LakeWriter, compact
from tests.analysis.samples import START_MS

pytest.importorskip("pyspark")

from raybroker.analysis.lake.stream import LakeStream

NOW_MS = START_MS + 3_600_000
FAR_MS = 4_102_444_800_000
"""The year 2100."""


class Stream:
    """Asks a stream's source as Spark does, and starts it anew at its last offset."""

    def __init__(self, lake: Path, **options: object) -> None:
        self.options = {"path": str(lake), "now_ms": str(NOW_MS), "faults": "true", "clock": "true"}
        self.options |= {key: str(value) for key, value in options.items()}
        self.reader = LakeStream(self.options)
        self.offset = self.reader.initialOffset()

    def restart(self) -> None:
        self.reader = LakeStream(self.options)

    def batch(self) -> list[tuple[str, str, Any]]:
        """(broker, type, value) of each row; the value of a clock is its time in seconds from the start."""
        end = self.reader.latestOffset(self.offset, None)
        if end == self.offset:
            return []
        rows = [
            row
            for part in self.reader.partitions(self.offset, end)
            for batch in self.reader.read(part)
            for row in batch.to_pylist()
        ]
        self.offset = end
        return sorted(
            (
                row["broker"],
                row["metric"] if row["type"] == "fault" else row["type"],
                row["ts"].timestamp() - START_MS / 1000 if row["type"] == "clock" else row["value"],
            )
            for row in rows
        )

    def values(self) -> list[tuple[str, float]]:
        return [(broker, value) for broker, kind, value in self.batch() if kind == "untyped"]


def write(lake: Path, broker: str, *stamps: int, rotate_ms: int = 0) -> None:
    writer = LakeWriter(lake, broker, rotate_ms=rotate_ms)
    for ts in stamps:
        writer.write(ts, f"{names.DEAD} {(ts - START_MS) // 1000}\n".encode())
    writer.close()


def test_each_scrape_comes_once_also_after_compaction_and_a_restart(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    assert stream.batch() == []
    write(tmp_path, "b1", START_MS, START_MS + 1000)
    assert stream.values() == [("b1", 0.0), ("b1", 1.0)]
    write(tmp_path, "b1", START_MS + 2000)
    compact(tmp_path)
    assert stream.batch() == [("b1", "clock", 2.0), ("b1", "untyped", 2.0)]
    assert stream.batch() == []
    stream.restart()
    assert stream.batch() == []
    write(tmp_path, "b1", START_MS + 3000)
    assert stream.values() == [("b1", 3.0)]


def test_a_scrape_from_the_future_silences_nobody_and_is_counted(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    write(tmp_path, "b1", START_MS, FAR_MS)
    write(tmp_path, "b2", START_MS)
    assert [row for row in stream.batch() if row[1] != "clock"] == [
        ("b1", "future", 1.0),
        ("b1", "untyped", 0.0),
        ("b2", "untyped", 0.0),
    ]
    for restarted in (False, True):
        if restarted:
            stream.restart()
        at = START_MS + (2000 if restarted else 1000)
        write(tmp_path, "b1", at)
        write(tmp_path, "b2", at)
        assert [broker for broker, _ in stream.values()] == ["b1", "b2"]


def test_time_goes_on_when_all_brokers_fall_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise nobody would notice, since each broker's silence is seen by the scrapes of the others."""
    present = [START_MS]
    monkeypatch.setattr(LakeStream, "_now_ms", lambda self: present[0])
    stream = Stream(tmp_path)
    del stream.options["now_ms"]
    stream.restart()
    present[0] = FAR_MS
    assert stream.batch() == [], "nobody was there before"
    present[0] = START_MS
    watches = {"b1": Watch(), "b2": Watch()}

    def raised() -> list[tuple[str, str, str]]:
        rows = [(broker, round(1000 * value) + START_MS) for broker, kind, value in stream.batch() if kind == "clock"]
        changed = [one for broker, now_ms in rows for one in watches[broker].step([], now_ms)]
        return [(one.state, one.name, one.subject) for one in changed]

    for broker, watch in watches.items():
        write(tmp_path, broker, START_MS, START_MS + 5_000)
        watch.step([AlertSample(START_MS + at, broker, names.DEAD, (), 0.0) for at in (0, 5_000)])
    assert raised() == []
    for second in range(5, 185, 3):  # A file is complete after a minute: what was scraped may not be there yet.
        present[0] = START_MS + second * 1000
        assert raised() == [], second
    present[0] = START_MS + 240_000
    assert sorted(raised()) == [("raised", "silent", "b1"), ("raised", "silent", "b2")]
    assert raised() == []
    stream.restart()
    present[0] += 3 * 3_600_000
    assert sorted(raised()) == [("cleared", "silent", "b1"), ("cleared", "silent", "b2")]


def test_a_broker_whose_files_come_later_is_read_all_the_same(tmp_path: Path) -> None:
    stream = Stream(tmp_path, now_ms=START_MS + 10 * layout.DAY_MS)
    write(tmp_path, "b1", START_MS + 9 * layout.DAY_MS)
    write(tmp_path, "b2", START_MS)
    assert len(stream.values()) == 2
    write(tmp_path, "b2", START_MS + 1000, START_MS + 2 * layout.DAY_MS)
    assert [broker for broker, _ in stream.values()] == ["b2", "b2"]


def copied(lake: Path, tmp_path: Path, broker: str, ts_ms: int) -> None:
    """A file that another writer made, put into the lake."""
    write(tmp_path / "elsewhere", broker, ts_ms)
    name = layout.file_name(ts_ms, ts_ms)
    made = layout.folder_of(lake, ts_ms, broker) / name
    made.parent.mkdir(parents=True, exist_ok=True)
    (layout.folder_of(tmp_path / "elsewhere", ts_ms, broker) / name).rename(made)


@pytest.mark.parametrize("back_ms", [5000, layout.DAY_MS, 9 * layout.DAY_MS])
def test_files_that_come_late_are_counted_once(tmp_path: Path, back_ms: int) -> None:
    lake = tmp_path / "lake"
    newest = START_MS + 10 * layout.DAY_MS
    stream = Stream(lake, now_ms=newest)
    write(lake, "b1", newest - back_ms + 1000, newest)
    assert len(stream.values()) == 2
    copied(lake, tmp_path, "b1", newest - back_ms)
    assert stream.batch() == [("b1", "late", 1.0)]
    assert stream.batch() == []
    write(lake, "b1", newest + 1000)
    assert [kind for _, kind, _ in stream.batch()] == ["clock", "untyped"]


def test_a_stream_begins_where_it_is_told_and_a_later_start_does_not_move_that(tmp_path: Path) -> None:
    write(tmp_path, "b1", START_MS, START_MS + 1000)
    stream = Stream(tmp_path, since_ms=START_MS + 1000)
    assert stream.values() == [("b1", 1.0)]
    write(tmp_path, "b1", START_MS + 2000)
    stream.options["since_ms"] = str(START_MS + 50_000)
    stream.restart()
    assert stream.values() == [("b1", 2.0)]


def test_batches_are_bounded_and_brokers_come_forward_together(tmp_path: Path) -> None:
    for broker in ("b1", "b2"):
        write(tmp_path, broker, *(START_MS + 1000 * at for at in range(5)))
    stream = Stream(tmp_path, batch_bytes=1)
    batches = [stream.batch() for _ in range(6)]
    assert [[row[2] for row in batch if row[1] == "untyped"] for batch in batches] == [
        *([float(at)] * 2 for at in range(5)),
        [],
    ]
