"""T2: kill -9 of a writing process, at random moments and within its system calls."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


NO_LIMIT = 1_000_000
WAIT_S = 300.0


def kill_for(seconds: float, tmp_path: Path, *options: str) -> int:
    """The number of kills.  The parent of the forked children is a process of its own, not this one with threads."""
    command = [
        sys.executable,
        "-m",
        "tests.store_faults.kill9",
        "--kills",
        str(NO_LIMIT),
        "--seconds",
        str(seconds),
        "--directory",
        str(tmp_path),
        *options,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S + seconds, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    found = re.search(r"(\d+) kills, nothing acknowledged was lost", done.stdout)
    assert found is not None, done.stdout
    return int(found[1])


def test_a_killed_writer_loses_nothing_in_a_short_run(tmp_path: Path) -> None:
    assert kill_for(3.0, tmp_path) >= 1


@pytest.mark.sweep
@pytest.mark.parametrize("options", [[], ["--no-sync"]], ids=["sync", "no-sync"])
def test_a_killed_writer_loses_nothing_that_it_acknowledged(
    tmp_path: Path, options: list[str], sweep_seconds: float
) -> None:
    assert kill_for(sweep_seconds, tmp_path, *options) >= 1
