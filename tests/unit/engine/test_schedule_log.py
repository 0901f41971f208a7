"""The log of schedules: what notes, blocks and a checkpoint bring back."""

from __future__ import annotations

import pytest

from raybroker.engine.schedules import schedule_log as log
from raybroker.engine.schedules.schedule_log import ENDED_MAX, ScheduleLog, ScheduleRow
from raybroker.model.blocks.record import BLOCK, NOTE, LogEntry
from raybroker.model.errors import StoreDamagedError


def row(number: int = 1, fired: int = 0, last_ms: int = 0) -> ScheduleRow:
    return ScheduleRow(
        number=number,
        id=f"s{number}",
        destination=3,
        expression="every 5s",
        zone="UTC",
        repeat=0,
        catch_up=False,
        ttl_ms=0,
        delay_ms=0,
        created_ms=0,
        fired=fired,
        last_ms=last_ms,
    )


def applied(*entries: LogEntry, start: ScheduleLog | None = None) -> ScheduleLog:
    found = start or ScheduleLog()
    for entry in entries:
        assert ScheduleLog.owns(entry)
        found.apply(entry)
    return found


def test_a_schedule_lives_with_its_firings_until_it_has_ended() -> None:
    found = applied(log.made(row(4), b"m"), log.fired(row(4, 2, 77)))
    assert (found.rows, found.next_number) == ({4: row(4, 2, 77)}, 5)
    assert found.needs(3)
    found = applied(log.ended(row(4)), start=found)
    assert (found.rows, found.dead, list(found.ended)) == ({}, [4], ["s4"])
    assert not found.needs(3)


def test_a_checkpoint_keeps_counts_and_blocks_that_it_does_not_name_are_dead() -> None:
    before = applied(log.made(row(1), b""), log.fired(row(1, 3, 9)), log.made(row(2), b""), log.ended(row(2)))
    again = ScheduleLog.decode(before.encode())
    with pytest.raises(StoreDamagedError, match="schedule 1 is to be there"):
        again.check_complete()
    applied(log.made(row(1), b""), log.made(row(2), b""), log.made(row(3), b""), start=again)
    again.check_complete()
    assert (again.rows, again.dead) == ({1: row(1, 3, 9), 3: row(3)}, [2])
    assert list(again.ended) == ["s2"]
    assert ScheduleLog.decode(b"") == ScheduleLog()


def test_ids_of_the_latest_that_ended_are_remembered() -> None:
    found = ScheduleLog()
    for number in range(ENDED_MAX + 2):
        found.remember(str(number))
    assert len(found.ended) == ENDED_MAX
    assert "1" not in found.ended
    assert "2" in found.ended


def test_what_does_not_decode_is_damage() -> None:
    for kind, meta in ((NOTE, b"{"), (NOTE, b"{}"), (BLOCK, b"[]"), (BLOCK, b"{}")):
        with pytest.raises(StoreDamagedError):
            ScheduleLog().apply(LogEntry(kind, 0, 1, meta))
    with pytest.raises(StoreDamagedError):
        ScheduleLog.decode(b"{}")
    assert not ScheduleLog.owns(LogEntry(NOTE, 0, 0, b'["decided"]'))
