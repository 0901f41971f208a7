"""The DataFrame → DataFrame functions of jobs, each alone, on a few rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from raybroker.analysis import frames, names
from raybroker.analysis.jobs import backlog, balance, episodes, hot, latency, paths, prefetch, quality, traffic
from raybroker.analysis.reports import plots

STEP_MS = 60_000
SERIES = "broker string, destination string, type string, metric string, labels map<string,string>, ts timestamp"
KINDS = {
    "counters": "increase double, seconds double, rate double, resets bigint",
    "gauges": "mean double, last double, low double, high double",
    "histograms": "increase double, total double, edges array<double>, counts array<double>",
}
Make = Callable[..., Any]


@pytest.fixture
def make(spark: Any) -> Make:
    """Makes a frame: rows of (broker, destination, metric, step, values …) and labels by keyword."""

    def made(kind: str, *rows: Sequence[Any], **labels: str) -> Any:
        full = []
        for broker, destination, metric, step, *given in rows:
            ts = datetime.fromtimestamp(step * STEP_MS / 1000, UTC)
            usual = {"gauges": given * 4, "counters": [given[0], 60.0, given[0] / 60, 0], "histograms": []}[kind]
            full.append((broker, destination, "queue", metric, labels, ts, *given, *usual[len(given) :]))
        return spark.createDataFrame(full, f"{SERIES}, {KINDS[kind]}")

    return made


def rows(frame: Any, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.select(*columns).collect()]


def step_of(row: Any) -> int:
    return round(row.ts.timestamp() * 1000) // STEP_MS


def test_a_broker_that_was_not_scraped_did_not_stand_still(make: Make) -> None:
    """Both take 60 messages a step; nobody scraped b2 in steps 2 and 3."""
    counters = make(
        "counters",
        *[("b1", "q", names.IN, step, 60.0) for step in range(1, 6)],
        ("b2", "q", names.IN, 1, 60.0),
        ("b2", "q", names.IN, 4, 180.0, 180.0, 1.0),
        ("b2", "q", names.IN, 5, 60.0),
    )
    drawn = hot.over_time(counters, STEP_MS).collect()
    assert [(step_of(row), row.rate) for row in drawn] == [(step, 2.0) for step in range(1, 6)]


def test_a_broker_that_was_not_scraped_holds_what_it_held(make: Make) -> None:
    held = make(
        "gauges",
        *[("b1", "q", names.HELD, step, 10.0) for step in (1, 2, 3, 6)],
        *[("b2", "q", names.HELD, step, 5.0) for step in (1, 3, 6)],
        ("b2", "other", names.HELD, 2, 0.0),
    )
    drawn = backlog.held_over_time(held.where("destination = 'q'"), held, STEP_MS).collect()
    # b2 was scraped in step 2 and had no such destination; nobody was scraped in 4 and 5.
    assert [(step_of(row), row.held) for row in drawn] == [(1, 15.0), (2, 10.0), (3, 15.0), (6, 15.0)]
    gap = held.where("not (broker = 'b2' and destination = 'other')")
    drawn = backlog.held_over_time(gap.where("destination = 'q'"), gap, STEP_MS).collect()
    assert [(step_of(row), row.held) for row in drawn] == [(1, 15.0), (2, 15.0), (3, 15.0), (6, 15.0)]


def test_lines_have_holes_where_nothing_is_known_and_are_drawn_with_them() -> None:
    points = frames.with_holes([(0, 1.0), (STEP_MS, 2.0), (4 * STEP_MS, 3.0)], STEP_MS)
    assert points == [(0, 1.0), (STEP_MS, 2.0), (2 * STEP_MS, None), (4 * STEP_MS, 3.0)]
    nan = float("nan")
    assert plots.alone([1.0, 2.0, nan, 3.0]) == [3]
    assert plots.alone([1.0]) == [0]
    assert plots.alone([nan, 1.0, 2.0]) == []


def test_messages_by_destination_broker_and_unit(make: Make) -> None:
    counters = make(
        "counters",
        ("b1", "q", names.IN, 1, 60.0),
        ("b2", "q", names.IN, 1, 120.0),
        ("b1", "q", names.IN, 2, 0.0),
        ("b1", "t", names.IN, 2, 30.0),
        ("b1", "q", names.BYTES_IN, 1, 600.0),
        ("b1", "", names.BROKER_CPU, 1, 6.0),
    )
    assert rows(hot.by_destination(counters), "destination", "messages", "bytes", "peak", "brokers") == [
        ("q", 180.0, 600.0, 3.0, 2),
        ("t", 30.0, 0.0, 0.5, 1),
    ]
    assert rows(hot.by_broker(counters), "broker", "messages", "cpu_seconds") == [
        ("b2", 120.0, 0.0),
        ("b1", 90.0, 6.0),
    ]
    units = counters.unionByName(make("counters", ("b1", "q", names.UNITS, 1, 90.0), unit="u1"))
    assert rows(hot.by_unit(units), "unit", "part") == [("u1", 0.5)]


def test_trends_of_what_is_held(make: Make) -> None:
    gauges = make(
        "gauges",
        *[("b1", "q", names.HELD, step, 60.0 * step) for step in range(1, 6)],
        ("b1", "q", names.QUOTA_MESSAGES, 1, 1000.0),
        ("b1", "empty", names.HELD, 1, 0.0),
    )
    assert rows(backlog.trends(gauges, 0), "destination", "held", "slope", "quota_messages", "points") == [
        ("q", 300.0, 1.0, 1000.0, 5),
    ]
    assert rows(backlog.trends(gauges, 4 * STEP_MS), "points") == [(2,)]


def test_balance_of_producers_and_consumers(make: Make) -> None:
    counters = make("counters", ("b1", "q", names.IN, 1, 60.0), ("b1", "q", names.OUT, 1, 30.0))
    gauges = make(
        "gauges", *[("b1", "q", names.WAITING, step, 7.0) for step in (1, 2)], ("b1", "q", names.CONSUMERS, 2, 1.0)
    )
    asked = ("n_in", "n_out", "consumers", "abandoned_part", "waiting_now")
    assert rows(balance.balances(counters, gauges), *asked) == [(60.0, 30.0, 0.5, 0.5, 7.0)]


def test_steps_next_to_each_other_are_one_episode(make: Make) -> None:
    counters = make("counters", *[("b1", "q", names.FLOW_SECONDS, step, 5.0) for step in (1, 2, 5)])
    gauges = make("gauges", ("b1", "q", names.HELD_BACK, 3, 1.0), ("b1", "q", names.HELD_BACK, 4, 0.0))
    steps = episodes.held_back_steps(counters, gauges)
    found = episodes.islands(steps, "broker, destination", "sum(held) held_s", STEP_MS)
    assert rows(found, "seconds", "held_s") == [(180.0, 10.0), (60.0, 5.0)]


def test_histograms_are_put_together_edge_by_edge(make: Make) -> None:
    inf = float("inf")
    histograms = make(
        "histograms",
        ("b1", "q", names.SERVICE, 1, 4.0, 2.0, [0.1, inf], [1.0, 4.0]),
        ("b2", "q", names.SERVICE, 1, 6.0, 3.0, [0.1, inf], [2.0, 6.0]),
    )
    ((number, total, buckets),) = rows(frames.merged(histograms), "number", "total", "buckets")
    assert (number, total, [tuple(one) for one in buckets]) == (10.0, 5.0, [(0.1, 3.0), (inf, 10.0)])
    assert set(latency.STAGES.values()) <= names.ASKED


def test_prefetch_is_measured_by_consumers_and_service_time(make: Make) -> None:
    gauges = make("gauges", ("b1", "q", names.CONSUMERS, 1, 2.0), ("b2", "q", names.CONSUMERS, 1, 2.0), state="active")
    gauges = gauges.unionByName(make("gauges", ("b1", "q", names.LIMIT, 1, 200.0)))
    counters = make("counters", ("b1", "q", names.IN, 1, 10.0), ("b1", "q", names.BYTES_IN, 1, 1000.0))
    histograms = make("histograms", ("b1", "q", names.SERVICE, 1, 4.0, 2.0, [1.0], [4.0]))
    asked = ("consumers", "limit", "service_s", "message_bytes")
    assert rows(prefetch.measured(counters, gauges, histograms), *asked) == [(2.0, 100.0, 0.5, 100.0)]


@pytest.fixture(params=["generated code", "interpreted"])
def evaluated(request: pytest.FixtureRequest, spark: Any) -> Iterator[None]:
    """Interpreted, Spark computes a quotient of a row before it looks whether the row is wanted."""
    interpreted = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    given = interpreted if request.param == "interpreted" else {}
    before = {name: spark.conf.get(name) for name in given}
    for name, value in given.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


def test_an_empty_histogram_and_a_destination_without_messages_divide_nothing(make: Make, evaluated: None) -> None:
    gauges = make(
        "gauges",
        *[("b1", name, names.CONSUMERS, 1, 2.0) for name in ("q", "idle")],
        ("b1", "left", names.CONSUMERS, 1, 0.0),
        state="active",
    )
    limits = [("b1", name, names.LIMIT, 1, 100.0) for name in ("q", "idle", "left")]
    gauges = gauges.unionByName(make("gauges", *limits))
    counters = make(
        "counters", ("b1", "q", names.IN, 1, 0.0), ("b1", "q", names.BYTES_IN, 1, 0.0), ("b1", "q", names.UNITS, 1, 0.0)
    )
    empty = [("b1", name, names.SERVICE, 1, 0.0, 0.0, [1.0], [0.0]) for name in ("idle", "left")]
    histograms = make("histograms", ("b1", "q", names.SERVICE, 1, 4.0, 2.0, [1.0], [4.0]), *empty)
    asked = ("destination", "consumers", "service_s", "message_bytes")
    assert rows(prefetch.measured(counters, gauges, histograms), *asked) == [("q", 2.0, 0.5, None)]
    assert hot.by_unit(counters).collect() == []
    units = make("gauges", ("b1", "", names.PATH_UNITS, 1, 0.0), member="b1")
    assert rows(paths.skew(units), "skew") == [(None,)]


def test_paths_deliveries_restarts_and_clocks(make: Make) -> None:
    units = make("gauges", ("b1", "", names.PATH_UNITS, 1, 9.0), ("b1", "", names.PATH_UNITS, 2, 30.0), member="b1")
    units = units.unionByName(make("gauges", ("b1", "", names.PATH_UNITS, 2, 10.0), member="b2"))
    assert rows(paths.at_the_end(units), "member", "units") == [("b1", 30.0), ("b2", 10.0)]
    assert rows(paths.skew(units), "skew") == [(1.0,), (1.5,)]
    local = make("counters", ("b1", "q", names.DELIVERED, 1, 30.0), place="local")
    remote = make("counters", ("b1", "q", names.DELIVERED, 1, 10.0), place="remote")
    assert rows(traffic.by_place(local.unionByName(remote)), "local", "remote") == [(30.0, 10.0)]
    ways = make("counters", ("b1", "", names.ROUTED, 1, 5.0), consumer_broker="b2")
    assert rows(traffic.by_way(ways), "member", "home", "messages") == [("b1", "b2", 5.0)]
    anew = make("counters", ("b1", "", names.BROKER_IN, 1, 5.0, 60.0, 0.1, 1), ("b1", "", names.BROKER_IN, 2, 5.0))
    assert rows(quality.restarts(anew), "broker", "resets") == [("b1", 1)]
    clocks = make("gauges", *[("b1", "", names.CLOCK_OFFSET, step, float(step)) for step in (1, 2, 3)])
    assert rows(quality.clock_offsets(clocks), "offset", "least", "most") == [(2.0, 1.0, 3.0)]
