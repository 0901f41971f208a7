"""Every job on the lake with known answers; the two sources against plain counting on the recording."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape as html_escape
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from raybroker.analysis import names, run, tables
from raybroker.analysis.frames import query
from raybroker.analysis.jobs import quality
from raybroker.analysis.jobs.hot import who_is_hot
from raybroker.analysis.jobs.latency import how_long_does_it_take
from raybroker.analysis.lake.export import LakeWriter
from raybroker.analysis.lake.plan import PlanWindow
from raybroker.analysis.reports.answer import Finding, JobAnswer
from raybroker.analysis.spark import session
from raybroker.model.errors import ConfigError
from tests.analysis import planted, samples
from tests.analysis.generate import DAY_S, Truth, make
from tests.analysis.samples import START_MS

NOW_MS = START_MS + round(planted.SECONDS * 1000) + 60_000


class Made(NamedTuple):
    """The lake, what is in it, the answers, the files of the report."""

    lake: Path
    truth: Truth
    answers: dict[str, JobAnswer]
    result: run.AnalysisResult


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("planted")
    truth = make(folder / "lake", samples.small_recording(), planted.PLAN)
    plan = run.Analysis(folder / "lake", folder / "report.html", NOW_MS, tables=folder / "tables")
    result = run.analyze(plan, time.monotonic, spark=spark)
    return Made(folder / "lake", truth, {answer.job: answer for answer in result.answers}, result)


def found(answer: JobAnswer, subject: str) -> Finding:
    (one,) = (one for one in answer.findings if one.subject == subject)
    return one


def test_counters_rise_by_what_was_planted_through_restarts_gaps_and_faults(spark: Any, made: Made) -> None:
    table = spark.read.parquet(str(made.lake.parent / "tables"))
    table.createOrReplaceTempView("made_steps")
    rows = spark.sql("""
        select metric, destination, broker, sum(increase) n from made_steps where kind = 'counter' group by 1, 2, 3
    """).collect()
    got = {(row.metric, row.destination, row.broker): row.n for row in rows}
    assert set(got) == set(made.truth.increase)
    wrong = {key: (value, got[key]) for key, value in made.truth.increase.items() if got[key] != pytest.approx(value)}
    assert wrong == {}
    assert len(got) > 300


def test_the_tables_lie_by_date_and_broker(made: Made) -> None:
    folders = {
        path.parent.relative_to(made.lake.parent).as_posix() for path in made.lake.parent.glob("tables/*/*/*.parquet")
    }
    assert "tables/date=2026-09-23/broker=b2" in folders
    assert len(folders) == 4 * planted.DAYS + 4  # the last scrapes are those of the last midnight


def test_who_is_hot(made: Made) -> None:
    answer = made.answers["who_is_hot"]
    sums: dict[str, float] = {}
    brokers: dict[str, float] = {}
    for (metric, destination, broker), value in made.truth.increase.items():
        if metric == names.IN:
            sums[destination] = sums.get(destination, 0.0) + value
            brokers[broker] = brokers.get(broker, 0.0) + value
    rows = answer.figures["destinations"]
    assert {row["destination"]: row["messages"] for row in rows} == pytest.approx({k: v for k, v in sums.items() if v})
    assert {row["broker"]: row["messages"] for row in answer.figures["brokers"]} == pytest.approx(brokers)
    assert rows[0]["destination"] == "orders"
    assert found(answer, "orders").values["messages"] / sum(sums.values()) > 0.5
    assert found(answer, "b3").severity == "warning"
    assert not [one for one in answer.findings if one.subject in ("b1", "b2", "b4", "payments")]
    unit = found(answer, "unit u1 of payments")
    truth = sum(value for (metric, *_), value in made.truth.increase.items() if metric == names.UNITS)
    assert 0.9 * truth < unit.values["messages"] < truth


def test_what_piles_up(made: Made) -> None:
    answer = made.answers["what_piles_up"]
    grows = found(answer, "orders on b2").values
    assert grows["slope"] == pytest.approx(1.0, rel=0.02)
    assert grows["held"] == pytest.approx(DAY_S, rel=0.01)
    assert grows["to_quota_s"] == pytest.approx((100_000 - DAY_S) / 1.0, rel=0.1)
    drains = found(answer, "payments on b4").values
    assert drains["trend"] == "drains"
    assert drains["to_drain_s"] == pytest.approx((50_000 - 0.25 * DAY_S) / 0.25, rel=0.05)


def test_who_waits_for_whom(made: Made) -> None:
    answer = made.answers["who_waits_for_whom"]
    rows = {row["destination"]: row for row in answer.figures["destinations"]}
    assert rows["orders"]["verdict"] == "consumers too slow"
    assert rows["payments"]["starved_part"] == pytest.approx(
        (2 * DAY_S - 10 * planted.INTERVAL_S) / planted.SECONDS,
        abs=0.01,  # while b2 was not scraped nobody knows
    )
    assert rows["orders"]["starved_part"] == 0
    assert rows["orders"]["in_rate"] * planted.SECONDS == pytest.approx(
        sum(v for (metric, where, _), v in made.truth.increase.items() if (metric, where) == (names.IN, "orders")),
        rel=0.01,
    )
    assert any("idle while messages waited" in one.text for one in answer.findings if one.subject == "payments")


def test_how_long_it_takes_is_what_was_recorded(made: Made) -> None:
    rows = {
        row["destination"]: row
        for row in made.answers["how_long_does_it_take"].figures["stages"]
        if row["stage"] == "service"
    }
    lines = [line for line in samples.recording().lines if line.metric == names.SERVICE]
    for destination in ("orders", "payments"):
        mine = {
            line.suffix: line.rate
            for line in lines
            if line.labels["destination"] == destination and line.suffix != "_bucket"
        }
        assert rows[destination]["mean_s"] == pytest.approx(mine["_sum"] / mine["_count"], rel=0.01)
        assert 0 < rows[destination]["p50"] <= rows[destination]["p95"] <= rows[destination]["p99"]


def test_where_traffic_goes(made: Made) -> None:
    answer = made.answers["where_does_traffic_go"]
    matrix = {(row["member"], row["home"]): row["messages"] for row in answer.figures["matrix"]}
    truth = {b: v for (metric, _, b), v in made.truth.increase.items() if metric == names.ROUTED}
    for broker in ("b1", "b2", "b3", "b4"):
        mine = sum(value for (member, _), value in matrix.items() if member == broker)
        assert mine == pytest.approx(truth[broker])
    assert matrix["b1", "b3"] == pytest.approx(40 * matrix["b1", "b2"], rel=0.01)
    assert answer.plots[0].title.startswith("Deliveries")


def test_which_prefetch(made: Made) -> None:
    from raybroker.analysis.jobs.prefetch import advise

    answer = made.answers["which_prefetch"]
    assert answer.figures["measured"]
    rows = {row["destination"]: row for row in answer.figures["destinations"]}
    orders = rows["orders"]
    assert (orders["consumers"], orders["limit"]) == pytest.approx((2, 100), rel=0.01)
    assert (orders["advised_limit"], orders["advised_threshold"]) == advise(
        orders["service_s"], answer.figures["round_trip_s"]
    )
    assert orders["memory_bytes"] == pytest.approx(orders["consumers"] * orders["limit"] * orders["message_bytes"] * 2)


def test_when_it_was_tight(made: Made) -> None:
    answer = made.answers["when_was_it_tight"]
    (flow,) = answer.figures["flow_control"]
    assert (flow["destination"], flow["broker"], flow["held_s"]) == ("orders", "b1", pytest.approx(1800))
    assert abs(flow["start"] - (START_MS + 1.5 * DAY_S * 1000)) <= 3_600_000
    (memory,) = answer.figures["memory"]
    assert (memory["broker"], memory["level"]) == ("b4", "orange")
    assert memory["used"] == pytest.approx(0.95)
    assert memory["seconds"] == pytest.approx(2 * 3600, abs=3600)


def test_what_is_unusual(made: Made) -> None:
    answer = made.answers["what_is_unusual"]
    assert answer.figures["by_day"]
    hours = [(row["destination"], row["what"]) for row in answer.figures["hours"]]
    assert set(hours) == {("payments", "dead")}
    first = max(answer.figures["hours"], key=lambda row: row["messages"])
    assert abs(first["start"] - (START_MS + (2 * DAY_S + 10 * 3600) * 1000)) <= 3_600_000
    assert sum(row["messages"] for row in answer.figures["hours"]) == pytest.approx(5000)


def test_whether_paths_are_even(made: Made) -> None:
    answer = made.answers["are_paths_even"]
    assert [one.subject for one in answer.findings] == ["b2"]
    assert next(row["units"] for row in answer.figures["members"] if row["member"] == "b2") == 500


def test_how_copies_are(made: Made) -> None:
    answer = made.answers["how_are_copies"]
    orders = [(row["broker"], row["term"], row["before"]) for row in answer.figures["leaders"]]
    assert orders == [("b1", 1, ""), ("b3", 4, "b1"), ("b1", 5, "b3")]
    for row, day in zip(answer.figures["leaders"][1:], (2, 3), strict=True):
        assert abs(row["since"] - (START_MS + day * DAY_S * 1000)) <= 3_600_000
    lags = {row["copy"]: row["most"] for row in answer.figures["lag"]}
    assert lags == pytest.approx({"b2": 5000, "b3": 0})
    (episode,) = answer.figures["unconfirmed"]
    assert (episode["broker"], episode["logs"]) == ("b2", 1)
    assert episode["seconds"] == pytest.approx(3600, abs=3600)
    assert found(answer, "b2").severity == "critical"
    assert found(answer, "orders at b2").values["most"] == 5000
    assert not [one for one in answer.findings if one.subject == "orders"]  # Two changes in five days are no flapping.


def test_when_it_is_full(made: Made) -> None:
    answer = made.answers["when_is_it_full"]
    row = next(row for row in answer.figures["growth"] if row["subject"] == "orders on b2" and row["what"] == "quota")
    assert row["per_day"] == pytest.approx(0.15, rel=0.05)
    assert row["days_left"] == pytest.approx((1 - 0.85) / 0.15, abs=0.3)
    assert found(answer, "quota of orders on b2").severity == "critical"


def test_how_good_the_input_is(made: Made) -> None:
    figures = made.answers["how_good_is_the_input"].figures
    assert figures["ingest"]["scrapes"] == made.truth.scrapes
    assert figures["ingest"]["samples"] == made.truth.samples
    assert (figures["ingest"]["first"], figures["ingest"]["last"]) == (
        made.result.facts.since_ms,
        made.result.facts.until_ms,
    )
    assert figures["faults"] == {
        "corrupt": 1,
        "torn": 1,
        "duplicate": 3,
        "late": 1,
        "impossible time": 1,
        "gap": figures["faults"]["gap"],
    }
    gaps = [row["place"] for row in figures["places"] if row["what"] == "gap"]
    assert gaps == ["b2: 13200 s after 2026-09-21 16:40:00"]
    assert {row["broker"] for row in figures["restarts"]} == {"b1"}
    assert len(figures["restarts"]) == 2


def test_which_clocks_differ(made: Made) -> None:
    answer = made.answers["how_good_is_the_input"]
    clocks = {row["broker"]: row["ahead_s"] for row in answer.figures["clocks"]}
    assert clocks == pytest.approx({"b1": 0.04, "b2": -3, "b3": 0, "b4": 0, "(collector)": 0}, abs=1e-3)
    told = found(answer, "clocks differ")
    assert told.text.startswith("b2 3 s behind: ")
    assert [row["broker"] for row in told.values["clocks"]] == ["b2"]
    (table,) = (one for one in answer.tables if one.title == "Clocks")
    assert table.rows[0]["broker"] == "b2"
    assert table.rows[0]["ahead_text"] == "-3 s"


@pytest.mark.parametrize(
    ("offsets", "ahead"),
    [
        ({}, {}),
        ({"b1": 2.0}, {"b1": 2.0, "(collector)": 0.0}),
        ({"b1": 10.0, "b2": 10.25}, {"b1": 0.0, "b2": 0.25, "(collector)": -10.0}),
        ({"b1": 0.5, "b2": -5.0}, {"b1": 0.5, "b2": -5.0, "(collector)": 0.0}),
    ],
)
def test_clocks_are_held_against_the_middle_one(offsets: dict[str, float], ahead: dict[str, float]) -> None:
    rows = [{"broker": broker, "offset": at, "least": at, "most": at} for broker, at in offsets.items()]
    made = quality.ahead(rows)
    assert {row["broker"]: row["ahead_s"] for row in made} == ahead
    assert [abs(row["ahead_s"]) for row in made] == sorted(map(abs, ahead.values()), reverse=True)


def test_the_report_is_one_file_that_needs_nothing_else_and_its_json_can_be_read(made: Made) -> None:
    html, beside = made.result.files
    text = html.read_text()
    assert text.count("<svg") >= 8
    for outside in ("<script src", "<link", "<img", "url(http", "@import"):
        assert outside not in text
    for answer in made.result.answers:
        assert f'id="{answer.job}"' in text
    read = json.loads(beside.read_text())
    assert read["format"] == 1
    assert {job["job"] for job in read["jobs"]} == set(made.answers)
    assert sum(len(job["findings"]) for job in read["jobs"]) == len(made.result.findings)
    harms = [one.harm for one in made.result.findings]
    assert harms == sorted(harms, reverse=True)
    first = text.index("What to look at first")
    worst = made.result.findings[:12]
    shown = [text.index(f"</span><b>{one.subject}</b> {html_escape(one.text)}", first) for one in worst]
    assert shown == sorted(shown)


def real_rows() -> list[tuple[int, str, str, frozenset[tuple[str, str]], float]]:
    """The recording by prometheus_client."""
    return [
        (frame.ts, broker, one.name, frozenset(one.labels.items()), float(one.value))
        for broker in samples.BROKERS
        for frame in samples.scrapes(broker)
        for family in text_string_to_metric_families(frame.body.decode())
        for one in family.samples
    ]


def test_the_source_gives_every_sample_of_real_brokers(spark: Any, tmp_path: Path) -> None:
    lake = samples.real_lake(tmp_path / "lake", rotate_ms=10_000)
    frame = spark.read.format("raybroker_lake").option("path", str(lake)).load()
    got = {
        (round(row.ts.timestamp() * 1000), row.broker, row.metric, frozenset(row.labels.items()), row.value)
        for row in frame.collect()
    }
    expected = real_rows()
    assert len(expected) == len(got)
    assert got == set(expected)
    chosen = (
        frame.sparkSession.read.format("raybroker_lake").option("path", str(lake)).option("metrics", names.IN).load()
    )
    assert {row.metric for row in chosen.select("metric").distinct().collect()} == {names.IN}


def test_rates_of_real_brokers_are_those_of_pandas(spark: Any, tmp_path: Path) -> None:
    import pandas as pd

    lake = samples.real_lake(tmp_path / "lake")
    made = tables.build(
        spark, lake, tmp_path / "tables", PlanWindow(0, run.FOREVER_MS, samples.scrapes()[-1].ts + 1000), step_ms=15_000
    )
    rows = pd.DataFrame(real_rows(), columns=["ts", "broker", "metric", "labels", "value"])
    rows = rows[rows.metric.isin([name for name, kind in names.KINDS.items() if kind == "counter"])].sort_values("ts")
    rows["rose"] = rows.groupby(["broker", "metric", "labels"]).value.diff()
    rows["step"] = rows.ts // 15_000 * 15_000
    expected = rows.dropna().groupby(["broker", "metric", "step"]).rose.sum().to_dict()
    got = {
        (row["broker"], row["metric"], row["ts"]): row["rose"]
        for row in made.plain_rows(
            query(
                "select broker, metric, ts, sum(increase) rose from {steps} where kind = 'counter' and seconds > 0 "
                "group by 1, 2, 3",
                steps=made.steps,
            )
        )
    }
    assert got == pytest.approx(expected)
    assert len(got) > 200


def test_what_jobs_ask_is_what_the_table_by_date_and_broker_says_whatever_brokers_are_called(
    spark: Any, tmp_path: Path
) -> None:
    names_ = {"b1": "a=b/c:%41 d'e", "b2": "bröker"}
    writers = {broker: LakeWriter(tmp_path / "lake", called) for broker, called in names_.items()}
    for broker, writer in writers.items():
        for one in samples.scrapes(broker):
            writer.write(one.ts, one.body)
        writer.close()
    window = PlanWindow(0, run.FOREVER_MS, samples.scrapes()[-1].ts + 1000)
    asked = """
        select date, broker, kind, metric, destination, count(1) n, sum(increase) rose, sum(total) total,
               min(ts) first, sum(size(labels)) labels, sum(size(counts)) buckets
        from {steps} group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5
    """
    made = tables.build(spark, tmp_path / "lake", tmp_path / "tables", window)
    rows = made.plain_rows(query(asked, steps=made.steps))
    assert made.plain_rows(query(asked, steps=spark.read.parquet(str(tmp_path / "tables")))) == rows
    assert {row["broker"] for row in rows} == set(names_.values())
    assert who_is_hot(made).figures["messages"] > 0
    again = tables.build(spark, tmp_path / "lake", tmp_path / "tables", window, kept=False)
    wanted = [row for row in rows if row["kind"] in ("fault", "ingest", "cluster") or row["metric"] in names.ASKED]
    assert again.plain_rows(query(asked, steps=again.steps)) == wanted
    assert len(wanted) < len(rows)
    assert not list(tmp_path.glob("tables/date=*"))


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda path: None, "no such folder"),
        (lambda path: path.mkdir(), "no scrapes"),
        (samples.real_lake, "no scrapes in the time asked for; it has"),
    ],
)
def test_a_lake_without_anything_to_read_is_an_error_of_one_line(
    tmp_path: Path, prepare: Callable[[Path], object], reason: str
) -> None:
    prepare(tmp_path / "lake")
    plan = run.Analysis(
        tmp_path / "lake", tmp_path / "r.html", NOW_MS, since_ms=START_MS - 10**10, until_ms=START_MS - 10**9
    )
    with pytest.raises(ConfigError, match=reason) as caught:
        run.analyze(plan, time.monotonic)
    assert "\n" not in str(caught.value)


def test_a_lake_of_nothing_usable_is_an_error_too(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "lake" / "date=2026-09-21" / "broker=b1"
    folder.mkdir(parents=True)
    (folder / f"{START_MS}-{START_MS}.prom").write_bytes(
        b"\x00\xffnothing\n# scrape key=1 ts=1 length=5 crc=00000000\nab"
    )
    plan = run.Analysis(tmp_path / "lake", tmp_path / "r.html", NOW_MS)
    with pytest.raises(ConfigError, match=r"no scrape that can be used.*: 1 corrupt, 1 torn; first: b1: date=2026"):
        run.analyze(plan, time.monotonic, spark=spark)


def test_only_large_lakes_wait_for_the_optimizing_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = []

    @contextmanager
    def started(master: str, *, brief: bool, **options: object) -> Iterator[Any]:
        said.append(session._local_options(master, tmp_path, "1g", brief)["spark.driver.extraJavaOptions"])
        raise ConfigError("seen")
        yield

    monkeypatch.setattr(session, "spark", started)
    plan = run.Analysis(samples.real_lake(tmp_path / "lake"), tmp_path / "r.html", NOW_MS + 10**10)
    for limit in (run.BRIEF_BYTES, 1000):
        monkeypatch.setattr(run, "BRIEF_BYTES", limit)
        with pytest.raises(ConfigError, match="seen"):
            run.analyze(plan, time.monotonic)
    assert ["TieredStopAtLevel=1" in options for options in said] == [True, False]


def test_a_brief_session_has_as_much_room_for_compiled_code_as_any(spark: Any) -> None:
    factory = spark._jvm.java.lang.management.ManagementFactory
    assert "-XX:TieredStopAtLevel=1" in list(factory.getRuntimeMXBean().getInputArguments())
    pools = [pool for pool in factory.getMemoryPoolMXBeans() if "Code" in pool.getName()]
    assert sum(pool.getUsage().getMax() for pool in pools) >= 200 << 20


def test_small_lakes_of_this_machine_are_asked_by_plainer_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []

    @contextmanager
    def started(master: str, *, conf: dict[str, str], lake: bool, **options: object) -> Iterator[Any]:
        said.append((conf, lake))
        raise ConfigError("seen")
        yield

    monkeypatch.setattr(session, "spark", started)
    lake = samples.real_lake(tmp_path / "lake")
    limits = (run.TINY_BYTES, run.BRIEF_BYTES)
    for master, tiny, brief in (
        (session.LOCAL, *limits),
        (session.LOCAL, 1000, limits[1]),
        (session.LOCAL, 1000, 1000),
        ("yarn", *limits),
    ):
        monkeypatch.setattr(run, "TINY_BYTES", tiny)
        monkeypatch.setattr(run, "BRIEF_BYTES", brief)
        plan = run.Analysis(lake, tmp_path / "r.html", NOW_MS + 10**10, master, tables=tmp_path / "tables")
        with pytest.raises(ConfigError, match="seen"):
            run.analyze(plan, time.monotonic)
    assert said == [(session.TINY, False), (session.SMALL, False), ({}, False), ({}, False)]


def test_the_order_of_rows_does_not_depend_on_partitions(spark: Any, tmp_path: Path) -> None:
    """Stages with the same number of observations are told apart by their names."""
    lake = samples.real_lake(tmp_path / "lake")
    window = PlanWindow(0, run.FOREVER_MS, samples.scrapes()[-1].ts + 1000)
    made = tables.build(spark, lake, tmp_path / "tables", window)
    usual = {key: spark.conf.get(key) for key in session.TINY}
    orders = []
    try:
        for settings in (usual, session.TINY, {**session.TINY, "spark.sql.shuffle.partitions": "7"}):
            for key, value in settings.items():
                spark.conf.set(key, value)
            stages = how_long_does_it_take(made).figures["stages"]
            orders.append([(row["number"], row["metric"], row["destination"], row["type"]) for row in stages])
    finally:
        for key, value in usual.items():
            spark.conf.set(key, value)
    assert len(orders[0]) > len({number for number, *_ in orders[0]})
    assert orders[0] == sorted(orders[0], key=lambda row: (-row[0], *row[1:]))
    assert orders[1] == orders[2] == orders[0]
