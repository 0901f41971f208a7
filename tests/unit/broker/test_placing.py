"""Copies of a log that is led: more, fewer and others, one step after the other, over real disks and sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raybroker.broker.copies import copied_logs
from raybroker.broker.copies import placing as placing_
from raybroker.broker.copies.lost_leaders import LostLeaders
from raybroker.broker.copies.placed_log import PlacedLog
from raybroker.broker.copies.placing import Placing
from raybroker.cluster.change_record import Change, RecordState
from raybroker.errors import ConfigError, IllegalStateError, InvalidDestinationError, NotSupportedError
from tests.unit.broker.test_copied_logs import KEY, LOG, NAMES, Brokers, Maker

FIVE = (*NAMES, "b4", "b5")
PLACED = PlacedLog(KEY, LOG, NAMES, ("c1", "c2", "c3"))


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied_logs, "LOOK_S", 0.05)
    monkeypatch.setattr(copied_logs, "ASK_S", 0.1)


class Calls:
    """The brokers as the first of them calls them."""

    name = "b1"

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self.unseen: list[str] = []

    def live(self) -> list[str]:
        return [name for name in self._brokers.logs if name not in self.unseen]

    def awaited(self) -> list[str]:
        return self.unseen

    async def ask_at(self, broker: str, method: str, args: dict[str, Any], timeout_s: float) -> Any:
        return await self._brokers.call_broker(broker, method, args, timeout_s=timeout_s)


def placing_of(brokers: Brokers, calls: Any = None) -> Placing:
    calls = calls or Calls(brokers)
    return Placing(brokers.logs["b1"], calls, lambda: brokers.record, brokers.propose)


def on_disk(folder: Path) -> set[str]:
    """Return the brokers that have a copy."""
    return {path.parent.name for path in folder.glob("*/copy.head")}


def attributes(replicas: int, min_in_sync: int = 0) -> dict[str, Any]:
    return {"replicas": replicas, "minInSync": min_in_sync, "useDMQ": False}


async def story(folder: Path) -> None:
    brokers = Brokers(folder, FIVE)
    placing = placing_of(brokers)

    def placed() -> PlacedLog:
        return PlacedLog.of_record(KEY, brokers.record.copies[KEY])

    def voters() -> set[str]:
        row = brokers.logs["b1"].replication_row(KEY)
        return {one["broker"] for one in row["copies"] if one["voter"]}

    def settled(*names: str) -> bool:
        found = placed()
        return sorted(found.brokers) == sorted(names) and all(found.ids) and voters() == set(names)

    try:
        await brokers.make()
        await brokers.until(lambda: brokers.serving() == ["b1"], "it is served")
        await placing.change(KEY, attributes(5, 4))
        assert placed().ids[3:] == ("", ""), "what comes later does not begin the log"
        row = brokers.logs["b1"].replication_row(KEY)
        assert [text.partition(":")[0] for text in row["changing"]] == [
            "waits for copy 4, at broker b4",
            "waits for copy 5, at broker b5",
        ]
        await brokers.until(lambda: settled(*FIVE), "five copies have a vote")
        await brokers.until(lambda: brokers.logs["b1"].replication_row(KEY)["min_in_sync"] == 4, "four have to have it")
        await placing.change(KEY, attributes(3))
        await brokers.until(lambda: settled(*NAMES), "two of them have gone")
        await brokers.until(lambda: on_disk(folder) == set(NAMES), "and what they had")
        found = await placing.replace_replica(*KEY, "b3", "b5")
        assert found["to"] == "b5"
        await brokers.until(lambda: settled("b1", "b2", "b5"), "another broker has the third copy")
        await brokers.until(lambda: on_disk(folder) == {"b1", "b2", "b5"}, "b3 has none any more")
        await placing.change(KEY, attributes(1))
        await brokers.until(lambda: settled("b1"), "one is left")
        assert brokers.serving() == ["b1"]
        await placing.change(KEY, attributes(3))
        await brokers.until(lambda: settled(*NAMES), "there are three again")
        assert brokers.logs["b1"].replication_row(KEY)["changing"] == []
    finally:
        await brokers.close()


@pytest.mark.usefixtures("looks_often")
def test_copies_come_and_go_while_the_log_is_led(tmp_path: Path) -> None:
    asyncio.run(story(tmp_path))


async def replaced(folder: Path) -> None:
    brokers = Brokers(folder, (*NAMES, "b4"))
    placing = placing_of(brokers)

    def placed() -> PlacedLog:
        return PlacedLog.of_record(KEY, brokers.record.copies[KEY])

    try:
        await brokers.make()
        await brokers.until(lambda: brokers.serving() == ["b1"], "it is served")
        await placing.replace_replica(*KEY, "b1")
        await brokers.until(lambda: sorted(placed().brokers) == ["b2", "b3", "b4"], "b4 has the copy of b1")
        await brokers.until(lambda: brokers.serving() in (["b2"], ["b3"], ["b4"]), "another one has led before")
    finally:
        await brokers.close()


@pytest.mark.usefixtures("looks_often")
def test_where_the_old_copy_leads_another_one_leads_first(tmp_path: Path) -> None:
    asyncio.run(replaced(tmp_path))


async def refusals(folder: Path) -> None:
    brokers = Brokers(folder, (*NAMES, "b4"))
    placing = placing_of(brokers)
    try:
        await brokers.make()
        await brokers.until(lambda: brokers.serving() == ["b1"], "it is served")
        with pytest.raises(ConfigError, match="5 copies need 5 nodes"):
            await placing.change(KEY, attributes(5))
        with pytest.raises(ConfigError, match=r"b4 keeps no copy .* that could be replaced; those that do: b1, b2, b3"):
            await placing.replace_replica(*KEY, "b4")
        with pytest.raises(ConfigError, match="queue 'other' does not exist"):
            await placing.replace_replica("queue", "other", "b1")
        brokers.record.apply(
            Change("create_destination", ("queue", "work"), {"replicas": 3, "errorDestination": "orders"})
        )
        with pytest.raises(ConfigError, match="takes the dead messages of queue work, which has 3 copies"):
            await placing.change(KEY, attributes(1))
        assert PlacedLog.of_record(KEY, brokers.record.copies[KEY]).version == 0, "nothing was changed"
    finally:
        await brokers.close()


def test_what_cannot_be_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    asyncio.run(refusals(tmp_path))


async def unopened(folder: Path) -> None:
    """A lost broker that has something to move holds up nobody once the log is opened without it."""
    brokers = Brokers(folder)
    placing = placing_of(brokers)
    try:
        await brokers.make()
        for opened in (False, True):
            now = PlacedLog.of_record(KEY, brokers.record.copies[KEY])
            await brokers.propose(Change("move_copies", KEY, now.after(sources=("b9",), opened=opened).attributes()))
            if not opened:
                with pytest.raises(IllegalStateError, match="still moves into a log with copies, from brokers b9"):
                    await placing.change(KEY, attributes(1))
        await brokers.until(lambda: brokers.serving() == ["b1"], "it is served")
        await placing.change(KEY, attributes(1))
        assert PlacedLog.of_record(KEY, brokers.record.copies[KEY]).leaving == ("b2", "b3")
    finally:
        await brokers.close()


def test_copies_change_once_the_log_is_opened(tmp_path: Path) -> None:
    asyncio.run(unopened(tmp_path))


async def urged(folder: Path) -> None:
    brokers = Brokers(folder)
    verbs = LostLeaders(cast(Any, Calls(brokers)), lambda: brokers.record)
    try:
        with pytest.raises(NotSupportedError, match="broker b2 cannot be taken over"):
            await verbs.takeover_broker("b2")
        await brokers.make()
        await brokers.until(lambda: brokers.serving() == ["b1"], "it is served")
        with pytest.raises(IllegalStateError, match="broker b2 is up, and nobody takes over what lives"):
            await verbs.takeover_broker("b2")
        await brokers.lose("b3")
        found = await verbs.takeover_broker("b3")
        assert found == {"broker": "b3", "taker": "b1", "destinations": []}, "b1 leads it"
    finally:
        await brokers.close()


def test_what_a_lost_broker_has_led_is_taken_over_by_word(tmp_path: Path) -> None:
    asyncio.run(urged(tmp_path))


def test_a_change_of_copies_that_was_made_of_an_older_one_is_refused() -> None:
    record = RecordState()
    record.make(Change("place_copies", KEY, PLACED.attributes()))
    record.make(Change("move_copies", KEY, PLACED.after(leaving=("b3",)).attributes()))
    with pytest.raises(IllegalStateError, match="it was changed meanwhile, and is at version 1; try again"):
        record.make(Change("move_copies", KEY, PLACED.after(ids=("c1", "c2", "c9")).attributes()))
    assert PlacedLog.of_record(KEY, record.copies[KEY]).staying == ("b1", "b2")


async def older_record(folder: Path) -> None:
    brokers = Brokers(folder, FIVE)
    placing = placing_of(brokers)

    def settled(*names: str) -> bool:
        placed = PlacedLog.of_record(KEY, brokers.record.copies[KEY])
        row = next((row for logs in brokers.logs.values() for row in logs.replication_rows().values()), {})
        voters = sorted(one["broker"] for one in row.get("copies", ()) if one["voter"])
        return sorted(placed.brokers) == sorted(names) == voters and not placed.leaving

    try:
        await brokers.make()
        await brokers.until(lambda: brokers.serving() == ["b1"], "it is served")
        saved = brokers.record.copy()
        for old, new in (("b2", "b4"), ("b3", "b5")):
            await placing.replace_replica(*KEY, old, new)
            await brokers.until(lambda old=old: old not in on_disk(folder), f"{new} has the copy of {old}")  # type: ignore[misc]
        await brokers.until(lambda: settled("b1", "b4", "b5"), "nothing is left to be done")
        index = brokers.logs["b1"].replication_row(KEY)["index"]
        brokers.record, brokers.record_id = saved, "r2"
        await brokers.restart()
        await brokers.until(lambda: settled(*NAMES), "it is where the record says")
        await brokers.until(lambda: len(brokers.serving()) == 1, "and is served")
        (leader,) = brokers.serving()
        assert brokers.logs[leader].replication_row(KEY)["index"] > index, "by the same log"
        await brokers.until(lambda: on_disk(folder) == set(NAMES), "the other copies have gone")
    finally:
        await brokers.close()


@pytest.mark.usefixtures("looks_often")
def test_a_restored_record_that_is_older_than_the_set_loses_nothing(tmp_path: Path) -> None:
    asyncio.run(older_record(tmp_path))


async def unknown_log(folder: Path) -> None:
    brokers = Brokers(folder)
    try:
        await brokers.make()
        await brokers.until(lambda: brokers.serving() == ["b1"], "it is served")
        await asyncio.sleep(0.2)  # All brokers have noted by now which record they have.
        brokers.record, brokers.record_id = RecordState(), "r2"
        brokers.record.apply(Change("create_destination", KEY, {"replicas": 3}))
        brokers.record.apply(Change("destroy_destination", KEY))  # One of this name that was there before.
        await brokers.restart()
        placing = placing_of(brokers)
        await asyncio.sleep(0.5)
        assert on_disk(folder) == set(NAMES), "nothing is removed for that"
        assert brokers.serving() == []
        with pytest.raises(InvalidDestinationError, match="queue 'other' does not exist, and no broker"):
            await placing.adopt(("queue", "other"))
        live = brokers.logs
        brokers.logs = {"b1": live["b1"]}
        with pytest.raises(
            IllegalStateError, match=r"has 3 copies, and 1 of them .*no majority \(b1\): start the others"
        ):
            await placing.adopt(KEY)
        brokers.logs = live
        await placing.adopt(KEY)
        assert brokers.record.destinations[KEY] == {"replicas": 3, "maxNumMsgs": 7}, "as the log has it"
        assert len(brokers.serving()) == 1
        placed = PlacedLog.of_record(KEY, brokers.record.copies[KEY])
        assert (placed.log, sorted(placed.brokers)) == (LOG, list(NAMES))
    finally:
        await brokers.close()


@pytest.mark.usefixtures("looks_often")
def test_a_log_that_a_restored_record_does_not_know_stays_and_is_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def rows() -> list[dict[str, Any]]:
        return [{"type": KEY[0], "name": KEY[1], "traits": {"replicas": 3, "maxNumMsgs": 7}}]

    host = SimpleNamespace(destinations=SimpleNamespace(destination_rows=rows))
    monkeypatch.setattr(Maker, "host", lambda maker, copy: host)
    asyncio.run(unknown_log(tmp_path))


async def seen_late(folder: Path) -> None:
    brokers = Brokers(folder)
    calls = Calls(brokers)
    placing, loop = placing_of(brokers, calls), asyncio.get_running_loop()
    try:
        calls.unseen = ["b2", "b3"]
        with pytest.raises(ConfigError, match=r"3 copies .*\. Brokers b2, b3 have not said yet where they are: start"):
            await placing.create(KEY, attributes(3))
        loop.call_later(0.3, calls.unseen.clear)
        await placing.create(KEY, attributes(3))
        assert brokers.record.copies[KEY]["brokers"] == list(NAMES)
        with pytest.raises(ConfigError, match=r"there are 3 that can be used \(b1, b2, b3\): [^.]*$"):
            await placing.create(("queue", "more"), attributes(5))  # Nobody is awaited.
    finally:
        await brokers.close()


@pytest.mark.usefixtures("looks_often")
def test_brokers_that_are_not_seen_yet_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing_, "SEEN_S", 1.0)
    asyncio.run(seen_late(tmp_path))
