"""Recurring schedules: they send when it is time, once, and end when they should (B17)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raybroker.core import command as cmd
from raybroker.core.destination import Destination
from raybroker.engine.path.wakeups import AGAIN_MS, Wakeups
from raybroker.engine.schedules import recurrence, schedule_log, schedules
from raybroker.engine.schedules.schedule_log import ScheduleLog, ScheduleRow
from raybroker.engine.schedules.schedules import Schedules
from raybroker.model.blocks.record import BLOCK, NOTE, LogEntry
from raybroker.model.bounds import SCHEDULED_BYTES_MAX
from raybroker.model.errors import ConfigError, InvalidDestinationError, ResourceAllocationError, StoreDamagedError
from tests.unit.engine.parts import Desk
from tests.unit.engine.rig import Client, Rig, made
from tests.unit.engine.scheduling import (
    ID,
    SEQUENCE,
    asked,
    live_blocks,
    message,
    reclaim,
    refused,
    schedule,
    sent,
    sequences,
)

NOW = 1_000_000
"""Of a new rig, milliseconds."""


def rig_with(**attributes: Any) -> Rig:
    rig = Rig()
    rig.create(**attributes)
    return rig


# ---- firing --------------------------------------------------------------------------------------------------------


def test_a_message_is_sent_at_every_occurrence_as_one_of_its_own() -> None:
    rig = rig_with()
    schedule(rig, properties={"mine": "x"}, priority=7)
    rig.tick(9_999)
    assert rig.held() == 0
    rig.tick(1)
    rig.tick(10_000)
    client = Client(rig)
    client.consumer()
    first, second = client.blocks()
    assert [first.timestamp_ms, second.timestamp_ms] == [NOW + 10_000, NOW + 20_000]
    assert (first.producer, first.seq_of(0)) != (second.producer, second.seq_of(0))
    assert (first.priority, first.persistent, bytes(first.body(0))) == (7, True, b"tick")
    assert sent(rig) == []  # The consumer has them.


def test_properties_tell_the_schedule_the_firing_and_the_occurrence() -> None:
    rig = rig_with()
    name = schedule(rig, properties={"mine": "x", SEQUENCE: 77})
    rig.tick(10_400)  # It is late.
    ((_, properties),) = rig.waiting("q")
    assert properties == {"mine": "x", ID: name, SEQUENCE: 1, "JMS_RB_SCHEDULE_TIME": NOW + 10_000}


def test_the_host_wants_to_be_woken_when_the_next_one_is_due() -> None:
    rig = rig_with()
    rig.alarms.clear()
    schedule(rig)
    assert NOW + 10_000 in rig.alarms
    rig.tick(10_000)
    assert rig.alarms[-1] == NOW + 20_000


def test_several_schedules_fire_in_the_order_of_their_times() -> None:
    rig = rig_with()
    schedule(rig, name="slow", schedule="@every 15s")
    schedule(rig, name="quick", schedule="@every 10s")
    for _ in range(30):
        rig.tick(1_000)
    assert [name for name, _, _ in sent(rig)] == ["quick", "slow", "quick", "slow", "quick"]


def test_what_is_sent_expires_and_waits_from_its_firing_on() -> None:
    rig = rig_with()
    schedule(rig, ttl_ms=5_000, delay_ms=2_000)
    rig.tick(10_000)
    assert sequences(rig) == []
    rig.tick(2_000)
    client = Client(rig)
    consumer = client.consumer()
    assert client.got(consumer) == ["tick"]
    (block,) = [rig.host.cache.get(rig.destination().number, ordinal) for ordinal in rig.destination().block_index.held]
    assert (block.expires_of(0), block.deliver_at_of(0)) == (NOW + 15_000, NOW + 12_000)


def test_a_destination_overrides_what_a_schedule_sends() -> None:  # W-64, W-65
    rig = rig_with(priorityOverride=2, timeToLiveOverride=7_000)
    schedule(rig, priority=9, ttl_ms=1)
    rig.tick(10_000)
    (block,) = [rig.host.cache.get(rig.destination().number, ordinal) for ordinal in rig.destination().block_index.held]
    assert (block.priority_of(0), block.expires_of(0)) == (2, NOW + 17_000)


def test_a_topic_gives_it_to_its_subscribers() -> None:
    rig = Rig()
    rig.create("t", "topic")
    schedule(rig, "t", "topic", properties={"n": 1})
    rig.tick(10_000)  # Nobody is there.
    client = Client(rig)
    wants = client.consumer("t", "topic", selector=f"{SEQUENCE} > 1")
    not_that = client.consumer("t", "topic", selector="n = 2")
    rig.tick(10_000)
    assert (client.got(wants), client.got(not_that)) == (["tick"], [])


# ---- repeat, missed occurrences, clocks ----------------------------------------------------------------------------


def test_it_ends_after_so_many_firings() -> None:
    rig = rig_with()
    schedule(rig, repeat=2)
    for _ in range(5):
        rig.tick(10_000)
    assert sequences(rig) == [1, 2]
    assert (rig.host.schedules.schedule_rows(), live_blocks(rig)) == ([], [])


@pytest.mark.parametrize("catch_up", [False, True])
def test_what_was_missed_is_made_up_for_by_one_message_or_by_all(catch_up: bool) -> None:
    rig = rig_with()
    schedule(rig, catch_up=catch_up)
    rig.clock.ms += 35_000
    rig = rig.restart()
    rig.tick()
    times = [NOW + n for n in (10_000, 20_000, 30_000)]
    assert [at for _, _, at in sent(rig)] == (times if catch_up else times[-1:])
    assert bool([line for line in rig.reports if "missed" in line]) == (not catch_up)
    rig.tick(5_000)
    assert sent(rig)[-1][2] == NOW + 40_000  # From here on as ever.


def test_a_long_absence_is_made_up_for_in_parts() -> None:
    rig = rig_with()
    schedule(rig, schedule="@every 1s", catch_up=True)
    missed = 2 * schedules.CATCH_UP_MAX + 50
    rig.tick(missed * 1_000)
    assert rig.held() == schedules.CATCH_UP_MAX
    rig.tick()
    rig.tick()
    assert sequences(rig) == list(range(1, missed + 1))


def test_a_clock_that_is_put_back_makes_no_occurrence_come_twice() -> None:
    rig = rig_with()
    schedule(rig, schedule="* * * * *")
    rig.tick(60_000)
    rig.clock.stepped_ms -= 45_000
    for _ in range(45):
        rig.tick(1_000)
    assert sequences(rig) == [1]
    rig.tick(60_000)
    assert sequences(rig) == [1, 2]


def test_an_interval_begins_anew_when_the_clock_is_put_back() -> None:
    rig = rig_with()
    schedule(rig)
    rig.tick(10_000)
    rig.clock.stepped_ms -= 600_000
    rig.tick()
    rig.tick(9_999)
    assert sequences(rig) == [1]
    rig.tick(1)
    rig.tick(10_000)
    assert sequences(rig) == [1, 2, 3]
    rig = rig.restart()
    rig.tick(10_000)
    assert sequences(rig) == [1, 2, 3, 4]


def test_a_clock_that_is_put_forward_misses_what_lies_between() -> None:
    rig = rig_with()
    schedule(rig)
    rig.tick(3_600_000)
    assert [at for _, _, at in sent(rig)] == [NOW + 3_600_000]


# ---- when it is not taken ------------------------------------------------------------------------------------------


def test_a_full_destination_gets_it_when_there_is_room_and_once() -> None:
    rig = rig_with(maxNumMsgs=1)
    schedule(rig)
    rig.tick(10_000)
    rig.tick(10_000)
    assert sequences(rig) == [1]
    (row,) = rig.host.schedules.schedule_rows()
    assert (row["state"], row["fired"]) == ("WAITING", 1)
    rig.tick(15_000)
    rig.host.administration.purge("q", lambda: None)
    rig.tick(schedules.AGAIN_MS)
    assert sent(rig) == [("s1", 2, NOW + 40_000)]  # It stands for those at 20, 30 and 40 s.
    (row,) = rig.host.schedules.schedule_rows()
    assert (row["state"], row["reason"]) == ("ACTIVE", "")


def test_while_producers_are_paused_it_waits() -> None:  # D-26
    rig = rig_with()
    schedule(rig, catch_up=True)
    rig.host.administration.pause("q", "producers", 0)
    rig.tick(20_000)
    rig.tick(2_000)
    assert rig.held() == 0
    assert len([line for line in rig.reports if "does not take it now" in line]) == 1
    rig.host.administration.resume("q", "producers")
    rig.tick(schedules.AGAIN_MS)
    assert sequences(rig) == [1, 2]


def test_a_destination_that_slows_its_producers_slows_schedules() -> None:  # D-10
    rig = rig_with(maxNumMsgs=1, limitBehavior="FLOW_CONTROL")
    schedule(rig)
    for _ in range(4):
        rig.tick(10_000)
    assert sequences(rig) == [1]


def test_a_message_that_cannot_be_read_back_halts_its_schedule_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_with()
    schedule(rig, name="bad")
    schedule(rig, name="good")
    rig.host.cache.retire(0, [1], stored=False)
    read = rig.store.read

    def broken(destination: int, ordinal: int) -> bytes:
        if (destination, ordinal) == (0, 1):
            raise StoreDamagedError("segment 1 is damaged at 77")
        return read(destination, ordinal)

    monkeypatch.setattr(rig.store, "read", broken)
    rig.tick(10_000)
    rig.tick(10_000)
    assert [name for name, _, _ in sent(rig)] == ["good", "good"]
    states = {row["id"]: (row["state"], row["reason"], row["next_ms"]) for row in rig.host.schedules.schedule_rows()}
    assert states["bad"] == ("HALTED", "segment 1 is damaged at 77", None)
    assert states["good"][0] == "ACTIVE"
    rig.host.schedules.destroy("bad", lambda: None)
    rig.sync()
    assert live_blocks(rig) == [2]


def test_a_time_zone_that_is_not_known_any_more_halts_its_schedule_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.create(auto_created=True)
    schedule(rig, name="far", schedule="@hourly", timezone="Asia/Tokyo")
    schedule(rig, name="near")
    zone = recurrence.time_zone

    def known(name: str) -> Any:
        return zone(name if name == "UTC" else "Nowhere/Any")

    monkeypatch.setattr(recurrence, "time_zone", known)
    rig = rig.restart()
    rig.tick(10_000)
    assert [name for name, _, _ in sent(rig)] == ["near"]
    states = {row["id"]: (row["state"], row["next_ms"]) for row in rig.host.schedules.schedule_rows()}
    assert states == {"far": ("HALTED", None), "near": ("ACTIVE", NOW + 20_000)}
    rig.clock.stepped_ms -= 5_000
    rig.host.tick()
    monkeypatch.undo()
    assert {row["state"] for row in rig.restart().host.schedules.schedule_rows()} == {"ACTIVE"}


# ---- made and ended ------------------------------------------------------------------------------------------------


def test_the_answer_comes_when_the_schedule_is_durable() -> None:
    rig = rig_with()
    client = Client(rig)
    handle = client.producer()
    assert client.unanswered("schedule", handle=handle, **asked())
    assert rig.survivor().host.schedules.schedule_rows() == []
    rig.sync()
    assert client.peer.take("reply")[0][2] == {"id": "s1"}
    (row,) = rig.survivor().host.schedules.schedule_rows()
    expected = {
        "id": "s1",
        "type": "queue",
        "destination": "q",
        "schedule": "@every 10s",
        "timezone": "UTC",
        "repeat": None,
        "catch_up": False,
        "ttl_ms": 0,
        "delivery_delay_ms": 0,
        "fired": 0,
        "last_ms": None,
        "next_ms": NOW + 10_000,
        "created_ms": NOW,
        "state": "ACTIVE",
        "reason": "",
    }
    assert row == expected


def test_asking_again_makes_no_second_one_also_when_it_is_over_by_then() -> None:
    rig = rig_with()
    assert schedule(rig, repeat=1) == schedule(rig, repeat=1) == "s1"
    assert len(rig.host.schedules.schedule_rows()) == 1
    rig.tick(10_000)
    for again in (rig, rig.survivor()):
        assert schedule(again, repeat=1) == "s1"
        assert again.host.schedules.schedule_rows() == []
    rig = rig_with()
    schedule(rig)
    rig.host.schedules.destroy("s1", lambda: None)
    rig.sync()
    schedule(rig)
    assert rig.host.schedules.schedule_rows() == []


def test_a_destroyed_schedule_sends_no_more_and_is_not_found_again() -> None:
    rig = rig_with()
    schedule(rig)
    schedule(rig, name="s2", schedule="@every 7s")
    rig.tick(10_000)
    told: list[str] = []
    rig.host.schedules.destroy("s1", lambda: told.append("done"))
    assert told == []
    rig.sync()
    assert told == ["done"]
    with pytest.raises(InvalidDestinationError, match="no schedule 's1'"):
        rig.host.schedules.destroy("s1", lambda: None)
    rig = rig.restart()
    rig.tick(100_000)
    assert [name for name, _, _ in sent(rig)] == ["s2", "s1", "s2"]
    assert live_blocks(rig) == [2]


def test_schedules_go_with_their_destination() -> None:
    rig = rig_with()
    rig.create("other")
    schedule(rig, name="gone")
    schedule(rig, "other", name="stays")
    rig.host.removal.destroy("q", lambda: None)
    rig.sync()
    assert [row["id"] for row in rig.host.schedules.schedule_rows()] == ["stays"]
    assert live_blocks(rig) == [2]
    rig.create()  # Another one of that name.
    for again in (rig, rig.survivor()):
        again.tick(10_000)
        assert again.held("q") == 0
        assert [row["destination"] for row in again.host.schedules.schedule_rows()] == ["other"]


def test_a_crash_before_the_end_of_a_destination_is_durable_keeps_its_schedules() -> None:
    rig = rig_with()
    schedule(rig)
    rig.host.removal.destroy("q", lambda: None)
    assert [row["id"] for row in rig.survivor().host.schedules.schedule_rows()] == ["s1"]
    rig.sync()
    again = rig.survivor()
    assert (again.host.schedules.schedule_rows(), live_blocks(again)) == ([], [])


def test_an_auto_created_destination_with_a_schedule_is_not_idle() -> None:  # D-22
    rig = Rig(imq__autocreate__reaptime=5)
    rig.create(auto_created=True)
    schedule(rig, schedule="@every 1h", repeat=1)
    rig.tick(6_000)
    rig = rig.restart()
    rig.tick(60_000)
    assert rig.idle == []
    rig.tick(3_600_000)
    client = Client(rig)
    consumer = client.consumer()
    assert client.got() == ["tick"]
    client.ack(consumer, "tick")
    client.session.close()
    rig.sync()
    rig.tick(1_000)
    rig.tick(6_000)
    assert rig.idle == [("queue", "q")]


def test_an_auto_created_destination_is_idle_again_when_its_schedule_is_destroyed() -> None:
    rig = Rig(imq__autocreate__reaptime=5)
    rig.create(auto_created=True)
    schedule(rig, schedule="@every 1h")
    rig.host.schedules.destroy("s1", lambda: None)
    rig.sync()
    rig.tick(5_000)
    assert rig.idle == [("queue", "q")]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"schedule": "often"}, "config"),
        ({"timezone": "Mars"}, "config"),
        ({"schedule": 5}, "config"),
        ({"schedule": "@every 100ms"}, "config"),
        ({"body": "x" * SCHEDULED_BYTES_MAX}, "message_too_large"),
        ({"body": "x" * 101}, "message_too_large"),
        ({"repeat": -1}, "protocol"),
        ({"name": ""}, "protocol"),
        ({"name": "x" * 65}, "protocol"),
        ({"ttl_ms": -1}, "protocol"),
        ({"delay_ms": 1 << 60}, "protocol"),
        ({"properties": {"p": "x" * 65_500}}, "message_too_large"),
        ({"body": "x" * 100, "properties": {"p": "x" * 60}}, "message_too_large"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(more: dict[str, Any], code: str) -> None:
    rig = rig_with(maxBytesPerMsg=100, maximumMessageSize=150)
    assert refused(rig, **more) == code
    assert (rig.host.schedules.schedule_rows(), rig.commits(), live_blocks(rig)) == ([], [], [])


def test_a_request_that_is_no_single_message_is_refused() -> None:
    rig = rig_with()
    client = Client(rig)
    handle = client.producer()
    assert client.fails("schedule", handle=handle, **{**asked(), "message": b"nonsense"}) == "protocol"
    assert client.fails("schedule", handle=handle + 1, **asked()) == "invalid_destination"
    assert client.fails("schedule", handle=handle, **{**asked(), "message": "text"}) == "protocol"
    two = message("a")[:-1]
    assert client.fails("schedule", handle=handle, **{**asked(), "message": two}) == "protocol"


def test_a_destination_has_at_most_so_many() -> None:
    rig = rig_with(maxNumSchedules=2)
    for name in ("a", "b"):
        schedule(rig, name=name)
    assert refused(rig, name="c") == "resource_allocation"
    assert schedule(rig, name="a") == "a"  # Asking again is no new one.
    rig.host.schedules.destroy("a", lambda: None)
    schedule(rig, name="c")
    assert [row["id"] for row in rig.host.schedules.schedule_rows()] == ["b", "c"]


def test_a_temporary_destination_has_none() -> None:  # D-23
    rig = Rig()
    rig.create("tmp", owner="c1")
    assert refused(rig, "tmp") == "invalid_destination"


# ---- on disk -------------------------------------------------------------------------------------------------------


def test_the_message_and_the_count_are_one_batch() -> None:
    rig = rig_with()
    schedule(rig)
    rig.clock.ms += 10_000
    rig.host.tick()
    (batch,) = rig.commits()
    assert [(e.kind, e.destination) for e in batch] == [(BLOCK, rig.destination().number), (NOTE, 0)]


def test_nobody_sees_the_message_before_it_is_durable() -> None:
    rig = rig_with()
    schedule(rig, persistent=False)
    client = Client(rig)
    client.consumer()
    rig.clock.ms += 10_000
    rig.host.tick()
    assert client.peer.take("deliver") == []
    assert client.got() == ["tick"]


def test_checkpoints_carry_the_schedules_and_old_blocks_do_not_come_back() -> None:
    rig = rig_with()
    schedule(rig, name="over", repeat=1)
    schedule(rig, name="destroyed")
    schedule(rig, name="lives")
    rig.tick(10_000)
    rig.host.schedules.destroy("destroyed", lambda: None)
    rig.store.checkpoint_after_entries = 1
    rig.tick(10_000)
    rig.sync()
    rig.store.checkpoint_after_entries = 10_000
    rig = rig.restart()
    (row,) = rig.host.schedules.schedule_rows()
    assert (row["id"], row["fired"], row["last_ms"]) == ("lives", 2, NOW + 20_000)
    assert live_blocks(rig) == [3]
    schedule(rig, name="new")
    rig = rig.restart()
    rig.tick(10_000)
    assert sorted(row["id"] for row in rig.host.schedules.schedule_rows()) == ["lives", "new"]
    assert live_blocks(rig) == [3, 4]


def test_a_checkpoint_of_before_there_were_schedules_is_read() -> None:
    assert ScheduleLog.decode(b"").rows == {}


def test_a_schedule_that_is_over_may_have_lost_its_message_before_the_next_checkpoint() -> None:
    rig = rig_with()
    rig.create("other")
    schedule(rig, name="over", repeat=2)
    schedule(rig, name="destroyed")
    schedule(rig, "other", name="without")
    rig.store.checkpoint_after_entries = 1
    rig.tick(10_000)
    rig.store.checkpoint_after_entries = 10_000
    schedule(rig, name="quick", repeat=1)
    rig.tick(10_000)
    rig.host.schedules.destroy("destroyed", lambda: None)
    rig.host.removal.destroy("other", lambda: None)
    rig.sync()
    reclaim(rig)
    rig = rig.restart()
    assert (rig.host.schedules.schedule_rows(), live_blocks(rig)) == ([], [])
    assert set(rig.host.schedules.log.ended) == {"over", "destroyed", "without", "quick"}
    schedule(rig, name="new")
    assert live_blocks(rig) == [5], "numbers are never used again"


def test_a_schedule_without_its_destination_is_dropped_and_said() -> None:
    rig = rig_with()
    schedule(rig)
    log = rig.store._log
    log[:] = [entry for entry in log if entry.destination != rig.destination().number]
    rig = rig.restart()
    assert rig.host.schedules.schedule_rows() == []
    assert [line for line in rig.reports if "s1" in line and "dropped" in line]
    rig.sync()
    assert live_blocks(rig) == []


def test_a_schedule_without_its_message_is_damage() -> None:
    log = ScheduleLog()
    row = schedule_log.ScheduleRow(1, "s", 5, "@daily", "UTC", 0, False, 0, 0, 0, 0, 0)
    log.rows[1], log.next_number = row, 2
    found = ScheduleLog.decode(log.encode())
    with pytest.raises(StoreDamagedError, match="schedule 1"):
        found.check_complete()
    found.apply(schedule_log.made(row, b"x"))
    found.check_complete()
    assert found.rows == {1: row}


@pytest.mark.parametrize(
    "entry",
    [
        LogEntry(NOTE, 0, 0, b'{"fired":9,"last":1}'),
        LogEntry(NOTE, 0, 0, b'{"ended":9}'),
        LogEntry(NOTE, 0, 0, b"{nonsense"),
        LogEntry(BLOCK, 0, 1, b'{"id":"x"}', (b"x",)),
        LogEntry(BLOCK, 0, 1, b"\xff", (b"x",)),
    ],
)
def test_bytes_that_mean_nothing_are_damage(entry: LogEntry) -> None:
    assert ScheduleLog.owns(entry)
    with pytest.raises(StoreDamagedError, match="schedule"):
        ScheduleLog().apply(entry)
    with pytest.raises(StoreDamagedError, match="schedules"):
        ScheduleLog.decode(b"[1]")


def test_only_so_many_ended_ones_are_remembered() -> None:
    log = ScheduleLog()
    for number in range(schedule_log.ENDED_MAX + 1):
        log.remember(f"s{number}")
    assert len(log.ended) == schedule_log.ENDED_MAX
    assert "s0" not in log.ended


def test_what_administrators_see_of_a_destination_counts_its_schedules() -> None:
    rig = rig_with()
    rig.create("other")
    schedule(rig)
    assert [row["id"] for row in rig.host.schedules.schedule_rows("queue", "q")] == ["s1"]
    assert rig.host.schedules.schedule_rows("queue", "other") == rig.host.schedules.schedule_rows("topic") == []


# ---- the part alone --------------------------------------------------------------------------------------------------


class Planned(Desk):
    """``templates``: messages of schedules, as the block cache keeps them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        self.destination = self.add(**attributes)
        self.templates: dict[int, Any] = {}
        self.freed: list[int] = []
        self.damaged = False
        cache: Any = SimpleNamespace(
            put=lambda number, ordinal, block, stored: self.templates.update({ordinal: block}),
            get=self._template,
            demote=lambda number, ordinal: None,
            retire=lambda number, ordinals, stored: self.freed.extend(ordinals),
        )
        self.wakeups = Wakeups()
        self.memory: Any = SimpleNamespace(barred="")
        self.schedules = Schedules(
            self.executor,
            self.registry,
            cache,
            self.own,
            self.wakeups,
            self.time,
            self.lines.append,
            self.memory,
        )

    def _template(self, number: int, ordinal: int) -> Any:
        if self.damaged:
            raise StoreDamagedError("block of a schedule")
        return self.templates[ordinal]

    def plan(
        self,
        expression: str = "@every 10s",
        *,
        id_: str = "s",
        destination: Destination | None = None,
        repeat: int = 0,
        catch_up: bool = False,
    ) -> None:
        now_ms = self.clock.ms
        row = ScheduleRow(
            number=0,
            id=id_,
            destination=0,
            expression=expression,
            zone="UTC",
            repeat=repeat,
            catch_up=catch_up,
            ttl_ms=0,
            delay_ms=0,
            created_ms=now_ms,
            fired=0,
            last_ms=now_ms,
        )
        self.schedules.add(destination or self.destination, row, made("m"), lambda: None)

    def after(self, ms: int) -> int:
        """How many messages there are then."""
        self.clock.ms += ms
        self.schedules.fire_due()
        return self.destination.block_index.messages


