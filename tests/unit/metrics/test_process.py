"""The rows of a process are keys of the catalogue, and say what the process has just done."""

from __future__ import annotations

import threading
from pathlib import Path

from raybroker.metrics import process
from raybroker.metrics.catalogue import QUANTITIES


def test_all_figures_are_there_by_the_keys_of_the_catalogue() -> None:
    row = process.row("host", 1 << 50)
    expected = {key for key in QUANTITIES if key.startswith("process_")} | {"memory_limit_bytes"}
    assert row.keys() == expected
    assert all(row[key].keys() == {"host"} for key in expected if key != "memory_limit_bytes")
    assert 1 << 20 < row["process_resident_bytes"]["host"] < row["memory_limit_bytes"]
    assert row["process_cpu_seconds_total"]["host"] > 0


def test_a_thread_and_an_open_file_count(tmp_path: Path) -> None:
    before, over = process.row("broker", 1), threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    with (tmp_path / "file").open("w"):
        after = process.row("broker", 1)
    over.set()
    thread.join()
    assert after["process_threads"]["broker"] == before["process_threads"]["broker"] + 1
    assert after["process_open_files"]["broker"] == before["process_open_files"]["broker"] + 1
