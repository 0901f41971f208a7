"""Which lines go where, and how they look (M-02, M-03, M-05, M-06)."""

from __future__ import annotations

import io
import json
import logging
import sys
import syslog
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.config import Config
from raybroker.config.live import LiveConfig
from raybroker.errors import ConfigError
from raybroker.logs import categories
from raybroker.logs.channels import Log, Syslog, check, directory_of
from raybroker.logs.lines import JsonFormat, TextFormat, stamp_of, zone_of

LOGGER = logging.getLogger("raybroker.test")
WRITE = {"ERROR": LOGGER.error, "WARNING": LOGGER.warning, "INFO": LOGGER.info, None: LOGGER.debug}


class Started(NamedTuple):
    log: Log
    config: LiveConfig


Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a log with settings; it ends with the test."""
    started: list[Log] = []

    def make(**settings: Any) -> Started:
        config = LiveConfig(
            Config.from_values(
                {
                    "imq.log.console.output": "NONE",
                    "imq.log.syslog.output": "NONE",
                    **{name.replace("__", "."): value for name, value in settings.items()},
                }
            )
        )
        log = Log(config.__getitem__, tmp_path, {"cluster": "c", "broker": "b1"})
        log.start()
        started.append(log)
        return Started(log, config)

    yield make
    for log in started:
        log.stop()


def write_all() -> None:
    for category, write in WRITE.items():
        write("a line of category %s", category)


def written(path: Path) -> list[str]:
    """The categories of the lines in the file."""
    return [line.split()[-1] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize(
    ("level", "output", "expected"),
    [
        ("INFO", "ALL", ["ERROR", "WARNING", "INFO"]),
        ("WARNING", "ALL", ["ERROR", "WARNING"]),
        ("ERROR", "ALL", ["ERROR"]),
        ("NONE", "ALL", []),
        ("INFO", "NONE", []),
        ("INFO", "INFO", ["INFO"]),
        ("INFO", "ERROR|WARNING", ["ERROR", "WARNING"]),
        ("INFO", "info | error", ["ERROR", "INFO"]),
        ("ERROR", "INFO", []),
        ("WARNING", "INFO|WARNING", ["WARNING"]),
    ],
)
def test_a_level_is_cumulative_and_a_channel_exact(
    start: Start, tmp_path: Path, level: str, output: str, expected: list[str]
) -> None:
    start(imq__log__level=level, imq__log__file__output=output)
    write_all()
    assert written(tmp_path / "log.txt") == expected


def test_the_case_of_the_manual(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    console = io.StringIO()
    monkeypatch.setattr(sys, "stderr", console)
    start(imq__log__console__output="ERROR|WARNING", imq__log__file__output="INFO")
    write_all()
    assert [line.split()[-1] for line in console.getvalue().splitlines()] == ["ERROR", "WARNING"]
    assert written(tmp_path / "log.txt") == ["INFO"]


def test_the_console_can_be_standard_output(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    console = io.StringIO()
    monkeypatch.setattr(sys, "stdout", console)
    start(imq__log__console__output="ERROR", imq__log__console__stream="OUT")
    write_all()
    assert len(console.getvalue().splitlines()) == 1


def test_the_level_changes_while_the_log_is_open(start: Start, tmp_path: Path) -> None:
    config = start(imq__log__level="ERROR").config
    write_all()
    config.replace({"imq.log.level": "INFO"})
    write_all()
    assert written(tmp_path / "log.txt") == ["ERROR", "ERROR", "WARNING", "INFO"]


def test_lines_are_counted_wherever_they_go(start: Start) -> None:
    log = start(imq__log__level="NONE").log
    write_all()
    LOGGER.critical("worse")
    assert log.counts == {"ERROR": 2, "WARNING": 1, "INFO": 1}


def test_nothing_is_written_after_the_end(start: Start, tmp_path: Path) -> None:
    start().log.stop()
    write_all()
    assert written(tmp_path / "log.txt") == []


@pytest.mark.parametrize("text", ["", "ERROR|", "FATAL", "ALL|INFO", "NONE|ERROR"])
def test_an_output_that_is_none_is_refused_by_its_setting(start: Start, text: str) -> None:
    with pytest.raises(ConfigError, match=r"imq\.log\.file\.output"):
        start(imq__log__file__output=text or " ")


@given(st.sets(st.sampled_from(["ERROR", "WARNING", "INFO"]), min_size=1))
def test_an_output_is_the_set_that_is_named(names: set[str]) -> None:
    assert categories.of_output("|".join(sorted(names)), setting="x") == names


# ---- what lines look like --------------------------------------------------------------------------------------------


def record(text: str, level: int = logging.INFO, at: float = 1_700_000_000.25, **fields: Any) -> logging.LogRecord:
    made = logging.LogRecord("raybroker.host", level, __file__, 1, text, None, None)
    made.created = at
    if fields:
        made.fields = fields
    return made


def test_a_line_has_time_zone_severity_code_and_text() -> None:
    shape = TextFormat(zone_of("Asia/Tokyo"))
    assert shape.format(record("[B1004] starting")) == "[2023-11-15T07:13:20.250+09:00 JST] [B1004]: starting"
    assert shape.format(record("no code")) == "[2023-11-15T07:13:20.250+09:00 JST]: no code"
    assert shape.format(record("[B2102] clocks", logging.WARNING)) == (
        "[2023-11-15T07:13:20.250+09:00 JST] WARNING [B2102]: clocks"
    )
    assert shape.format(record("bad", logging.CRITICAL)).endswith("] ERROR: bad")


def test_a_failure_has_its_trace() -> None:
    made = record("it broke", logging.ERROR)
    try:
        raise ValueError("why")
    except ValueError:
        made.exc_info = sys.exc_info()
    text = TextFormat(zone_of("UTC")).format(made)
    assert text.splitlines()[0].endswith("ERROR: it broke")
    assert text.splitlines()[-1] == "ValueError: why"


def test_json_has_everything_apart() -> None:
    shape = JsonFormat(zone_of("UTC"), {"cluster": "c", "broker": "b1", "host": "h2"})
    line = shape.format(record('[B2104] a "quoted"\nthing', logging.WARNING, event="Expired", count=3))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250+00:00",
        "category": "WARNING",
        "cluster": "c",
        "broker": "b1",
        "host": "h2",
        "logger": "raybroker.host",
        "code": "B2104",
        "text": 'a "quoted"\nthing',
        "event": "Expired",
        "count": 3,
    }


@pytest.mark.parametrize("shape", [TextFormat(zone_of("America/Lima")), JsonFormat(None, {})])
def test_the_time_of_a_line_can_be_read_again(shape: logging.Formatter) -> None:
    assert stamp_of(shape.format(record("x", at=1_700_000_123.5))) == 1_700_000_123.5


def test_other_lines_have_no_time() -> None:
    assert [stamp_of(line) for line in ("", "text", "[text]", "[99-99]", '{"time":"never"}')] == [None] * 5


def test_local_time_is_that_of_the_machine() -> None:
    line = TextFormat(zone_of("local")).format(record("x"))
    here = datetime.fromtimestamp(1_700_000_000.25).astimezone()
    assert line.startswith(f"[{here.isoformat(timespec='milliseconds')} {here.tzname()}]")


@pytest.mark.parametrize("zone", ["Mars/Olympus", "/etc/passwd", "", "Asia"])
def test_a_zone_that_there_is_not_is_refused(zone: str) -> None:
    with pytest.raises(ConfigError, match=r"imq\.log\.timezone"):
        zone_of(zone)


# ---- syslog ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pid", "console", "options"),
    [(True, False, syslog.LOG_PID), (False, True, syslog.LOG_CONS), (False, False, 0)],
)
def test_syslog_is_opened_as_the_settings_say(pid: bool, console: bool, options: int) -> None:
    opened: list[tuple[str, int, int]] = []
    lines: list[tuple[int, str]] = []
    handler = Syslog(
        "imqbrokerd_b1",
        "LOG_LOCAL3",
        pid=pid,
        console=console,
        opened=lambda *args: opened.append(args),
        written=lambda *args: lines.append(args),
    )
    for level in (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG):
        handler.handle(record("te\0xt", level))
    assert opened == [("imqbrokerd_b1", options, syslog.LOG_LOCAL3)]
    assert lines == [(syslog.LOG_ERR, "te xt"), (syslog.LOG_WARNING, "te xt"), (syslog.LOG_INFO, "te xt")]


@pytest.mark.parametrize(
    ("given", "host", "expected"),
    [("", "", "stores/b1/log"), ("", "h2", "stores/b1/log/h2"), ("logs", "", "logs/b1"), ("logs", "h2", "logs/b1/h2")],
)
def test_every_process_has_a_file_of_its_own(given: str, host: str, expected: str) -> None:
    config = Config.from_values({"imq.log.file.dirpath": given} if given else {})
    assert directory_of(config.__getitem__, Path("stores/b1"), "b1", host) == Path(expected)


@pytest.mark.parametrize(("name", "value"), [("imq.log.timezone", "Mars/Olympus"), ("imq.log.syslog.output", "LOUD")])
def test_what_no_log_can_be_made_of_is_refused_before_the_start(name: str, value: str) -> None:
    check(Config.from_values({}).__getitem__)
    with pytest.raises(ConfigError, match=name):
        check(Config.from_values({name: value}).__getitem__)
