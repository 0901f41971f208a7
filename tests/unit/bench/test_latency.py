"""Latency counts agree with the sorted values and with HdrHistogram, to three digits."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import pytest

from raybroker.bench.latency import VALUE_MAX_US, LatencyCounts


def test_small_values_are_exact() -> None:
    counts = LatencyCounts()
    for value in range(1, 101):
        counts.record(value)
    assert [counts.percentile_us(percent) for percent in (1, 50, 90, 99, 100)] == [1, 50, 90, 99, 100]
    assert counts.mean_us() == 50.5


def test_large_values_are_right_within_a_thousandth_and_the_highest_is_exact() -> None:
    values = sorted(random.Random(7).randrange(1, 10_000_000) for _ in range(5000))
    counts = LatencyCounts()
    for value in values:
        counts.record(value)
    for percent in (10, 50, 90, 99):
        exact = values[int(len(values) * percent / 100) - 1]
        assert abs(counts.percentile_us(percent) - exact) <= exact / 1000
    assert counts.percentile_us(100) == values[-1]


def test_counts_of_two_workers_add_up() -> None:
    one, other = LatencyCounts(), LatencyCounts()
    one.record(10, times=3)
    other.record(5000)
    one.merge(other)
    assert (one.total, one.percentile_us(75), one.percentile_us(100)) == (4, 10, 5000)


def test_values_outside_the_range_are_counted_at_its_ends() -> None:
    counts = LatencyCounts()
    counts.record(-5)
    counts.record(VALUE_MAX_US * 2)
    assert (counts.percentile_us(50), counts.percentile_us(100)) == (0, VALUE_MAX_US)


def test_nothing_recorded_is_zero() -> None:
    counts = LatencyCounts()
    assert (counts.total, counts.percentile_us(99), counts.mean_us()) == (0, 0, 0.0)


def test_counts_travel_to_another_process() -> None:
    counts = LatencyCounts()
    counts.record(123_457, times=2)
    again = pickle.loads(pickle.dumps(counts))
    assert (again.total, again.percentile_us(100)) == (2, 123_457)


def test_the_hgrm_file_has_the_percentiles_in_microseconds(tmp_path: Path) -> None:
    pytest.importorskip("hdrh", reason="the package hdrhistogram is not installed")
    counts = LatencyCounts()
    for value in range(1000, 101_000, 1000):
        counts.record(value)
    counts.write_hgrm(tmp_path / "latency.hgrm")
    lines = (tmp_path / "latency.hgrm").read_text().splitlines()
    assert lines[0].split() == ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
    rows = [line.split() for line in lines if line[:1] == " " and "Value" not in line]
    for value, _percentile, total, *_ in rows:
        assert float(value) == pytest.approx(1000 * int(total), rel=0.002)
    assert int(rows[-1][2]) == 100
