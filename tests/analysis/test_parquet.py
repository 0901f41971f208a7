"""The files of tables, without Spark: the same rows whatever is held, by metric, by date and broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from raybroker.analysis import names
from raybroker.analysis.lake import lake as layout
from raybroker.analysis.lake import parquet, plan
from tests.analysis import samples
from tests.analysis.generate import DAY_S, Plan, make
from tests.analysis.samples import START_MS

pytestmark = pytest.mark.xdist_group("parquet")  # One worker makes what they share.

NOW_MS = START_MS + 5 * layout.DAY_MS


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> plan.LakePart:
    """One broker over two days."""
    lake = tmp_path_factory.mktemp("parquet") / "lake"
    make(lake, samples.small_recording(), Plan(1, START_MS, 2 * DAY_S, 7200.0, seed=3))
    (one,) = plan.parts(layout.files(lake)[0], 1)
    return one


def work(part: plan.LakePart, out: Path, *, kept: bool = True) -> parquet.ParquetWork:
    return parquet.ParquetWork(7, part, plan.PlanWindow(0, 1 << 52, NOW_MS), 3_600_000, str(out), kept)


def rows_of(folder: Path, pattern: str) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.glob(pattern)) for row in pq.ParquetFile(path).read().to_pylist()]


def key(row: dict[str, Any]) -> str:
    return repr({name: value for name, value in sorted(row.items()) if name not in ("date", "broker")})


def test_rows_are_the_same_whatever_is_held_and_files_replace_themselves(
    part: plan.LakePart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = parquet.write(work(part, tmp_path / "whole"))
    whole = rows_of(tmp_path / "whole", "_jobs/*.parquet")
    assert len(whole) == count > 1000
    assert [path.name for path in tmp_path.glob("whole/_jobs/*")] == ["00007-0.parquet"]
    monkeypatch.setattr(parquet, "ROWS_MAX", 500)
    monkeypatch.setattr(plan.Walk.__init__, "__defaults__", (200_000,))
    for _ in range(2):
        assert parquet.write(work(part, tmp_path / "pieces")) == count
    made = sorted(path.name for path in tmp_path.glob("pieces/_jobs/*"))
    assert len(made) > 2
    assert made == [f"00007-{at}.parquet" for at in range(len(made))]
    assert sorted(map(key, rows_of(tmp_path / "pieces", "_jobs/*.parquet"))) == sorted(map(key, whole))


def test_files_for_jobs_are_sorted_by_metric_and_say_which_they_have(
    part: plan.LakePart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 1000)
    parquet.write(work(part, tmp_path, kept=False))
    assert [path.name for path in tmp_path.iterdir()] == ["_jobs"]
    (path,) = tmp_path.glob("_jobs/*")
    file = pq.ParquetFile(path)
    metrics = [row["metric"] for row in file.read(columns=["metric"]).to_pylist()]
    assert metrics == sorted(metrics)
    at = file.schema_arrow.names.index("metric")
    spans = [file.metadata.row_group(n).column(at).statistics for n in range(file.metadata.num_row_groups)]
    assert len(spans) > 2
    assert sum(span.min <= names.IN <= span.max for span in spans) < len(spans)


def test_tables_that_are_not_kept_have_what_jobs_ask_and_the_same_notes(part: plan.LakePart, tmp_path: Path) -> None:
    parquet.write(work(part, tmp_path / "kept"))
    parquet.write(work(part, tmp_path / "asked", kept=False))
    rows, fewer = ([*rows_of(tmp_path / name, "_jobs/*")] for name in ("kept", "asked"))
    wanted = [row for row in rows if row["metric"] in names.ASKED or row["kind"] in ("fault", "ingest", "cluster")]
    assert sorted(map(key, fewer)) == sorted(map(key, wanted))
    assert {row["kind"] for row in fewer} >= {"counter", "gauge", "histogram", "ingest"}
    assert len(fewer) < len(rows)


def test_the_table_by_date_and_broker_has_the_same_rows(part: plan.LakePart, tmp_path: Path) -> None:
    parquet.write(work(part, tmp_path))
    for folder in tmp_path.glob("date=*"):
        day = folder.name.removeprefix("date=")
        mine = [row for row in rows_of(tmp_path, "_jobs/*.parquet") if row["date"] == day]
        assert sorted(map(key, rows_of(folder, "broker=b1/*.parquet"))) == sorted(map(key, mine))
        assert {layout.date_of(round(row["ts"].timestamp() * 1000)) for row in mine} == {day}
    assert len(list(tmp_path.glob("date=*"))) == 3


@pytest.mark.parametrize(("value", "folder"), [("b1", "b=b1"), ("ä b", "b=ä b"), ("a/b:c=%\n", "b=a%2Fb%3Ac%3D%25%0A")])
def test_folders_are_named_as_spark_reads_them(value: str, folder: str) -> None:
    assert parquet.folder_name("b", value) == folder
