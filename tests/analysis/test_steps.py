"""Steps against plain counting, whatever the chunks; histograms, wrong types and unknown metrics."""

from __future__ import annotations

import math
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.analysis import names
from raybroker.analysis.lake import steps
from raybroker.analysis.lake.steps import Reducer
from raybroker.analysis.tables import quantile
from tests.analysis import samples

COUNTER, GAUGE = names.IN, names.HELD
STEP_MS = 10_000
Values = list[tuple[int, list[float | None]]]


@st.composite
def histories(draw: st.DrawFn) -> Values:
    """Scrapes of two counters and a gauge: (milliseconds, values), None where a series is missing."""
    count = draw(st.integers(1, 30))
    at = 0
    made: Values = []
    value = st.one_of(st.none(), st.integers(0, 50).map(float))
    for _ in range(count):
        at += draw(st.sampled_from([500, 1000, 4000, 25_000]))
        made.append((at, [draw(value) for _ in range(3)]))
    return made


def text(values: list[float | None]) -> bytes:
    lines = [f"# TYPE {COUNTER} counter"]
    lines += [f'{COUNTER}{{destination="d{n}"}} {values[n]}' for n in (0, 1) if values[n] is not None]
    lines += [f"# TYPE {GAUGE} gauge", *([f'{GAUGE}{{destination="d0"}} {values[2]}'] if values[2] is not None else [])]
    return ("\n".join(lines) + "\n").encode()


