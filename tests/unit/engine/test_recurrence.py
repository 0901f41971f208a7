"""When schedules are due, on ordinary days and on those that are an hour shorter or longer (B17)."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raybroker.engine.schedules.recurrence import Recurrence, recurrence
from raybroker.model.errors import ConfigError

BERLIN = "Europe/Berlin"
FORWARD = "2026-03-29T00:00:00"
"""Clocks in Berlin go from 02:00 to 03:00 this night."""
BACK = "2026-10-25T00:00:00"
"""And from 03:00 to 02:00 this one."""


def ms(text: str, zone: str = BERLIN, fold: int = 0) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1000)


def shown(at_ms: int, zone: str = BERLIN) -> str:
    """Day, time and difference to UTC."""
    return datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)).strftime("%d %H:%M:%S%z").removesuffix("00")


def series(rule: Recurrence, after_ms: int, count: int) -> list[int]:
    found = []
    for _ in range(count):
        at_ms = rule.after(after_ms)
        assert at_ms is not None
        found.append(after_ms := at_ms)
    return found


def days(expression: str, start: str, count: int, zone: str = BERLIN) -> list[str]:
    return [shown(at, zone) for at in series(recurrence(expression, zone), ms(start, zone), count)]


def test_an_expression_is_due_in_its_time_zone() -> None:
    monday = "2026-06-01T07:59:59"
    assert days("0 8 * * MON-FRI", monday, 2) == ["01 08:00:00+02", "02 08:00:00+02"]
    assert days("0 8 * * mon-fri", "2026-06-05T08:00:00", 1) == ["08 08:00:00+02"]  # Over the weekend.
    assert recurrence("0 8 * * *", BERLIN).after(ms(monday)) == ms("2026-06-01T06:00:00", "UTC")
    assert days("0 8 * * *", monday, 1, "Asia/Kolkata") == ["01 08:00:00+0530"]


def test_nicknames_stand_for_expressions() -> None:
    start = "2026-06-03T10:20:00"
    assert days("@hourly", start, 2) == ["03 11:00:00+02", "03 12:00:00+02"]
    assert days("@daily", start, 1) == days("@midnight", start, 1) == ["04 00:00:00+02"]
    assert days("@weekly", start, 1) == ["07 00:00:00+02"]
    assert days("@monthly", start, 1) == ["01 00:00:00+02"]
    assert days("@Yearly", start, 1) == days("@annually", start, 1) == ["01 00:00:00+01"]


def test_either_day_is_enough_unless_one_begins_with_a_star() -> None:
    assert days("0 0 13 * FRI", "2026-06-01T00:00:00", 3) == ["05 00:00:00+02", "12 00:00:00+02", "13 00:00:00+02"]
    assert days("0 0 */1 * FRI", "2026-06-01T00:00:00", 2) == ["05 00:00:00+02", "12 00:00:00+02"]
    assert days("0 0 L * *", "2026-02-01T00:00:00", 1) == ["28 00:00:00+01"]


def test_what_falls_into_the_gap_is_due_right_after_it() -> None:
    assert days("30 2 * * *", FORWARD, 2) == ["29 03:00:00+02", "30 02:30:00+02"]
    assert days("0,30 2 * * *", FORWARD, 3) == ["29 03:00:00+02", "30 02:00:00+02", "30 02:30:00+02"]


def test_what_comes_twice_is_due_once() -> None:
    assert days("30 2 * * *", BACK, 2) == ["25 02:30:00+02", "26 02:30:00+01"]
    second = ms("2026-10-25T02:15:00", fold=1)  # The second quarter past two: half past has been.
    assert shown(recurrence("30 2 * * *", BERLIN).after(second) or 0) == "26 02:30:00+01"


def test_an_hourly_one_goes_by_the_clock_on_the_wall() -> None:
    assert days("0 * * * *", FORWARD, 3) == ["29 01:00:00+01", "29 03:00:00+02", "29 04:00:00+02"]
    assert days("0 * * * *", BACK, 4) == ["25 01:00:00+02", "25 02:00:00+02", "25 02:00:00+01", "25 03:00:00+01"]
    assert days("*/30 2 * * *", FORWARD, 1) == ["30 02:00:00+02"]


def test_an_interval_does_not_know_of_clocks_on_walls() -> None:
    start = ms(BACK)
    assert series(recurrence("@every 1h30m", BERLIN), start, 3) == [start + n * 5_400_000 for n in (1, 2, 3)]
    for text, span in (("@every 1s", 1), ("@EVERY 90s", 90), ("@every 2d", 172_800), ("@every 1m 30s", None)):
        if span is None:
            with pytest.raises(ConfigError, match="interval"):
                recurrence(text)
        else:
            assert recurrence(text).after(5) == 5 + span * 1000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("* * * *", "4 fields"),
        ("* * * * * *", "6 fields"),
        ("60 * * * *", "minute"),
        ("0 24 * * *", "hour"),
        ("0 0 30 2 *", "day-of-month"),
        ("0 0 * * MON-SUN", "day-of-week"),
        ("@often", "known are"),
        ("@every", "interval"),
        ("@every 10", "interval"),
        ("@every 0s", "allowed are 1000"),
        ("@every 4000d", "allowed are 1000"),
        ("@every 999999999d999999999d", "allowed"),
        ("", "1 to 256"),
        ("0 " * 200, "1 to 256"),
    ],
)
def test_what_means_nothing_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        recurrence(text)


@pytest.mark.parametrize("zone", ["Mars/Base", "Europe", "../etc/passwd", "/etc/passwd", "", "x" * 65, "a\0b"])
def test_an_unknown_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(ConfigError, match="timezone"):
        recurrence("@daily", zone)


def test_other_types_than_text_are_refused() -> None:
    for text, zone in ((5, "UTC"), (None, "UTC"), ("@daily", 5)):
        with pytest.raises(ConfigError):
            recurrence(text, zone)  # type: ignore[arg-type]


ZONES = st.sampled_from(("UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Casablanca"))
EXPRESSIONS = st.sampled_from(
    (
        "30 2 * * *",
        "0 2 * * *",
        "*/20 1-3 * * *",
        "15 */2 * * *",
        "0 * * * *",
        "59 23 * * *",
        "0 0 * * SUN",
        "5,50 2 1 * *",
        "@hourly",
        "@every 7m",
        "@every 1h30m",
        "0 3 29 2 *",
    )
)
STARTS = st.integers(ms("2024-01-01T00:00:00", "UTC"), ms("2027-01-01T00:00:00", "UTC"))
CHANGES = st.sampled_from((ms(FORWARD), ms(BACK))).flatmap(
    lambda at_ms: st.integers(-12 * 3_600_000, 12 * 3_600_000).map(lambda span: at_ms + span)
)


@given(EXPRESSIONS, ZONES, STARTS | CHANGES)
@settings(deadline=None)
def test_occurrences_come_later_and_later_and_none_is_skipped_from_wherever_one_looks(
    expression: str, zone: str, start_ms: int
) -> None:
    rule = recurrence(expression, zone)
    found = series(rule, start_ms, 12)
    assert found == sorted(set(found))
    assert found[0] > start_ms
    if not rule.every_ms:
        for before, at in zip([start_ms, *found], found, strict=False):
            assert rule.after((before + at) // 2) == at
            assert rule.after(at - 1) == at


@given(EXPRESSIONS, ZONES, STARTS | CHANGES, st.timedeltas(timedelta(0), timedelta(days=3)))
@settings(deadline=None)
def test_the_latest_is_the_last_of_those_that_have_passed(
    expression: str, zone: str, start_ms: int, span: timedelta
) -> None:
    rule = recurrence(expression, zone)
    until_ms = start_ms + round(span.total_seconds() * 1000)
    latest, at_ms = None, rule.after(start_ms)
    while at_ms is not None and at_ms <= until_ms:
        latest, at_ms = at_ms, rule.after(at_ms)
    assert rule.latest(start_ms, until_ms) == latest


def test_the_latest_of_years_is_found_without_counting_them_all() -> None:
    rule = recurrence("* * * * *")
    start, end = ms("1980-01-01T00:00:00", "UTC"), ms("2026-01-01T00:00:30", "UTC")
    assert rule.latest(start, end) == end - 30_000
    assert recurrence("@every 1s").latest(start, end) == end


def test_a_year_past_all_calendars_has_no_occurrence() -> None:
    assert recurrence("0 0 1 1 *").after(ms("9999-06-01T00:00:00", "UTC")) is None
