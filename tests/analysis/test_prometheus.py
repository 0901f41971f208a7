"""Rates and quantiles against a real Prometheus' PromQL on the same samples.

PromQL extrapolates to the edges of its window, ours counts from scrape to scrape; over a window of W with scrapes every
I they differ by I/W at most, here 15 s of 30 min, and what the activity changes within one interval: 2 % are allowed.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raybroker.analysis import names, run, tables
from raybroker.analysis.frames import merged, query
from raybroker.analysis.lake import lake as layout
from raybroker.analysis.lake.columns import ColumnReader
from raybroker.analysis.lake.export import from_prometheus
from raybroker.analysis.lake.lake import ScrapeFrame
from raybroker.analysis.lake.plan import PlanWindow
from tests.analysis import samples
from tests.analysis.conftest import missing
from tests.analysis.generate import Faults, Plan, make
from tests.analysis.samples import START_MS

TOLERANCE = 0.02
MINUTES = 70
PLAN = Plan(2, START_MS, 60.0 * MINUTES, 15.0, seed=3, faults=Faults(resets={"b1": [200]}, gaps={"b2": [(100, 104)]}))
END_S = START_MS / 1000 + 60 * 60
"""A whole minute; the window of half an hour before it has the restart."""
WINDOW_S = 1800


def openmetrics(lake: Path) -> str:
    """All samples of the lake in OpenMetrics, with their times, families and series together."""
    values: dict[tuple[str, str], dict[str, list[str]]] = {}
    for file in layout.files(lake)[0]:
        reader = ColumnReader()
        frames = [one for one in layout.read(file.path) if isinstance(one, ScrapeFrame)]
        got, _ = reader.read([frame.body for frame in frames])
        for scrape, series, value in zip(got.scrape.tolist(), got.series.tolist(), got.value.tolist(), strict=True):
            one = reader.series[series]
            family, _ = names.family(one.name)
            labels = ",".join(f'{key}="{text}"' for key, text in one.labels)
            line = f"{one.name}{{{labels}}} {value!r} {frames[scrape].ts / 1000:.3f}"
            by_series = values.setdefault((family.removesuffix("_total"), names.KINDS[family]), {})
            by_series.setdefault(f"{one.name}{labels}", []).append(line)
    text = []
    for (family, kind), series in values.items():
        if (
            kind == "histogram"
        ):  # Its samples have to be those of one moment after the other; as plain series they need not.
            text += [line for lines in series.values() for line in lines]
        else:
            text += [f"# TYPE {family} {kind}", *(line for lines in series.values() for line in lines)]
    return "\n".join([*text, "# EOF", ""])


class Server:
    """A Prometheus over blocks that promtool made."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, query: str, at_s: float = END_S) -> dict[frozenset[tuple[str, str]], float]:
        asked = urllib.parse.urlencode({"query": query, "time": f"{at_s:.3f}"})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{asked}", timeout=30) as answer:
            result = json.load(answer)["data"]["result"]
        return {frozenset(row["metric"].items()): float(row["value"][1]) for row in result}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prometheus") / "lake"
    make(folder, samples.small_recording(), PLAN)
    return folder


@pytest.fixture(scope="module")
def server(lake: Path) -> Iterator[Server]:
    for program in ("prometheus", "promtool"):
        if shutil.which(program) is None:
            missing(f"{program} (Debian package prometheus)")
    text, data = lake.parent / "all.om", lake.parent / "data"
    text.write_text(openmetrics(lake))
    made = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr[-2000:]
    config = lake.parent / "prometheus.yml"
    config.write_text("global: {}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (lake.parent / "log").open("wb")
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={data}",
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stderr=log,
        stdout=log,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _until_ready(process, url, lake.parent / "log")
        yield Server(url)
    finally:
        process.terminate()
        process.wait(30)
        log.close()


def _until_ready(process: Any, url: str, log: Path) -> None:
    deadline = time.monotonic() + 60
    pause = 0.05
    while True:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=5):
                return
        except (OSError, urllib.error.URLError):
            assert process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(pause)


