"""Reading of a lake without Spark: in this process and in others, with the same files and the same errors."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from raybroker.analysis import run, tables
from raybroker.analysis.lake import lake as layout
from raybroker.analysis.lake import parquet, plan, reading
from raybroker.analysis.lake.plan import PlanWindow
from raybroker.analysis.spark import masters
from tests.analysis import samples

WINDOW = PlanWindow(0, run.FOREVER_MS, samples.START_MS + 400 * layout.DAY_MS)


def drafted(lake: Path, out: Path) -> tables.Draft:
    return tables.draft(lake, out, WINDOW, step_ms=1000, tasks=2)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.parquet")}


def test_a_thread_and_processes_write_the_same_files(tmp_path: Path) -> None:
    lake = samples.real_lake(tmp_path / "lake", rotate_ms=10_000)
    made = {}
    for name, size in {"thread": reading.HERE_BYTES, "processes": reading.HERE_BYTES + 1}.items():
        works = drafted(lake, tmp_path / name).works
        assert len(works) >= 2
        with reading.begun(works, size, 2) as wait:
            rows = wait()
        made[name] = rows, content(tmp_path / name)
    assert made["thread"] == made["processes"]
    assert made["thread"][0] > 1000
    assert made["thread"][1]


@pytest.mark.parametrize("size", [0, reading.HERE_BYTES + 1])
def test_what_a_part_raises_is_raised_to_who_waits(tmp_path: Path, size: int) -> None:
    works = drafted(samples.real_lake(tmp_path / "lake"), tmp_path / "out").works
    (tmp_path / "file").write_text("no folder")
    broken = [work._replace(out=str(tmp_path / "file")) for work in works]
    with reading.begun(broken, size, 2) as wait, pytest.raises(OSError, match="file"):
        wait()


def test_a_process_that_is_ended_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    works = drafted(samples.real_lake(tmp_path / "lake"), tmp_path / "out").works
    monkeypatch.setattr(reading, "_CODE", "import os, signal; os.kill(os.getpid(), signal.SIGKILL) # {path}")
    with reading.begun(works, reading.HERE_BYTES + 1, 1) as wait, pytest.raises(OSError, match="ended with -9"):
        wait()


@pytest.mark.parametrize("size", [0, reading.HERE_BYTES + 1])
def test_a_block_that_ends_early_leaves_the_rest_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    works = drafted(samples.real_lake(tmp_path / "lake", rotate_ms=10_000), tmp_path / "out").works
    assert len(works) >= 2
    begun, leave, written = threading.Event(), threading.Event(), []

    def write(work: parquet.ParquetWork) -> int:
        begun.set()
        leave.wait(30)
        written.append(work.number)
        return 0

    monkeypatch.setattr(parquet, "write", write)
    monkeypatch.setattr(reading, "_CODE", "import time; time.sleep(600) # {path}")
    with reading.begun(works, size, 1):
        if size == 0:
            assert begun.wait(30)
            threading.Timer(0.2, leave.set).start()
    assert written == ([0] if size == 0 else [])


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[3]", 3), ("local[2, 4]", 2), ("local-cluster[2, 3, 99]", 6)]
)
def test_a_local_master_says_how_many_tasks_run_at_once(master: str, cores: int) -> None:
    assert masters.cores(master) == cores


def test_all_cores_are_at_least_one() -> None:
    assert masters.cores("local[*]") >= 1


def test_a_draft_is_what_is_known_before_reading(tmp_path: Path) -> None:
    lake = samples.real_lake(tmp_path / "lake")
    (tmp_path / "out" / "date=2020-01-01").mkdir(parents=True)
    made = drafted(lake, tmp_path / "out")
    assert made.brokers == ["b1", "b2"]
    assert made.step_ms == 1000
    assert made.lake_bytes == sum(file.size for file in layout.files(lake)[0])
    assert {work.part for work in made.works} == set(plan.parts(layout.files(lake.absolute())[0], 2, 1000))
    assert not list((tmp_path / "out").glob("date=*"))
