"""T2: kill -9 of a writing process, at random moments and within its system calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("kills", "options"), [(200, []), (100, ["--no-sync"])], ids=["sync", "no-sync"])
def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path: Path, kills: int, options: list[str]) -> None:
    """The children are forked, so their parent is a process of its own and not this one with its threads."""
    command = [sys.executable, "-m", "tests.store_faults.kill9", "--kills", str(kills), "--directory", str(tmp_path)]
    done = subprocess.run(command + options, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{kills} kills" in done.stdout
