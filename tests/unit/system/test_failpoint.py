"""A process ends at the step that RB_FAILPOINT names, and nowhere else."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from raybroker.model.errors import ConfigError
from raybroker.system import failpoint

PROGRAM = """
import sys
from raybroker.system.failpoint import arm, failpoint
arm(sys.argv[1], sys.argv[2] or None)
for turn in range(4):
    failpoint("first")
    failpoint("second")
    print(turn, flush=True)
"""


def ended(role: str, text: str) -> tuple[int, int]:
    """(status, turns) of a process that goes through two steps four times."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, role, text], capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, len(done.stdout.split())


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        ("first:1:kill", 0),
        ("second:3:kill", 2),
        ("b1/h?@second:2:kill", 1),
        ("first:5:kill", 4),
        ("third:1:kill", 4),
        ("b2*@first:1:kill", 4),
        ("", 4),
    ],
)
def test_the_nth_time_at_the_step_is_the_last(text: str, turns: int) -> None:
    assert ended("b1/h1", text) == (0 if turns == 4 else -signal.SIGKILL, turns)


def test_a_step_may_fail_as_a_disk_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoint, "_armed", None)
    failpoint.arm("b1/h1", "b1/h1@second:2:fail")
    for step in ("first", "second", "first"):
        failpoint.failpoint(step)
    with pytest.raises(OSError, match="failpoint second"):
        failpoint.failpoint("second")
    failpoint.failpoint("second")


def test_a_file_works_once(tmp_path: Path) -> None:
    file = tmp_path / "failpoint"
    assert ended("b1", f"@{file}") == (0, 4)
    file.touch()  # as it is between its making and its writing
    assert ended("b1", f"@{file}") == (0, 4)
    file.write_text("b1@second:2:kill\n")
    assert ended("b2", f"@{file}") == (0, 4)
    assert ended("b1", f"@{file}") == (-signal.SIGKILL, 1)
    assert not file.exists()
    assert ended("b1", f"@{file}") == (0, 4)


@pytest.mark.parametrize("text", ["first", "first:x:kill", "first:1:stop", ":1:kill"])
def test_a_text_that_says_nothing_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoint, "_armed", None)
    with pytest.raises(ConfigError, match="RB_FAILPOINT"):
        failpoint.arm("b1", text)
    assert not failpoint.armed()


def test_a_step_may_take_longer_in_each_process_for_as_long_as_the_file_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(failpoint.SystemClock, "sleep", lambda _, seconds: slept.append(seconds))
    monkeypatch.setattr(failpoint, "_armed", None)
    file = tmp_path / "failpoint"
    file.write_text("second:1:wait")
    for process in (1, 2):
        failpoint.arm("b1/h1", f"@{file}")
        for step in ("first", "second", "second"):
            failpoint.failpoint(step)
        assert slept == [failpoint.WAIT_S] * process
