"""The decisions of jobs and alerts that need no Spark: quantiles, prefetch advice, unusual hours, alerts, plots."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.analysis import names
from raybroker.analysis.alerts import AlertSample, Watch
from raybroker.analysis.jobs import balance, hot
from raybroker.analysis.jobs.anomalies import HOUR_MS, unusual
from raybroker.analysis.jobs.prefetch import advise, memory_bytes
from raybroker.analysis.reports import plots
from raybroker.analysis.reports.answer import (
    Bars,
    Finding,
    Lines,
    Matrix,
    by_harm,
    due,
    duration,
    held_back,
    lost,
    number,
)
from raybroker.analysis.tables import POINTS_MAX, STEPS_MS, quantile, step_for
from raybroker.client.consumer.prefetch.flow_control import memory_bytes_needed

INF = math.inf


def test_quantiles_are_interpolated_inside_their_bucket() -> None:
    edges, counts = [0.1, 0.5, INF], [10.0, 30.0, 40.0]
    assert quantile(edges, counts, 0.5) == pytest.approx(0.3)
    assert quantile(edges, counts, 0.25) == pytest.approx(0.1)
    assert quantile(edges, counts, 0.99) == 0.5
    assert quantile(edges, [0.0, 0.0, 0.0], 0.5) is None
    assert quantile([], [], 0.5) is None
    assert quantile([0.0, 1.0, INF], [4.0, 4.0, 4.0], 0.5) == 0.0


@given(st.lists(st.floats(0.0, 10.0), min_size=30, max_size=200), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_quantile_is_in_the_bucket_where_the_value_is(values: list[float], q: float) -> None:
    edges = [0.5, 1.0, 2.0, 5.0, 10.0, INF]
    got = quantile(edges, [float(sum(value <= edge for value in values)) for edge in edges], q)
    exact = sorted(values)[math.ceil(q * len(values)) - 1]
    assert got is not None
    low, high = (
        (0.0, *edges)[edges.index(next(edge for edge in edges if exact <= edge))],
        next(edge for edge in edges if exact <= edge),
    )
    assert low <= got <= high


@given(st.floats(1e-6, 10.0), st.floats(1e-5, 1.0))
def test_advice_keeps_a_consumer_busy_while_more_is_on_its_way_and_no_more(
    service_s: float, round_trip_s: float
) -> None:
    limit, percent = advise(service_s, round_trip_s)
    left = limit * percent // 100
    if limit < 10_000:
        assert left + 1 >= min(2 * round_trip_s / service_s, 0.9 * limit)
        assert limit <= max(2, 2 * 2.6 * max(1.0, 2 * round_trip_s / service_s))
    assert limit >= 2
    assert 10 <= percent <= 90


def test_memory_is_that_of_the_client_library() -> None:
    assert memory_bytes(2, 1000, 10_240) == memory_bytes_needed(2, 1000, 10_240) == 40_960_000


def test_an_hour_is_unusual_against_the_same_hour_of_other_days() -> None:
    busy = {day * 24 * HOUR_MS + hour * HOUR_MS: 500.0 if hour == 9 else 3.0 for day in range(7) for hour in range(24)}
    assert unusual(busy, by_day=True) == []
    odd = 3 * 24 * HOUR_MS + 4 * HOUR_MS
    ((ts, value, usual, score),) = unusual({**busy, odd: 120.0}, by_day=True)
    assert (ts, value, usual) == (odd, 120.0, 3.0)
    assert score > 5
    assert len(unusual({hour * HOUR_MS: 0.0 for hour in range(5)} | {5 * HOUR_MS: 80.0}, by_day=False)) == 1
    assert unusual({0: 0.0, HOUR_MS: 80.0}, by_day=False) == []


@given(st.integers(1, 40 * 86_400_000))
def test_steps_are_the_shortest_with_few_enough_points(span_ms: int) -> None:
    step = step_for(span_ms)
    assert span_ms / step <= POINTS_MAX or step == STEPS_MS[-1]
    assert step == STEPS_MS[0] or span_ms / STEPS_MS[STEPS_MS.index(step) - 1] > POINTS_MAX
    assert step_for(span_ms, 300_000) >= 900_000


def test_steps_divide_a_day() -> None:
    assert [step for step in STEPS_MS if 86_400_000 % step] == []


def sample(ts: int, metric: str, value: float, broker: str = "b1", **labels: str) -> AlertSample:
    return AlertSample(ts, broker, metric, tuple(sorted(labels.items())), value)


def told(changed: list[object]) -> list[tuple[str, str, str]]:
    return [(getattr(one, "state"), getattr(one, "name"), getattr(one, "subject")) for one in changed]  # noqa: B009


def test_an_alert_is_raised_once_and_cleared_when_it_is_over() -> None:
    watch = Watch()
    at = {"destination": "orders", "type": "queue"}
    assert watch.step([sample(0, names.DEAD, 5, **at)]) == []
    assert told(watch.step([sample(10, names.DEAD, 7, **at)])) == [("raised", "dead messages", "orders on b1")]
    assert watch.step([sample(20, names.DEAD, 9, **at)]) == []
    assert told(watch.step([sample(30, names.DEAD, 9, **at)])) == [("cleared", "dead messages", "orders on b1")]
    assert told(watch.step([sample(40, names.DEAD, 3, **at)])) == [("raised", "dead messages", "orders on b1")]


def test_every_scrape_of_a_batch_is_evaluated() -> None:
    at = {"destination": "orders", "type": "queue"}
    watch = Watch()
    changed = watch.step([sample(ts, names.DEAD, value, **at) for ts, value in ((0, 0), (10, 5), (20, 5))])
    assert told(list(changed)) == [
        ("raised", "dead messages", "orders on b1"),
        ("cleared", "dead messages", "orders on b1"),
    ]
    assert [(one.at_ms, one.since_ms) for one in changed] == [(10, 10), (20, 10)]
    spike = watch.step([sample(ts, names.HELD_BACK, value, **at) for ts, value in ((30, 0), (40, 1), (50, 0))])
    assert [(one.state, one.name, one.at_ms) for one in spike] == [
        ("raised", "flow control", 40),
        ("cleared", "flow control", 50),
    ]


BATCHES = st.lists(st.integers(0, 12), max_size=4, unique=True).map(sorted)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=14), BATCHES)
def test_alerts_do_not_depend_on_how_scrapes_are_cut_into_batches_or_on_restarts(
    scrapes: list[tuple[int, int]], cuts: list[int]
) -> None:
    at = {"destination": "orders", "type": "queue"}
    dead = 0
    rows: list[list[AlertSample]] = []
    for ts, (rose, held) in enumerate(scrapes):
        dead += rose
        rows.append([sample(ts, names.DEAD, dead, **at), sample(ts, names.HELD_BACK, held, **at)])
    whole = Watch().step(one for scrape in rows for one in scrape)
    watch, parts = Watch(), []
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        watch = Watch.of_json(watch.to_json())
        parts += watch.step(one for scrape in rows[start:end] for one in scrape)
    assert parts == whole


def test_impossible_values_are_counted_and_change_nothing() -> None:
    at = {"destination": "orders", "type": "queue"}
    watch = Watch()
    watch.step([sample(0, names.DEAD, 5, **at)])
    for ts, value in enumerate((math.nan, INF, -INF, -1.0, 1e308), start=1):
        assert watch.step([sample(ts, names.DEAD, value, **at), sample(ts, names.MEMORY_LIMIT, 100)]) == []
        assert [(fault.what, fault.times) for fault in watch.faults] == [("impossible value", 1)]
    assert watch.step([sample(9, names.DEAD, 5, **at)]) == []
    assert watch.faults == []


def test_states_of_destinations_and_brokers_are_told() -> None:
    at = {"destination": "orders", "type": "queue"}
    watch = Watch()
    changed = watch.step(
        [
            sample(0, names.HELD_BACK, 1, **at),
            sample(0, names.QUOTA_USED, 0.95, **at),
            sample(0, names.WAITING, 4, **at),
            sample(0, names.CONSUMERS, 0, state="active", **at),
            sample(0, names.CONSUMERS, 3, state="backup", **at),
            sample(0, names.OLDEST_AGE, 4000, **at),
            sample(0, names.MEMORY_USED, 92, process="host"),
            sample(0, names.MEMORY_USED, 95, process="broker"),
            sample(0, names.MEMORY_LIMIT, 100),
            sample(0, names.UNREACHABLE, 1),
            sample(0, names.STORE_OVERLOADED, 1),
            sample(0, names.HALTED, 1, **at),
        ]
    )
    assert sorted(name for _, name, _ in told(list(changed))) == [
        "flow control",
        "halted",
        "hosts unreachable",
        "memory",
        "near quota",
        "no consumers",
        "old messages",
        "slow disk",
    ]
    assert len(watch.up) == 8


@pytest.mark.parametrize("used", [None, 40.0])
def test_memory_is_what_counts_against_the_limit_and_resident_where_nothing_else_is_known(used: float | None) -> None:
    counted = [] if used is None else [sample(0, names.MEMORY_USED, used, process=one) for one in ("broker", "host")]
    changed = Watch().step(
        [
            *counted,
            sample(0, names.RESIDENT, 60, process="host"),
            sample(0, names.RESIDENT, 60, process="broker"),
            sample(0, names.MEMORY_LIMIT, 100),
        ]
    )
    assert [alert.name for alert in changed] == (["memory"] if used is None else [])


def test_a_series_that_is_gone_no_longer_raises_and_late_samples_change_nothing() -> None:
    at = {"destination": "t", "type": "queue"}
    watch = Watch()
    watch.step([sample(0, names.HELD_BACK, 1, **at), sample(0, names.MEMORY_LIMIT, 100)])
    assert told(watch.step([sample(5, names.MEMORY_LIMIT, 100)])) == [("cleared", "flow control", "t on b1")]
    assert watch.step([sample(0, names.HELD_BACK, 1, **at), sample(5, names.HELD_BACK, 1, **at)]) == []
    assert [fault.what for fault in watch.faults] == ["late", "duplicate"]


def test_a_broker_that_falls_silent_is_told_when_the_others_go_on() -> None:
    watch = Watch()
    changed: list[object] = []
    for ts in range(0, 200_000, 5000):
        both = [sample(ts, names.MEMORY_LIMIT, 100, "b2")]
        changed += watch.step(both if ts > 50_000 else [*both, sample(ts, names.MEMORY_LIMIT, 100)])
    assert told(changed) == [("raised", "silent", "b1")]
    assert told(list(watch.step([sample(300_000, names.MEMORY_LIMIT, 100)]))) == [
        ("cleared", "silent", "b1"),
        ("raised", "silent", "b2"),
    ]


def test_a_silent_broker_is_told_by_the_time_of_others_and_forgotten_after_an_hour() -> None:
    watch = Watch()
    at = {"destination": "t", "type": "queue"}
    watch.step([sample(ts, names.HELD_BACK, 1, **at) for ts in range(0, 50_000, 5000)])
    assert watch.step([], 100_000) == []
    assert told(watch.step([], 130_000)) == [("raised", "silent", "b1")]
    assert told(watch.step([sample(140_000, names.HELD_BACK, 0, **at)])) == [
        ("cleared", "flow control", "t on b1"),
        ("cleared", "silent", "b1"),
    ]
    watch.step([sample(145_000, names.HELD_BACK, 1, **at)])
    gone = watch.step([], 145_000 + 3_700_000)
    assert told(gone) == [
        ("raised", "silent", "b1"),
        ("cleared", "flow control", "t on b1"),
        ("cleared", "silent", "b1"),
    ]
    assert "taken to be gone" in gone[-1].text
    assert watch.to_json() == ""


def test_one_long_pause_does_not_make_silence_usual() -> None:
    watch = Watch()
    watch.step([sample(ts, names.MEMORY_LIMIT, 100) for ts in (0, 5000, 10_000, 86_400_000, 86_405_000)])
    assert told(watch.step([], 86_405_000 + 61_000)) == [("raised", "silent", "b1")]


def test_findings_of_all_jobs_are_ordered_by_harm() -> None:
    quota = Finding(due(2.6 * 3600), "orders", "reaches its quota")
    storm = Finding(lost(60_036), "payments", "dead")
    few = Finding(lost(3), "payments", "dead")
    week = Finding(due(7 * 86_400), "memory", "is full")
    later = Finding(due(31 * 86_400), "memory", "is full")
    held = Finding(held_back(1800), "orders", "producers were held back")
    assert by_harm([few, held, week, storm, later, quota]) == [quota, storm, week, later, held, few]
    assert [one.severity for one in (quota, storm, week, later, held, few)] == ["critical"] * 3 + ["warning"] * 3
    assert due(-5) == due(0) == lost(1e30) == 100.0
    assert Finding(lost(0, 2.0) - 1, "x", "y").severity == "info"


def row_of(**values: object) -> dict[str, Any]:
    return {
        "destination": "orders",
        "verdict": "balanced",
        "in_rate": 5.0,
        "out_rate": 0.0,
        "consumers": 0.0,
        "full_part": 0.0,
        "abandoned_part": 0.0,
        "starved_part": 0.0,
        "waiting_now": 0.0,
        **values,
    }


def test_texts_do_not_contradict_their_figures() -> None:
    (none,) = balance._findings(row_of(verdict="no consumers"))
    assert "no consumer in all this time" in none.text
    assert "0 %" not in none.text
    (waiting,) = balance._findings(row_of(verdict="no consumers", waiting_now=7.0))
    assert "7 messages wait at the end" in waiting.text
    (part,) = balance._findings(row_of(abandoned_part=0.75))
    assert "no consumer for 75 % of the time" in part.text
    rates = [{"broker": f"b{at}", "rate": rate} for at, rate in enumerate((5000.0, 13.0, 342.0))]
    (broker,) = hot._hot_brokers(rates)
    assert "where the others take 13 to 342" in broker.text


def test_numbers_are_written_for_people() -> None:
    assert [number(value) for value in (None, 0, 12, 1234.0, 0.1234, 4_200_000)] == [
        "–",
        "0",
        "12",
        "1,234",
        "0.123",
        "4.2 M",
    ]
    assert number(3_000_000.0, "B") == "3 MB"
    assert [duration(s) for s in (None, 2e-5, 0.25, 90, 5400, 90_000, 864_000)] == [
        "–",
        "20 µs",
        "250 ms",
        "90 s",
        "90 min",
        "25 h",
        "10 days",
    ]


def test_plots_are_drawn_and_empty_ones_left_out() -> None:
    pytest.importorskip("matplotlib")
    lines = Lines("t", "msg/s", {"a$b_{x": [(0.0, 1.0), (1000.0, None), (2000.0, 3.0)], "_hidden": [(0.0, 2.0)]})
    drawn = plots.svg(lines)
    assert drawn is not None
    assert drawn.startswith("<svg")
    assert "a$b_{x" in drawn
    assert plots.svg(Bars("t", "n", {"x": 2.0, "y": 1.0})) is not None
    assert plots.svg(Matrix("t", "n", ["a", "b"], ["a", "b"], [[0.0, 1.0], [2.0, 3.0]])) is not None
    assert plots.svg(Bars("t", "n", {"x": 0.0})) is None
    assert plots.svg(Lines("t", "n", {"x": [(0.0, None)]})) is None
