"""The alarm of a disk that is nearly full: told once, and once when there is room again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybroker.engine.measuring.disk_alarm import BYTES, LOOK_TICKS, PERCENT, DiskAlarm, is_low
from raybroker.engine.ports import Notice

MIB = 1 << 20


class Disk:
    """A disk of 1000 MiB."""

    def __init__(self, percent: int = 10, least: int = 0) -> None:
        self.free = 1000
        self.fails = False
        self.lines: list[str] = []
        self.config: Any = {PERCENT: percent, BYTES: least * MIB}
        self.alarm = DiskAlarm(self._space, self.config, "/stores/h1", self.lines.append)

    def _space(self) -> tuple[int, int]:
        if self.fails:
            raise OSError("it is gone")
        return self.free * MIB, 1000 * MIB

    def told(self, free: int) -> list[str]:
        self.free = free
        for _ in range(LOOK_TICKS):
            self.alarm.check_disk()
        found, self.lines[:] = list(self.lines), []
        return found


def test_it_is_told_when_it_begins_and_when_it_ends() -> None:
    disk = Disk()
    assert disk.told(100) == []
    (line,) = disk.told(99)
    assert line == (
        "[B2159] the disk is nearly full: 99 of 1000 MiB are free on the disk of /stores/h1"
        " (raybroker.store.low_free_percent=10, raybroker.store.low_free_bytes=0); when it is full, persistent messages"
        " are refused: free space, or have messages consumed"
    )
    assert disk.told(50) == disk.told(109) == []
    assert disk.alarm.disk_row() == {
        "disk_low": True,
        "disk_critical": False,
        "disk_free_bytes": 109 * MIB,
        "disk_total_bytes": 1000 * MIB,
    }
    assert disk.alarm.figures() == {"disk_low": 1, "disk_free_bytes": 109 * MIB}
    (line,) = disk.told(110)
    assert isinstance(line, Notice)
    assert line.startswith("[B1159] the disk has room again: 110 of 1000 MiB are free")


def test_it_is_critical_from_a_tenth_of_what_is_low() -> None:
    disk = Disk()
    found = {}
    for free in (10, 9, 10):
        disk.told(free)
        found[free] = disk.alarm.critical
    assert found == {10: False, 9: True}
    disk = Disk(percent=0, least=500)
    disk.told(49)
    assert disk.alarm.critical


def test_a_change_of_the_properties_holds_at_the_next_look() -> None:
    disk = Disk(percent=0)
    assert disk.told(0) == []
    disk.config[BYTES] = 1 * MIB
    assert len(disk.told(0)) == 1


def test_a_disk_that_cannot_be_looked_at_changes_nothing() -> None:
    disk = Disk()
    assert len(disk.told(5)) == 1
    disk.fails = True
    assert disk.told(900) == []
    assert disk.alarm.low


@pytest.mark.parametrize(
    ("free", "percent", "least", "low"), [(49, 5, 0, True), (50, 5, 0, False), (50, 0, 51, True), (50, 0, 50, False)]
)
def test_either_property_makes_it_low(free: int, percent: int, least: int, low: bool) -> None:
    assert is_low(free, 1000, percent, least, before=False) is low


@given(free=st.integers(0, 1 << 40), total=st.integers(1, 1 << 40), percent=st.integers(0, 100), least=st.integers(0))
def test_what_is_low_stays_low_for_a_tenth_more(free: int, total: int, percent: int, least: int) -> None:
    low = is_low(free, total, percent, least, before=False)
    assert not low or is_low(free, total, percent, least, before=True)
    later = is_low(free * 11 // 10 + 1, total, percent, least, before=True)
    assert low or not later