def test_it_fires_when_it_is_due_and_asks_to_be_woken() -> None:
    world = Planned()
    world.plan()
    assert world.wakeups.due(world.clock.ms + 10_000) == [0]
    assert [world.after(9999), world.after(1), world.after(9999), world.after(1)] == [0, 1, 1, 2]
    assert world.destination.kept, "its destination is not idle"


@pytest.mark.parametrize(("catch_up", "messages"), [(True, 6), (False, 1)])
def test_missed_occurrences_are_made_up_for_or_stand_as_one(catch_up: bool, messages: int) -> None:
    world = Planned()
    world.plan(catch_up=catch_up)
    assert world.after(60_000) == messages
    assert [line for line in world.lines if "were missed" in line] == world.lines
    assert len(world.lines) == (not catch_up)


def test_the_last_firing_ends_it_and_frees_its_message() -> None:
    world = Planned()
    world.plan(repeat=2)
    assert [world.after(10_000) for _ in range(4)] == [1, 2, 2, 2]
    assert (world.schedules.schedule_rows(), world.freed, world.destination.kept) == ([], [1], False)


def test_a_full_destination_gets_it_later_and_the_log_hears_once() -> None:
    world = Planned(maxNumMsgs=0)
    world.plan()
    for _ in range(3):
        world.after(10_000)
    assert world.destination.block_index.messages == 0
    assert sum("does not take it now" in line for line in world.lines) == 1
    world.executor.perform(world.destination, cmd.Update(world.add("free").attributes))
    assert world.after(AGAIN_MS) == 1


def test_one_whose_message_is_damaged_halts_alone() -> None:
    world = Planned()
    world.plan()
    world.damaged = True
    assert [world.after(10_000), world.after(10_000)] == [0, 0]
    assert world.lines == ["schedule s is halted: block of a schedule"]


def test_what_cannot_be_planned_is_refused_and_leaves_nothing() -> None:
    world = Planned(maxNumSchedules=1)
    with pytest.raises(ConfigError):
        world.plan("every now and then")
    with pytest.raises(InvalidDestinationError, match="would outlive it"):
        world.plan(destination=world.add("tmp", owner="me"))
    world.plan()
    world.plan()
    assert len(world.schedules.schedule_rows()) == 1, "the same id is the same schedule"
    with pytest.raises(ResourceAllocationError, match="maxNumSchedules=1"):
        world.plan(id_="other")
    assert len(world.templates) == 1


def test_a_destroyed_one_sends_nothing_more() -> None:
    world = Planned()
    world.plan()
    world.schedules.destroy("s", lambda: None)
    assert world.after(20_000) == 0
    assert world.freed == [1]
    with pytest.raises(InvalidDestinationError, match="no schedule 's'"):
        world.schedules.destroy("s", lambda: None)