def counted(history: Values, series: int) -> dict[int, tuple[float, float, int]]:
    """Step → what a counter rose by, over how many milliseconds, how often it started anew."""
    seen = [(ts, values[series]) for ts, values in history if values[series] is not None]
    made: dict[int, tuple[float, float, int]] = {}
    for (before_ts, before), (ts, value) in pairwise(seen):
        assert before is not None
        assert value is not None
        reset = value < before
        old = made.get(ts // STEP_MS, (0.0, 0.0, 0))
        rose = value if reset else value - before
        made[ts // STEP_MS] = (old[0] + rose, old[1] + ts - before_ts, old[2] + reset)
    return made


@given(histories(), st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_counters_and_gauges_are_what_plain_counting_gives_whatever_the_chunks(
    history: Values, cuts: list[int]
) -> None:
    reducer = Reducer(STEP_MS)
    rows = []
    at = 0
    while at < len(history):
        chunk = history[at : at + cuts[at % len(cuts)]]
        at += len(chunk)
        rows.append(reducer.add([ts for ts, _ in chunk], [text(values) for _, values in chunk]))
    rows.append(reducer.finish())
    found: dict[tuple[str, str], dict[int, steps.StepRows]] = {}
    for one in rows:
        if one is None:
            continue
        for position in range(len(one.series)):
            group = reducer.kinds.groups[reducer.kinds.group[one.series[position]]]
            row = steps.StepRows(*(column[position].item() for column in one))
            assert row.step not in found.setdefault((group.kind, group.destination), {})
            found[group.kind, group.destination][row.step] = row
    for series in (0, 1):
        expected = counted(history, series)
        got = found.get(("counter", f"d{series}"), {})
        assert {step: (row.increase, row.millis, row.resets) for step, row in got.items() if row.millis} == expected
    gauges: dict[int, list[float]] = {}
    for ts, values in history:
        if values[2] is not None:
            gauges.setdefault(ts // STEP_MS, []).append(values[2])
    got = found.get(("gauge", "d0"), {})
    assert {step: (row.last, row.low, row.high, row.total, row.samples) for step, row in got.items()} == {
        step: (some[-1], min(some), max(some), sum(some), len(some)) for step, some in gauges.items()
    }


def reduced(*texts: str, step_ms: int = 1000) -> tuple[Reducer, steps.StepRows]:
    reducer = Reducer(step_ms)
    first = reducer.add(list(range(0, len(texts) * 1000, 1000)), [one.encode() for one in texts])
    last = reducer.finish()
    assert last is not None
    parts = [last] if first is None else [first, last]
    return reducer, steps.StepRows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def test_metrics_that_nobody_asks_for_make_no_rows_and_the_same_faults() -> None:
    texts = [text([1.0, 2.0, -5.0]) + b"unknown 3\nno exposition\n", text([4.0, 2.0, 7.0])]
    every, some = Reducer(STEP_MS), Reducer(STEP_MS, {COUNTER})
    for reducer in (every, some):
        assert reducer.add([0, 1000], texts) is None
    assert every.found() == some.found()
    assert {one.what for one in some.found()} == {"foreign metric", "bad line", "impossible value"}
    assert some.samples == every.samples > 0
    both, one = every.finish(), some.finish()
    assert both is not None
    assert one is not None
    counters = every.kinds.part[both.series] == steps.COUNTER
    assert 0 < counters.sum() < len(counters)
    assert [column[counters].tolist() for column in both] == [column.tolist() for column in one]


def test_a_histogram_becomes_one_row_a_step_with_its_buckets_in_order() -> None:
    def scrape(*counts: int) -> str:
        edges = ("0.5", "0.1", "+Inf")
        order = (1, 0, 2)
        lines = [f'{names.SERVICE}_bucket{{destination="q",le="{edges[n]}"}} {counts[n]}' for n in order]
        return "\n".join(
            [
                f"# TYPE {names.SERVICE} histogram",
                *lines,
                f'{names.SERVICE}_sum{{destination="q"}} {counts[2] / 2}',
                f'{names.SERVICE}_count{{destination="q"}} {counts[2]}',
                "",
            ]
        )

    reducer, rows = reduced(scrape(5, 2, 9), scrape(8, 4, 13), scrape(1, 1, 1))
    made = steps.histograms(rows, reducer.kinds)
    assert made.step.tolist() == [0, 1, 2]
    assert made.borders.tolist() == [0, 3, 6, 9]
    assert made.edges.tolist() == [0.1, 0.5, math.inf] * 3
    assert made.counts.tolist() == [0, 0, 0, 2, 3, 4, 1, 1, 1]
    assert made.increase.tolist() == [0, 4, 1]
    assert made.total.tolist() == [0, 2, 0.5]
    assert made.resets.tolist() == [0, 0, 1]
    assert made.quantiles[0][1:].tolist() == [0.1, 0.05]
    assert math.isnan(made.quantiles[0][0])


def test_a_histogram_without_its_count_counts_by_its_last_bucket_and_one_without_buckets_by_its_count() -> None:
    def scrape(count: int) -> str:
        return (
            f'{names.SERVICE}_count{{destination="a"}} {count}\n'
            f'{names.SERVICE}_bucket{{destination="b",le="1"}} {count}\n'
            f'{names.SERVICE}_bucket{{destination="b",le="+Inf"}} {2 * count}\n'
            f'{names.SERVICE}_count{{destination="c"}} {5 * count}\n'
        )

    reducer, rows = reduced(scrape(1), scrape(4))
    made = steps.histograms(rows, reducer.kinds)
    by_name = {
        (reducer.kinds.groups[group].destination, step): increase
        for group, step, increase in zip(made.group.tolist(), made.step.tolist(), made.increase.tolist(), strict=True)
    }
    assert by_name == {("a", 0): 0, ("a", 1): 3, ("b", 0): 0, ("b", 1): 6, ("c", 0): 0, ("c", 1): 15}


def test_a_clock_becomes_what_it_is_ahead_of_its_scrape() -> None:
    reducer = Reducer(STEP_MS)
    reducer.add([1000, 4000], [f"{names.CLOCK} {at}\n{GAUGE} 7\n".encode() for at in (3.5, 6.25)])
    rows = reducer.finish()
    assert rows is not None
    by_metric = {reducer.kinds.groups[reducer.kinds.group[one]].metric: at for at, one in enumerate(rows.series)}
    assert set(by_metric) == {names.CLOCK_OFFSET, GAUGE}
    at = by_metric[names.CLOCK_OFFSET]
    assert (rows.low[at], rows.high[at], rows.last[at]) == (2.25, 2.5, 2.25)
    assert rows.last[by_metric[GAUGE]] == 7


HISTOGRAMS = st.lists(
    st.lists(st.integers(0, 5), min_size=1, max_size=6).map(
        lambda counts: [float(sum(counts[: n + 1])) for n in range(len(counts))]
    ),
    max_size=5,
)


@given(HISTOGRAMS)
def test_quantiles_of_many_histograms_are_those_of_each(some: list[list[float]]) -> None:
    edges = [[0.5 * n for n in range(len(counts) - 1)] + [math.inf] for counts in some]
    row = np.repeat(np.arange(len(some)), [len(counts) for counts in some])
    got = steps.quantiles(row, np.array([*chain(*edges)]), np.array([*chain(*some)]), len(some))
    for q, column in zip(steps.QUANTILES, got, strict=True):
        expected = [quantile(edge, counts, q) for edge, counts in zip(edges, some, strict=True)]
        assert [None if math.isnan(value) else value for value in column.tolist()] == pytest.approx(expected)


def test_wrong_types_and_metrics_nobody_knows_are_counted_and_not_used() -> None:
    reducer, rows = reduced(
        f"# TYPE {COUNTER} gauge\n{COUNTER} 5\n# TYPE raybroker_new gauge\nraybroker_new 1\nprocess_x 2\nbroken\n"
        f"# TYPE {GAUGE} gauge\n{GAUGE} 1\n"
    )
    assert [reducer.reader.series[one].name for one in rows.series.tolist()] == [GAUGE]
    assert {(fault.what, fault.where) for fault in reducer.found()} == {
        ("wrong type", f"{COUNTER}: gauge"),
        ("unknown metric", "raybroker_new"),
        ("foreign metric", "process_x"),
        ("bad line", "broken"),
    }


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e308"])
def test_impossible_values_are_counted_and_counters_go_on_without_them(value: str) -> None:
    reducer, rows = reduced(f"{COUNTER} 5\n{GAUGE} 1\n", f"{COUNTER} {value}\n{GAUGE} {value}\n", f"{COUNTER} 7\n")
    assert {(fault.what, fault.times) for fault in reducer.found()} == {("impossible value", 1)}
    assert sorted(fault.where.split()[0] for fault in reducer.found()) == sorted([COUNTER, GAUGE])
    assert (rows.increase.sum(), rows.resets.sum(), rows.high.max()) == (2, 0, 7)


def test_every_series_of_a_real_broker_is_known_and_of_its_type() -> None:
    reducer = Reducer(5000)
    frames = samples.scrapes("b1")
    reducer.add([one.ts for one in frames], [one.body for one in frames])
    assert reducer.found() == []
    assert reducer.samples > 9000


@pytest.mark.parametrize("step", [1000, 5000, 3_600_000])
def test_totals_of_a_real_broker_do_not_depend_on_the_step(step: int) -> None:
    frames = samples.scrapes("b1")
    reducer = Reducer(step)
    rows = [reducer.add([one.ts], [one.body]) for one in frames]
    rows.append(reducer.finish())
    total = sum(
        one.increase[position]
        for one in rows
        if one is not None
        for position, series in enumerate(one.series.tolist())
        if reducer.reader.series[series].name == names.IN
    )
    first, last = (
        sum(
            float(line.rsplit(b" ", 1)[1])
            for line in frames[at].body.splitlines()
            if line.startswith(names.IN.encode() + b"{")
        )
        for at in (0, -1)
    )
    assert total == last - first > 1000
