"""The load generator over a queue in memory: what it sends, counts and reports."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from raybroker.bench import LoadError, LoadPlan, LoadReport, Progress, run_load
from tests.unit.bench.fake_broker import FakeConnection


def run(connection: FakeConnection, **plan: Any) -> LoadReport:
    given = {"duration_seconds": 0.2, "warmup_seconds": 0.05, "drain_seconds": 5.0, **plan}
    return run_load(LoadPlan(**given), connect=lambda _plan: connection, in_threads=True)


@pytest.mark.parametrize(
    ("batch", "window", "call"), [(1, 1, "send"), (10, 1, "send_many"), (1, 8, "send_async"), (10, 8, "send_async")]
)
def test_batch_and_window_choose_the_call(batch: int, window: int, call: str) -> None:
    connection = FakeConnection()
    report = run(connection, batch=batch, window=window, rate_per_second=5000)
    assert connection.calls & {"send", "send_many", "send_async"} == {call}
    assert report.sent == report.confirmed == report.received > 0


def test_everything_sent_is_received_and_the_last_batch_of_each_take_acknowledged() -> None:
    connection = FakeConnection()
    report = run(connection, rate_per_second=2000, producers=2, consumers=2, prefetch=7, persistent=False)
    assert report.received == report.sent
    assert report.foreign == report.redelivered == 0
    assert connection.acknowledged
    assert {"start", "session client", "non-persistent", "prefetch 7"} <= connection.calls


def test_a_rate_that_is_kept_sends_rate_times_time_messages() -> None:
    report = run(FakeConnection(), rate_per_second=1000, duration_seconds=0.4, warmup_seconds=0.1)
    assert report.sent == 500
    assert report.latencies["end_to_end"].total == report.latencies["confirm"].total == 400


def test_a_producer_that_stalls_shows_it_in_the_latency_from_the_due_time_only() -> None:
    stalled = threading.Event()

    def stall_once() -> None:
        if not stalled.is_set():
            stalled.set()
            threading.Event().wait(0.3)

    report = run(FakeConnection(stall_once), rate_per_second=1000, duration_seconds=0.5, warmup_seconds=0.0)
    assert report.sent == 500
    assert report.latencies["confirm_intended"].percentile_us(50) > 10 * report.latencies["confirm"].percentile_us(50)
    assert report.latencies["send_delay"].percentile_us(50) > 50_000
    assert report.latencies["confirm"].percentile_us(50) < 50_000


def test_messages_of_another_run_are_counted_apart_and_have_no_latency() -> None:
    connection = FakeConnection()
    connection.waiting.put(b"short")
    connection.waiting.put(bytes(100))
    report = run(connection, producers=0)
    assert (report.received, report.foreign) == (2, 2)
    assert report.latencies["end_to_end"].total == 0


def test_a_producer_that_fails_ends_the_run_with_its_own_error() -> None:
    def fail() -> None:
        raise OSError("the disk is full")

    with pytest.raises(LoadError, match="the disk is full"):
        run(FakeConnection(fail))


def test_progress_is_told_with_growing_counts() -> None:
    told: list[Progress] = []
    plan = LoadPlan(duration_seconds=0.3, warmup_seconds=0.0, rate_per_second=1000)
    connection = FakeConnection()
    run_load(plan, connect=lambda _plan: connection, in_threads=True, progress=told.append)
    assert told[-1].sent == 300
    assert [step.sent for step in told] == sorted(step.sent for step in told)


def test_the_report_is_written_as_json_text_and_hgrm(tmp_path: Path) -> None:
    report = run(FakeConnection(), rate_per_second=1000)
    report.write_json(tmp_path / "load.json")
    found = json.loads((tmp_path / "load.json").read_text())
    assert found["plan"]["rate_per_second"] == 1000
    assert found["latencies"]["end_to_end"]["count"] == 200
    assert "received, from the due time" in report.text()

    pytest.importorskip("hdrh", reason="the package hdrhistogram is not installed")
    written = report.write_hgrm(tmp_path / "load.hgrm")
    assert [path.name for path in written] == ["load.hgrm", "load.from-send.hgrm"]
    for path in written:
        assert path.read_text().lstrip().startswith("Value     Percentile TotalCount 1/(1-Percentile)")


def test_a_rate_that_was_not_kept_is_said() -> None:
    report = LoadReport(LoadPlan(rate_per_second=1000, duration_seconds=1), confirmed_measured=900)
    assert not report.kept_up
    assert "NOT kept" in report.text()