@pytest.fixture(scope="module")
def made(spark: Any, lake: Path) -> tables.LakeTables:
    window = PlanWindow(0, run.FOREVER_MS, START_MS + 60_000 * (MINUTES + 1))
    return tables.build(spark, lake, lake.parent / "tables", window, step_ms=60_000)


def within() -> str:
    end = round(END_S * 1000)
    return f"ts > timestamp_millis({end - WINDOW_S * 1000 - 1}) and ts < timestamp_millis({end})"


def test_what_counters_rise_by_is_what_promql_says_through_a_restart_and_a_gap(
    server: Server, made: tables.LakeTables
) -> None:
    expected = server.ask(f"sum by (broker, destination) (increase({names.IN}[{WINDOW_S}s]))")
    counters = made.counters(names.IN).where(within())
    got = made.plain_rows(
        query("select broker, destination, sum(increase) n from {counters} group by 1, 2", counters=counters)
    )
    ours = {frozenset({("broker", row["broker"]), ("destination", row["destination"])}): row["n"] for row in got}
    assert len(expected) == len(ours) == 8
    assert ours == {key: pytest.approx(value, rel=TOLERANCE) for key, value in expected.items()}
    assert max(expected.values()) > 10_000


def test_rates_over_time_are_what_promql_says(server: Server, made: tables.LakeTables) -> None:
    rows = made.plain_rows(
        query(
            """
        select unix_millis(date_trunc('hour', ts)) + floor(minute(ts) / 10) * 600000 bucket, sum(increase) / 600 rate
        from {counters} where broker = 'b2' group by 1 order by 1
    """,
            counters=made.counters(names.IN),
        )
    )
    whole = [row for row in rows if START_MS < row["bucket"] < START_MS + 60 * 60_000]
    assert len(whole) == 5
    for row in whole:
        (expected,) = server.ask(f'sum(rate({names.IN}{{broker="b2"}}[600s]))', row["bucket"] / 1000 + 600).values()
        assert row["rate"] == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
def test_quantiles_are_what_promql_says(server: Server, made: tables.LakeTables, q: float) -> None:
    expected = server.ask(
        f"histogram_quantile({q}, sum by (le, destination) (rate({names.SERVICE}_bucket[{WINDOW_S}s])))"
    )
    rows = made.plain_rows(merged(made.histograms(names.SERVICE).where(within()), "destination"))
    ours = {
        frozenset({("destination", row["destination"])}): tables.quantile(*tables.split(row["buckets"]), q)
        for row in rows
    }
    compared = [key for key, value in expected.items() if value == value]  # not NaN: something was observed
    assert len(compared) == 3
    for key in compared:
        assert ours[key] == pytest.approx(expected[key], rel=TOLERANCE)


def test_gauges_are_what_promql_says(server: Server, made: tables.LakeTables) -> None:
    expected = server.ask(f"sum by (broker) (avg_over_time({names.RESIDENT}[{WINDOW_S}s]))")
    rows = made.plain_rows(
        query(
            """
        with s as (select broker, labels, avg(mean) value from {gauges} group by 1, 2)
        select broker, sum(value) value from s group by 1
    """,
            gauges=made.gauges(names.RESIDENT).where(within()),
        )
    )
    ours = {frozenset({("broker", row["broker"])}): row["value"] for row in rows}
    assert ours == {key: pytest.approx(value, rel=TOLERANCE) for key, value in expected.items()}
    assert len(ours) == 2


def test_a_lake_copied_from_the_server_has_the_same_totals(
    spark: Any, server: Server, made: tables.LakeTables, tmp_path: Path
) -> None:
    copied = tmp_path / "copy"
    end = round(END_S * 1000)
    assert from_prometheus(copied, server.url, START_MS + 15_000, end, 15_000, match=f'{{__name__="{names.IN}"}}') > 400
    window = PlanWindow(0, run.FOREVER_MS, end + 60_000)
    again = tables.build(spark, copied, tmp_path / "tables", window, step_ms=60_000)
    total, expected = (
        one.plain_rows(one.counters(names.IN).where(within()).selectExpr("sum(increase) n"))[0]["n"]
        for one in (again, made)
    )
    assert total == pytest.approx(expected, rel=TOLERANCE)
