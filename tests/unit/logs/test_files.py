"""A log file rolls by size or by age, keeps nine archives, and never costs the process anything (M-04)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.logs.files import ARCHIVES_MAX, RollingFile
from raybroker.logs.lines import JsonFormat, TextFormat, zone_of

START_S = 1_700_000_000.0


class Written:
    """A rolling file; ``say`` writes a line at a time of the test's own."""

    def __init__(self, folder: Path, most: int = -1, age_s: int = -1, shape: logging.Formatter | None = None) -> None:
        self.limits = (most, age_s)
        self.path = folder / "log.txt"
        self.handler = RollingFile(self.path, lambda: self.limits)
        self.handler.setFormatter(shape or logging.Formatter("%(message)s"))

    def say(self, text: str, at: float = START_S) -> None:
        record = logging.LogRecord("raybroker", logging.INFO, __file__, 1, text, None, None)
        record.created = at
        self.handler.handle(record)

    def files(self) -> dict[str, list[str]]:
        return {path.name: path.read_text().splitlines() for path in sorted(self.path.parent.glob("log*"))}


def test_it_rolls_before_a_line_that_would_be_too_much(tmp_path: Path) -> None:
    log = Written(tmp_path, most=20)
    for text in ("123456789", "abcdefghi", "X", "a line that is longer than the limit", "Y"):
        log.say(text)
    assert log.files() == {
        "log.txt": ["Y"],
        "log_1.txt": ["a line that is longer than the limit"],
        "log_2.txt": ["X"],
        "log_3.txt": ["123456789", "abcdefghi"],
    }


def test_the_newest_nine_archives_are_kept(tmp_path: Path) -> None:
    log = Written(tmp_path, most=1)
    for number in range(15):
        log.say(str(number))
    files = log.files()
    assert len(files) == ARCHIVES_MAX + 1
    assert files["log.txt"] == ["14"]
    assert [files[f"log_{n}.txt"] for n in range(1, 10)] == [[str(14 - n)] for n in range(1, 10)]


def test_it_rolls_when_it_is_old(tmp_path: Path) -> None:
    log = Written(tmp_path, age_s=100)
    log.say("first")
    log.say("soon", START_S + 99)
    log.say("later", START_S + 100)
    assert log.files() == {"log.txt": ["later"], "log_1.txt": ["first", "soon"]}


@pytest.mark.parametrize("shape", [TextFormat(zone_of("Asia/Tokyo")), JsonFormat(None, {})])
def test_the_age_outlives_a_restart(tmp_path: Path, shape: logging.Formatter) -> None:
    Written(tmp_path, shape=shape).say("before the restart")
    log = Written(tmp_path, age_s=100, shape=shape)
    log.say("after it", START_S + 50)
    assert set(log.files()) == {"log.txt"}
    log.say("old by now", START_S + 101)
    assert len(log.files()["log_1.txt"]) == 2


def test_limits_can_be_changed_while_it_is_open(tmp_path: Path) -> None:
    log = Written(tmp_path)
    log.say("a" * 1000)
    log.say("b" * 1000)
    log.limits = (100, -1)
    log.say("c")
    assert len(log.files()["log_1.txt"]) == 2


@given(st.lists(st.integers(1, 30), max_size=30), st.integers(1, 60))
def test_no_line_is_lost_or_cut(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], most: int) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = Written(folder, most=most)
    lines = [f"{number:03}".ljust(size, ".") for number, size in enumerate(sizes)]
    for line in lines:
        log.say(line)
    files = log.files()
    kept = [line for n in range(ARCHIVES_MAX, 0, -1) for line in files.get(f"log_{n}.txt", [])]
    kept += files.get("log.txt", [])
    assert kept == lines[len(lines) - len(kept) :]
    assert len(kept) == len(lines) or len(files) == ARCHIVES_MAX + 1
    for name, written in files.items():
        assert sum(len(line) + 1 for line in written) <= most or len(written) == 1, name


def test_a_directory_that_cannot_be_written_costs_lines_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "gone"
    folder.write_text("a file where the directory should be")
    log = Written(folder)
    log.say("lost")
    log.say("lost too")
    assert capsys.readouterr().err.count("are lost") == 1
    folder.unlink()
    log.say("here again")
    assert log.files() == {"log.txt": ["2 lines were lost before this one", "here again"]}


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    log = Written(tmp_path / "log", most=1)
    log.say("a")
    log.say("b")
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "log", *(tmp_path / "log").iterdir())} == {0}


def test_the_name_of_an_archive_keeps_the_ending(tmp_path: Path) -> None:
    assert RollingFile(tmp_path / "messages.log", lambda: (-1, -1)).archive(3).name == "messages_3.log"
